// `Gathering`: all-gathers of chunks as the executor does them, begun ahead of their turns: the bytes of the next few leave their
// owners and are taken by the others at once, while the GPUs compute what lies between. They come to lie in host memory, and go to
// their slots in their turns. What is gathered when is a pass's affair (engine/ranks).
//
// Invariants: all ranks begin the gathers of a pass in its order, over a channel that has nothing else, and each gives what it owns in
// that order, since messages of one rank arrive so; a rank waits for others with nothing that they do behind the same gather, so that
// no wait is in a circle; bytes under way take `gatheredBytes` at most, and nothing is under way when a pass has run.

import { assert } from '../../util/errors.ts';
import type { Operation } from '../compile/operations.ts';
import type { Communicator } from '../ranks/communicator.ts';
import {
  type ChunkGather,
  type ChunkGatherOperation,
  chunkGathersIn,
  gatheredAtOnce,
  largestOf,
} from '../ranks/gather-order.ts';

/** What gathers need of a rank's GPU and of what waits. */
export interface GatherPort {
  /** Whether a chunk has its value on the GPU, as it is behind what is encoded. */
  isHere(chunk: number): boolean;
  /** Begins to bring down the bytes that its slot begins with; the function that it returns waits until they are there. */
  readEarly(chunk: number, into: Uint8Array<ArrayBuffer>): Promise<() => Promise<void>>;
  /** Waits for other ranks while the GPU does what is encoded. Errors: what `stop` is told meanwhile, too. */
  others<T>(what: Promise<T>): Promise<T>;
  /** Something that nothing waits for yet has failed: others wait for it. */
  stop(reason: unknown): void;
}

/** A gather that has begun. */
interface Begun {
  readonly gather: ChunkGather;
  readonly bytes: Uint8Array<ArrayBuffer>;
  /** Of another rank: waits for its bytes. */
  readonly arrives?: () => Promise<void>;
  /** Of this one: others have taken them. Absent until they are given. */
  taken?: Promise<void>;
}

const known = new WeakMap<readonly Operation[], readonly ChunkGather[]>();

export class Gathering {
  readonly #port: GatherPort;
  readonly #ranks: Communicator | undefined;
  #gathers: readonly ChunkGather[] = [];
  /** The number of the gather whose turn is next. */
  #turn = 0;
  /** Those that have begun, from that one on. */
  #begun: Begun[] = [];
  /** What others have not taken of the gather before. */
  #before: Promise<void> | undefined;
  /** Resolves when the bytes that it gave last are on their way. */
  #sending: Promise<unknown> = Promise.resolve();
  /** For the gathers that are in memory at once, one behind the other, by number. */
  #room = new Uint8Array(0);
  #largest = 0;
  #atOnce = 0;

  /** `ranks`: along the data axis; absent where there is one. */
  constructor(port: GatherPort, ranks: Communicator | undefined) {
    this.#port = port;
    this.#ranks = ranks?.over('gathers');
  }

  /** Bytes of host memory that it has for what is under way. */
  get bytes(): number {
    return this.#room.length;
  }

  /** Begins a pass, and its first gathers. */
  async begin(operations: readonly Operation[]): Promise<void> {
    assert(this.#begun.length === 0 && !this.#before, 'the pass before has run, with all that it gathers');
    const gathers = known.get(operations) ?? chunkGathersIn(operations);
    known.set(operations, gathers);
    this.#gathers = gathers;
    this.#turn = 0;
    if (gathers.length === 0) return;
    this.#largest = largestOf(gathers);
    this.#atOnce = gatheredAtOnce(this.#communicator.size, gathers.length, this.#largest);
    if (this.#room.length < this.#atOnce * this.#largest) this.#room = new Uint8Array(this.#atOnce * this.#largest);
    await this.#beginNext();
  }

  /** The gather whose turn it is, and the beginning of another one. `use`: takes the bytes that another rank had. */
  async run(operation: ChunkGatherOperation, use: (bytes: Uint8Array<ArrayBuffer>) => Promise<void>): Promise<void> {
    const begun = this.#begun.shift();
    assert(begun?.gather.operation === operation, `${operation.label} comes in its turn`);
    if (begun.arrives) {
      await this.#port.others(begun.arrives());
      await use(begun.bytes);
    } else if (!begun.taken) await this.#give(begun);
    // What it lies in, another one is to have.
    if (this.#before) await this.#port.others(this.#before);
    this.#before = begun.taken;
    this.#turn++;
    if (this.#turn < this.#gathers.length) await this.#beginNext();
    else {
      if (this.#before) await this.#port.others(this.#before);
      this.#before = undefined;
    }
  }

  /** Begins what there is room for beside the one before, which others take, and gives what it owns, up to the first that is not ready. */
  async #beginNext(): Promise<void> {
    const ranks = this.#communicator;
    while (this.#begun.length < Math.max(1, this.#atOnce - 1)) {
      const number = this.#turn + this.#begun.length;
      const gather = this.#gathers[number];
      if (!gather) break;
      const { owner, operation } = gather;
      const offset = (number % this.#atOnce) * this.#largest;
      const bytes = this.#room.subarray(offset, offset + gather.bytes);
      const isOwn = owner === ranks.rank;
      this.#begun.push({
        gather,
        bytes,
        ...(!isOwn && { arrives: ranks.receiveEarly(operation.label, owner, bytes) }),
      });
    }
    for (const begun of this.#begun) {
      if (begun.arrives || begun.taken) continue;
      const { readyFrom, operation } = begun.gather;
      if (readyFrom > this.#turn || !this.#port.isHere(operation.on.chunk)) break;
      await this.#give(begun);
    }
  }

  /** To all others, behind what they were given before, as soon as the GPU has it. */
  async #give(begun: Begun): Promise<void> {
    const ranks = this.#communicator;
    const { gather, bytes } = begun;
    const { label, on } = gather.operation;
    const read = await this.#port.readEarly(on.chunk, bytes);
    const sending = Promise.all([this.#sending, read()]).then(() => ({ taken: ranks.sendToAll(label, bytes) }));
    this.#sending = sending;
    begun.taken = sending.then((sent) => sent.taken);
    begun.taken.catch((reason: unknown) => this.#port.stop(reason));
  }

  get #communicator(): Communicator {
    assert(this.#ranks, 'what is gathered is of several ranks');
    return this.#ranks;
  }
}
