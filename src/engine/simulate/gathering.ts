// All-gathers of chunks on the simulated clock, by the rules of run/gathering.ts: the next few are on their way while GPUs compute,
// from all their owners at once, and each is waited for in its turn. Through host memory alone: what goes from GPU to GPU has its place
// in the queue (exchanges.ts).
//
// Other ranks are as this one is: what they have is behind as much arithmetic as was submitted here, and is on their GPUs ahead of
// its turn where what this one gave last was.

import { assert } from '../../util/errors.ts';
import type { Operation } from '../compile/operations.ts';
import {
  type ChunkGather,
  type ChunkGatherOperation,
  chunkGathersIn,
  gatheredAtOnce,
  isChunkGather,
  largestOf,
} from '../ranks/gather-order.ts';
import { latest, Resource, type SimulatedTask } from './clock.ts';
import type { Command, SimulatedLink } from './link.ts';
import type { Machine } from './machine.ts';
import { exchangeSeconds, ownersOf, placeOn, type SimulatedRanks } from './network.ts';

type Behind = readonly (Command | undefined)[];

/** A gather in its pass; of another rank's, `readyFrom` is as in the pass of that rank. */
interface Planned extends ChunkGather {
  readonly isOwn: boolean;
}

interface Begun {
  readonly gather: Planned;
  /** The end of it; absent until its owner gives it. */
  task?: SimulatedTask;
}

const known = new WeakMap<readonly Operation[], readonly Planned[]>();

export class SimulatedGathering {
  readonly #link: SimulatedLink;
  readonly #machine: Machine;
  readonly #ranks: SimulatedRanks | undefined;
  readonly #read: (bytes: number, after: Behind) => SimulatedTask | undefined;
  /** The links of the others, by rank. */
  readonly #senders = new Map<number, Resource>();
  #resident: (chunk: number) => Behind | undefined = () => undefined;
  #gathers: readonly Planned[] = [];
  #turn = 0;
  #begun: Begun[] = [];
  /** Of what this rank gave in the gather before: until it is there. */
  #before: SimulatedTask | undefined;
  #ahead = 1;
  /** Ranks that send at once what is one owner's in the fit. */
  #together = 1;
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
    const ranks = this.#ranks;
    const gathers = ranks ? (known.get(operations) ?? plannedIn(operations, ranks)) : [];
    known.set(operations, gathers);
    this.#gathers = gathers;
    this.#resident = resident;
    this.#turn = 0;
    if (!ranks || gathers.length === 0) return;
    const { size, splits, sharding } = ranks;
    const ahead = Math.max(1, gatheredAtOnce(size, splits * gathers.length, largestOf(gathers) / splits) - 1);
    this.#ahead = Math.max(1, Math.floor(ahead / splits));
    this.#together = Math.max(1, Math.min(ownersOf(ranks), ahead / Math.min(sharding.size, this.#ahead)));
    this.#beginNext();
  }

  /** `after`: what the chunk is behind here. Returns the command behind which another rank's value is there. */
  run({ label }: ChunkGatherOperation, after: Behind, sendUp: () => Command | undefined): Command | undefined {
    const link = this.#link;
    const begun = this.#begun.shift();
    assert(begun?.gather.operation.label === label, `${label} comes in its turn`);
    const { gather } = begun;
    const task = begun.task ?? this.#give(gather, after);
    let there: Command | undefined;
    if (!gather.isOwn) {
      link.flush();
      link.wait(task);
      there = sendUp();
    }
    link.wait(this.#before);
    this.#before = gather.isOwn ? task : undefined;
    this.#turn++;
    if (this.#turn < this.#gathers.length) this.#beginNext();
    else {
      link.wait(this.#before);
      this.#before = undefined;
    }
    return there;
  }

  #beginNext(): void {
    while (this.#begun.length < this.#ahead) {
      const gather = this.#gathers[this.#turn + this.#begun.length];
      if (!gather) break;
      this.#begun.push({ gather });
    }
    /** Owners of which one is not ready: what they own behind it waits. */
    const late = new Set<number>();
    for (const begun of this.#begun) {
      const { gather } = begun;
      const { isOwn, owner, readyFrom, operation } = gather;
      if (begun.task || late.has(owner)) continue;
      const after = this.#resident(operation.on.chunk);
      const isReady = readyFrom <= this.#turn;
      if (isOwn && isReady) this.#wasHere = after !== undefined;
      if (isReady && this.#wasHere) begun.task = this.#give(gather, after ?? []);
      else late.add(owner);
    }
  }

  #give(gather: Planned, after: Behind): SimulatedTask {
    const { operation, bytes, isOwn, owner } = gather;
    const ranks = this.#ranks as SimulatedRanks;
    const link = this.#link;
    const seconds = exchangeSeconds(this.#machine, ranks, operation) / this.#together;
    if (isOwn) return link.postOneWay('out', seconds, [this.#read(bytes, after)]);
    link.flush();
    const sender = this.#senders.get(owner) ?? new Resource();
    this.#senders.set(owner, sender);
    const reading = bytes / this.#machine.link.downBytesPerSecond / this.#together;
    const sent = sender.run('network', reading + seconds, [link.now, link.lastCompute]);
    // One of those that it sends to takes its part of the time.
    const taken = link.postOneWay('in', (seconds * this.#together) / (ranks.size - 1), [link.lastCompute]);
    return latest([sent, taken]) as SimulatedTask;
  }
}

/** Chunks of other ranks change there where those of this one do. */
function plannedIn(operations: readonly Operation[], ranks: SimulatedRanks): Planned[] {
  const gathers = chunkGathersIn(operations);
  const updatedFrom: number[] = [];
  let from = 0;
  for (const operation of operations) {
    if (isChunkGather(operation)) updatedFrom.push(from);
    else if (operation.phase === 'update' && operation.op !== 'collective') from = updatedFrom.length + 1;
  }
  return gathers.map((gather, i) => {
    const isOwn = gather.owner === placeOn(ranks, gather.operation).rank;
    return { ...gather, isOwn, readyFrom: isOwn ? gather.readyFrom : (updatedFrom[i] ?? 0) };
  });
}
