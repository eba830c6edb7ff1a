// `HostThreads`: AdamW on the host in several threads: each range is dealt to them in parts, all of which compute in the memory
// that they share. What does not lie in one such memory is computed here.
//
// Invariant: elements do not depend on each other, so neither do results on the number of threads.

import type { ThreadReply, ThreadWork } from '../../kernels/adamw-thread.ts';
import type { HostUpdater } from '../../kernels/host-adamw.ts';
import {
  bytesIn,
  callsOf,
  HostAdamW,
  type HostExtent,
  type HostScalars,
  type HostValues,
} from '../../kernels/host-adamw.ts';
import { STATE } from '../../kernels/step-control.ts';
import { BLOCK } from '../../kernels/sum-squares.ts';
import { sharedModule, type WasmHeap } from '../../kernels/wasm-heap.ts';
import type { Thread, Threads } from '../../runtime/host.ts';
import { at } from '../../util/at.ts';
import { type Deferred, deferred } from '../../util/deferred.ts';
import { HoldfastError, messageOf } from '../../util/errors.ts';

/** More of them wait for memory rather than for arithmetic. */
const MOST_THREADS = 8;
/** Elements below which another thread costs more than it brings: tens of microseconds. */
const LEAST_PART = 16 * BLOCK;

interface Hand {
  readonly thread: Thread;
  /** Numbers of the memories that it has. */
  readonly memories: Set<number>;
  /** Pieces of work that it has: only then does it keep the process alive. */
  works: number;
}

export class HostThreads implements HostUpdater {
  readonly #threads: Threads;
  readonly #heap: WasmHeap;
  readonly #here: HostAdamW;
  readonly #underWay = new Map<number, Deferred<void>>();
  #hands: Promise<readonly Hand[]> | undefined;
  #next = 0;
  #failure: HoldfastError | undefined;
  #ended = false;

  constructor(threads: Threads, heap: WasmHeap) {
    this.#threads = threads;
    this.#heap = heap;
    this.#here = new HostAdamW(heap);
  }

  async update(values: HostValues, extent: HostExtent, scalars: HostScalars): Promise<void> {
    if (this.#failure) throw this.#failure;
    const places = this.#heap.placesOf(bytesIn(values));
    if (!places || extent.size < 2 * LEAST_PART || at(scalars.state, STATE.skip) !== 0) {
      this.#here.update(values, extent, scalars);
      return;
    }
    this.#hands ??= this.#start();
    const hands = await this.#hands;
    const parts = Math.min(hands.length, Math.floor(extent.size / LEAST_PART));
    const size = Math.ceil(extent.size / parts / BLOCK) * BLOCK;
    const { memory, number, offsets } = places;
    await Promise.all(
      hands.slice(0, Math.ceil(extent.size / size)).map((hand, i) => {
        const first = i * size;
        const part = {
          ...extent,
          size: Math.min(size, extent.size - first),
          firstBlock: extent.firstBlock + first / BLOCK,
          first: (extent.first ?? 0) + first,
          firstNarrow: (extent.firstNarrow ?? 0) + first,
        };
        const calls = callsOf(offsets, part, scalars);
        const isNew = !hand.memories.has(number);
        hand.memories.add(number);
        return this.#post(hand, { number, calls, ...(isNew && { memory, module: sharedModule() }) });
      }),
    );
  }

  /** Nothing is computed after it. */
  async end(): Promise<void> {
    this.#ended = true;
    const hands = await this.#hands?.catch(() => []);
    await Promise.all(hands?.map(({ thread }) => thread.end()) ?? []);
  }

  async #start(): Promise<readonly Hand[]> {
    const count = Math.max(1, Math.min(MOST_THREADS, this.#threads.count));
    return Promise.all(
      Array.from({ length: count }, async () => {
        const thread = await this.#threads.start('optimizer', {
          message: (reply) => this.#answered(reply as ThreadReply),
          failed: (error) => this.#failed(error),
        });
        return { thread, memories: new Set<number>(), works: 0 };
      }),
    );
  }

  async #post(hand: Hand, work: Omit<ThreadWork, 'id'>): Promise<void> {
    const { thread } = hand;
    const id = this.#next++;
    const done = deferred<void>();
    this.#underWay.set(id, done);
    if (hand.works++ === 0) thread.keepAlive(true);
    try {
      thread.post({ ...work, id } satisfies ThreadWork);
      await done.promise;
    } finally {
      this.#underWay.delete(id);
      if (--hand.works === 0) thread.keepAlive(false);
    }
  }

  #answered({ id, error }: ThreadReply): void {
    if (error === undefined) this.#underWay.get(id)?.resolve();
    else this.#failed(error);
  }

  /** What the threads were at is half done. */
  #failed(error: unknown): void {
    if (this.#ended) return;
    this.#failure ??= new HoldfastError(
      `a thread of the optimizer on the host failed (${messageOf(error)}); resume from the last checkpoint`,
    );
    for (const { reject } of this.#underWay.values()) reject(this.#failure);
  }
}
