// `CopyThreads`: copies of large blocks of memory by several threads at once, this one among them, which waits for the others: one
// thread copies 6 to 13 GB a second, and a link to a GPU takes several times as much. What is mapped of a GPU's buffers belongs to
// one thread of JavaScript: the others get addresses, and have them no longer than a call of `copy` takes.

import { createRequire } from 'node:module';
import os from 'node:os';
import process from 'node:process';
import { deferred } from '../../util/deferred.ts';
import { assert } from '../../util/errors.ts';
import type { CopyBytes, Thread } from '../host.ts';
import { type CopyingThread, type Koffi, type Memmove, memmoveOf, SLIP, SLIP_BYTES, slipOf } from './copying-thread.ts';
import { startScript } from './threads.ts';

/** Beside this one: together 2.7 times as fast on 16 cores, with four more 3.5. One processor in two is left to all else, the GPU's driver too. */
const MOST_OTHERS = 3;
const OTHERS = Math.min(MOST_OTHERS, Math.floor(os.availableParallelism() / 2) - 1);
/** Bytes below which waking the others takes longer than they save. */
const LEAST_BYTES = 2 ** 20;
/** Parts begin at multiples of a cache line. */
const LINE_BYTES = 64;

interface Other {
  readonly thread: Thread;
  readonly words: Int32Array;
  readonly numbers: BigInt64Array;
}

export class CopyThreads {
  readonly #memmove: Memmove;
  readonly #others: readonly Other[];

  /** With so many threads beside this one, each ready. Errors: where koffi is missing, or a thread cannot be started. */
  static async open(others: number): Promise<CopyThreads> {
    const require = createRequire(import.meta.url);
    const file = require.resolve('koffi');
    const memmove = memmoveOf(require(file) as Koffi, process.platform === 'win32');
    const { default: script } = await import('../../../workers/copying.ts?script');
    const start = async (): Promise<Other> => {
      const slip = new SharedArrayBuffer(SLIP_BYTES);
      const [words, numbers] = slipOf(slip);
      const ready = deferred<unknown>();
      const thread = startScript(script, { message: ready.resolve, failed: ready.reject });
      thread.keepAlive(true);
      thread.post({ slip, koffi: file } satisfies CopyingThread);
      await ready.promise;
      thread.keepAlive(false);
      return { thread, words, numbers };
    };
    return new CopyThreads(memmove, await Promise.all(Array.from({ length: others }, start)));
  }

  private constructor(memmove: Memmove, others: readonly Other[]) {
    this.#memmove = memmove;
    this.#others = others;
  }

  /** As `to.set(from)`, which lie in different memory. Errors: RangeError where there is more of `from`. */
  readonly copy: CopyBytes = (to, from) => {
    const { length } = from;
    if (length < LEAST_BYTES || length > to.length) {
      to.set(from);
      return;
    }
    const size = Math.ceil(length / (this.#others.length + 1) / LINE_BYTES) * LINE_BYTES;
    const addresses = [to, from].map((bytes) => this.#memmove(bytes, bytes, 0)) as [bigint, bigint];
    this.#others.forEach((other, i) => {
      const start = (i + 1) * size;
      want(
        other,
        addresses[0] + BigInt(start),
        addresses[1] + BigInt(start),
        Math.max(0, Math.min(size, length - start)),
      );
    });
    to.set(from.subarray(0, size));
    for (const { words } of this.#others) {
      const wanted = Atomics.load(words, SLIP.wanted);
      for (let done = Atomics.load(words, SLIP.done); done !== wanted; done = Atomics.load(words, SLIP.done)) {
        Atomics.wait(words, SLIP.done, done);
      }
    }
  };

  /** Nothing is copied after it. */
  async end(): Promise<void> {
    await Promise.all(this.#others.map(({ thread }) => thread.end()));
  }
}

function want({ words, numbers }: Other, to: bigint, from: bigint, bytes: number): void {
  assert(
    Atomics.load(words, SLIP.wanted) === Atomics.load(words, SLIP.done),
    'a copy is wanted before the last is done',
  );
  numbers[SLIP.to] = to;
  numbers[SLIP.from] = from;
  numbers[SLIP.bytes] = BigInt(bytes);
  Atomics.add(words, SLIP.wanted, 1);
  Atomics.notify(words, SLIP.wanted);
}

let started: Promise<CopyBytes | undefined> | undefined;

/** Undefined where there are too few processors, or koffi is missing. Threads are started once. */
export function startCopying(): Promise<CopyBytes | undefined> {
  started ??=
    OTHERS < 1
      ? Promise.resolve(undefined)
      : CopyThreads.open(OTHERS).then(
          ({ copy }) => copy,
          () => undefined,
        );
  return started;
}
