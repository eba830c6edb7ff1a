// All-gathers of chunks on the simulated clock, by the rules of run/gathering.ts: each begins as soon as the one before it has run,
// its bytes are on their way while GPUs compute, and it is waited for in its turn. Through host memory alone: what goes from GPU
// to GPU has its place in the queue (exchanges.ts).
//
// Other ranks are as this one is: what they have is behind as much arithmetic as was submitted here, and is on their GPUs ahead of
// its turn where what this one gave last was.

import { at } from '../../util/at.ts';
import { assert } from '../../util/errors.ts';
import type { Operation } from '../compile/operations.ts';
import { type ChunkGather, type ChunkGatherOperation, chunkGathersIn } from '../ranks/gather-order.ts';
import type { SimulatedTask } from './clock.ts';
import type { Command, SimulatedLink } from './link.ts';
import type { Machine } from './machine.ts';
import { exchangeSeconds, placeOn, type SimulatedRanks } from './network.ts';

type Behind = readonly (Command | undefined)[];

const known = new WeakMap<readonly Operation[], readonly ChunkGather[]>();

export class SimulatedGathering {
  readonly #link: SimulatedLink;
  readonly #machine: Machine;
  readonly #ranks: SimulatedRanks | undefined;
  readonly #read: (bytes: number, after: Behind) => SimulatedTask | undefined;
  #resident: (chunk: number) => Behind | undefined = () => undefined;
  #gathers: readonly ChunkGather[] = [];
  #turn = 0;
  /** Of the gather whose turn is next, if it has begun, and of what this rank gave in the one before: until it is there. */
  #next: SimulatedTask | undefined;
  #before: SimulatedTask | undefined;
  /** Whether what this rank gave last was on its GPU ahead of its turn. */
  #wasHere = true;

  /** `read`: brings bytes down to the host. */
  constructor(
    link: SimulatedLink,
    machine: Machine,
    ranks: SimulatedRanks | undefined,
    read: (bytes: number, after: Behind) => SimulatedTask | undefined,
  ) {
    this.#link = link;
    this.#machine = machine;
    this.#ranks = ranks;
    this.#read = read;
  }

  /** `resident`: what a chunk is behind that is on the GPU. */
  begin(operations: readonly Operation[], resident: (chunk: number) => Behind | undefined): void {
    const gathers = known.get(operations) ?? chunkGathersIn(operations);
    known.set(operations, gathers);
    this.#gathers = gathers;
    this.#resident = resident;
    this.#turn = 0;
    this.#begin();
  }

  /** `after`: what the chunk is behind here. Returns the command behind which another rank's value is there. */
  run({ label }: ChunkGatherOperation, after: Behind, sendUp: () => Command | undefined): Command | undefined {
    const link = this.#link;
    const gather = at(this.#gathers, this.#turn);
    assert(gather.operation.label === label, `${label} comes in its turn`);
    const task = this.#next ?? this.#give(gather, after);
    let there: Command | undefined;
    if (!this.#isOwn(gather)) {
      link.flush();
      link.wait(task);
      there = sendUp();
    }
    if (this.#before) link.wait(this.#before);
    this.#before = this.#isOwn(gather) ? task : undefined;
    this.#turn++;
    if (this.#turn < this.#gathers.length) this.#begin();
    else {
      link.wait(this.#before);
      this.#before = undefined;
    }
    return there;
  }

  #begin(): void {
    const gather = this.#gathers[this.#turn];
    this.#next = undefined;
    if (!gather) return;
    const after = this.#resident(gather.operation.on.chunk);
    if (this.#isOwn(gather)) this.#wasHere = after !== undefined;
    // Parameters that are sharded change in no other rank's pass before its end; what else is gathered was changed before.
    const isReady = this.#isOwn(gather) ? gather.isReady : this.#ranks?.sharding.stage === 3;
    if (isReady && this.#wasHere) this.#next = this.#give(gather, after ?? []);
  }

  #give(gather: ChunkGather, after: Behind): SimulatedTask {
    const { operation, bytes } = gather;
    const ranks = this.#ranks as SimulatedRanks;
    const link = this.#link;
    const seconds = exchangeSeconds(this.#machine, ranks, operation);
    if (this.#isOwn(gather)) return link.post(seconds, [this.#read(bytes, after)]);
    link.flush();
    return link.post(bytes / this.#machine.link.downBytesPerSecond + seconds, [link.lastCompute]);
  }

  #isOwn({ owner, operation }: ChunkGather): boolean {
    return owner === placeOn(this.#ranks as SimulatedRanks, operation).rank;
  }
}
