// `Gathering`: all-gathers of chunks as the executor does them, each begun ahead of its turn: as soon as the one before
// it has run, its bytes leave the owner and are taken by the others, while the GPUs compute what lies between. They
// come to lie in host memory, and go to their slots in their turn. What is gathered when is a pass's affair
// (engine/ranks).
//
// Invariants: all ranks begin the gathers of a pass in its order, over a channel that has nothing else; a rank waits for others
// with nothing that they do behind the same gather, so that no wait is in a circle; bytes under way take `gatheredBytes` at most,
// and nothing is under way when a pass has run.

import { at } from '../../util/at.ts';
import { assert } from '../../util/errors.ts';
import type { Operation } from '../compile/operations.ts';
import type { Communicator } from '../ranks/communicator.ts';
import {
  type ChunkGather,
  type ChunkGatherOperation,
  chunkGathersIn,
  GATHERED_AT_ONCE,
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
  readonly bytes: Uint8Array<ArrayBuffer>;
  /** Of another rank: waits for its bytes. */
  readonly arrives?: () => Promise<void>;
  /** Of this one: others have taken them. Absent until they are read. */
  readonly taken?: Promise<void>;
}

const known = new WeakMap<readonly Operation[], readonly ChunkGather[]>();

export class Gathering {
  readonly #port: GatherPort;
  readonly #ranks: Communicator | undefined;
  #gathers: readonly ChunkGather[] = [];
  /** The number of the gather whose turn is next. */
  #turn = 0;
  #next: Begun | undefined;
  /** What others have not taken of the gather before. */
  #before: Promise<void> | undefined;
  /** Resolves when the bytes that it gave last are on their way. */
  #sending: Promise<unknown> = Promise.resolve();
  readonly #rooms = Array.from({ length: GATHERED_AT_ONCE }, () => new Uint8Array(0));

  /** `ranks`: along the data axis; absent where there is one. */
  constructor(port: GatherPort, ranks: Communicator | undefined) {
    this.#port = port;
    this.#ranks = ranks?.over('gathers');
  }

  /** Bytes of host memory that it has for what is under way. */
  get bytes(): number {
    return this.#rooms.reduce((sum, { length }) => sum + length, 0);
  }

  /** Begins a pass, and its first gather. */
  async begin(operations: readonly Operation[]): Promise<void> {
    assert(!this.#next && !this.#before, 'the pass before has run, with all that it gathers');
    const gathers = known.get(operations) ?? chunkGathersIn(operations);
    known.set(operations, gathers);
    this.#gathers = gathers;
    this.#turn = 0;
    const size = largestOf(gathers);
    this.#rooms.slice(0, gathers.length).forEach((room, i) => {
      if (room.length < size) this.#rooms[i] = new Uint8Array(size);
    });
    await this.#begin();
  }

  /** The gather whose turn it is, and the beginning of the next one. `use`: takes the bytes that another rank had. */
  async run(operation: ChunkGatherOperation, use: (bytes: Uint8Array<ArrayBuffer>) => Promise<void>): Promise<void> {
    const gather = at(this.#gathers, this.#turn);
    const begun = this.#next;
    assert(begun && gather.operation === operation, `${operation.label} comes in its turn`);
    if (begun.arrives) {
      await this.#port.others(begun.arrives());
      await use(begun.bytes);
    }
    const taken = begun.arrives ? undefined : (begun.taken ?? (await this.#give(gather, begun.bytes)).taken);
    // What it lies in, the next one is to have.
    if (this.#before) await this.#port.others(this.#before);
    this.#before = taken;
    this.#next = undefined;
    this.#turn++;
    if (this.#turn < this.#gathers.length) await this.#begin();
    else {
      if (taken) await this.#port.others(taken);
      this.#before = undefined;
    }
  }

  /** The gather whose turn is next. */
  async #begin(): Promise<void> {
    const gather = this.#gathers[this.#turn];
    if (!gather) return;
    const { owner, isReady, operation } = gather;
    const ranks = this.#communicator;
    const bytes = at(this.#rooms, this.#turn % GATHERED_AT_ONCE).subarray(0, gather.bytes);
    if (owner !== ranks.rank) this.#next = { bytes, arrives: ranks.receiveEarly(operation.label, owner, bytes) };
    else if (!isReady || !this.#port.isHere(operation.on.chunk)) this.#next = { bytes };
    else this.#next = { bytes, ...(await this.#give(gather, bytes)) };
  }

  /** To all others, behind what they were given before, as soon as the GPU has it. */
  async #give({ operation }: ChunkGather, bytes: Uint8Array<ArrayBuffer>): Promise<{ taken: Promise<void> }> {
    const ranks = this.#communicator;
    const read = await this.#port.readEarly(operation.on.chunk, bytes);
    const sending = Promise.all([this.#sending, read()]).then(() => ({
      taken: ranks.sendToAll(operation.label, bytes),
    }));
    this.#sending = sending;
    const taken = sending.then((sent) => sent.taken);
    taken.catch((reason: unknown) => this.#port.stop(reason));
    return { taken };
  }

  get #communicator(): Communicator {
    assert(this.#ranks, 'what is gathered is of several ranks');
    return this.#ranks;
  }
}
