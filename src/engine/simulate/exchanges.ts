// Exchanges between ranks on the simulated clock, by the rules of run/exchanges.ts: what others need of a value is read, exchanged
// and what became of it sent up again, or it goes from GPU to GPU (machine.ts). Chunks that are gathered through host memory are
// gathering.ts's affair, what an exchange takes network.ts's, which value it is about simulation.ts's.
//
// Invariant: bytes that are sent are those of the plan.

import { at } from '../../util/at.ts';
import { assert } from '../../util/errors.ts';
import type { CollectiveOperation, Operation } from '../compile/operations.ts';
import { bytesOverLink, roleIn, spanOf } from '../ranks/collectives.ts';
import { isChunkSum, isGiven } from '../ranks/exchange-memory.ts';
import { isChunkGather, valuesAtOnce } from '../ranks/gather-order.ts';
import { latest, type SimulatedTask } from './clock.ts';
import { SimulatedGathering } from './gathering.ts';
import type { Command, SimulatedLink } from './link.ts';
import type { Machine } from './machine.ts';
import { exchangeSeconds, ownersOf, placeOn, type SimulatedRanks, sentBytes } from './network.ts';
import type { SimulatedPipeline } from './pipeline.ts';

export class SimulatedExchanges {
  /** Bytes that this rank sent so far. */
  sentBytes = 0;
  readonly #link: SimulatedLink;
  readonly #machine: Machine;
  readonly #pieceBytes: number;
  readonly #ranks: SimulatedRanks | undefined;
  readonly #pipeline: SimulatedPipeline | undefined;
  readonly #gathering: SimulatedGathering;
  /** Until others have what this rank gave to sums. */
  readonly #given: SimulatedTask[] = [];

  /** `pipeline`: where it is of a stage. */
  constructor(
    link: SimulatedLink,
    machine: Machine,
    pieceBytes: number,
    ranks: SimulatedRanks | undefined,
    pipeline: SimulatedPipeline | undefined,
  ) {
    this.#link = link;
    this.#machine = machine;
    this.#pieceBytes = pieceBytes;
    this.#ranks = ranks;
    this.#pipeline = pipeline;
    this.#gathering = new SimulatedGathering(link, machine, ranks, (bytes, after) => this.#read(bytes, after));
  }

  /** Begins a pass. `resident`: what a chunk is behind that is on the GPU. */
  begin(
    operations: readonly Operation[],
    resident: (chunk: number) => readonly (Command | undefined)[] | undefined,
  ): void {
    if (!this.#isDirect) this.#gathering.begin(operations, resident);
  }

  /**
   * `after`: what the value is behind on the GPU; `roomUp` waits until staging has room for a piece. Returns the command behind
   * which the new value is there, if there is one. Yields where other stages must be followed first.
   */
  *run(
    operation: CollectiveOperation,
    after: readonly (Command | undefined)[],
    roomUp: () => void,
  ): Generator<undefined, Command | undefined> {
    const ranks = this.#ranks;
    assert(ranks, `${operation.label} waits for other ranks, and there is one here`);
    this.sentBytes += sentBytes(ranks, operation);
    const { collective } = operation;
    if (collective === 'send') {
      this.#send(ranks, operation, after);
      return undefined;
    }
    const link = this.#link;
    if (collective === 'receive') {
      const task = yield* this.#receive(ranks, operation);
      if (this.#isDirect) return { work: 'network', seconds: 0, after: [], task };
      link.flush();
      link.wait(task);
      return this.#sendUp(spanOf(operation), after, roomUp);
    }
    const seconds = exchangeSeconds(this.#machine, ranks, operation);
    if (this.#isDirect) {
      const others = yield* this.#meet(ranks, operation, after);
      return link.encode('network', seconds, [...after, ...others]);
    }
    if (isChunkGather(operation)) {
      const sendUp = () => this.#sendUp(spanOf(operation), after, roomUp);
      return this.#gathering.run(operation, after, sendUp);
    }
    if (isChunkSum(operation)) return this.#sum(ranks, operation, after, roomUp);
    const { rank } = placeOn(ranks, operation);
    const { gives, gets } = roleIn(operation, rank);
    const { down, up } = bytesOverLink(operation, rank);
    // Where another has the value, it is read there.
    const reading = gives ? this.#read(down, after) : undefined;
    const elsewhere = gives ? 0 : spanOf(operation) / this.#machine.link.downBytesPerSecond;
    link.flush();
    link.wait(reading);
    for (const { task } of yield* this.#meet(ranks, operation, [])) link.wait(task);
    link.wait(link.post(elsewhere + seconds));
    return gets ? this.#sendUp(up, after, roomUp) : undefined;
  }

  /** What others add up is on its way while the GPU goes on, as long as there is room for it; what this rank adds up is waited for. */
  #sum(
    ranks: SimulatedRanks,
    operation: CollectiveOperation,
    after: readonly (Command | undefined)[],
    roomUp: () => void,
  ): Command | undefined {
    const link = this.#link;
    const bytes = spanOf(operation);
    const seconds = exchangeSeconds(this.#machine, ranks, operation);
    if (isGiven(operation, placeOn(ranks, operation))) {
      const most = valuesAtOnce(ranks.size, bytes / ranks.splits) / ranks.splits;
      while (this.#given.length >= Math.max(1, most)) link.wait(this.#given.shift());
      this.#given.push(link.postOneWay('out', seconds / (ranks.size - 1), [this.#read(bytes, after)]));
      return undefined;
    }
    link.wait(this.#read(bytes, after));
    link.wait(link.postOneWay('in', seconds / ownersOf(ranks)));
    return this.#sendUp(bytes, after, roomUp);
  }

  get #isDirect(): boolean {
    return this.#machine.network?.exchange === 'direct';
  }

  /** Nothing waits for it to arrive. */
  #send(ranks: SimulatedRanks, operation: CollectiveOperation, after: readonly (Command | undefined)[]): void {
    const seconds = exchangeSeconds(this.#machine, ranks, operation);
    const [from, to] = [placeOn(ranks, operation).rank, at(operation.parts, 0).owner];
    if (this.#isDirect) {
      const { task } = this.#submitted(this.#link.encode('network', seconds, after));
      assert(task, 'what is submitted has its time');
      this.#others.send(from, to, task);
      return;
    }
    this.#link.wait(this.#read(spanOf(operation), after));
    this.#others.send(from, to, this.#link.post(seconds));
  }

  *#receive(ranks: SimulatedRanks, operation: CollectiveOperation): Generator<undefined, SimulatedTask> {
    const [from, to] = [at(operation.parts, 0).owner, placeOn(ranks, operation).rank];
    for (;;) {
      const task = this.#others.take(from, to);
      if (task) return task;
      yield;
    }
  }

  /** Ranks that are alike come to an exchange at once; stages do not. */
  *#meet(
    ranks: SimulatedRanks,
    operation: CollectiveOperation,
    after: readonly (Command | undefined)[],
  ): Generator<undefined, Command[]> {
    const { axis } = operation;
    if (axis !== 'pipeline' && axis !== 'ends') return [];
    const { rank = 0, size = 1 } = ranks.stage ?? {};
    if (this.#isDirect) this.#link.flush();
    const since = latest([this.#isDirect ? undefined : this.#link.now, ...after.map((each) => each?.task)]);
    const key = this.#others.arrive(rank, axis, since?.end ?? 0);
    for (;;) {
      const task = this.#others.met(key, axis === 'ends' ? 2 : size);
      if (task) return [{ work: 'network', seconds: 0, after: [], task }];
      yield;
    }
  }

  get #others(): SimulatedPipeline {
    assert(this.#pipeline, 'stages are followed together');
    return this.#pipeline;
  }

  #submitted(command: Command): Command {
    this.#link.flush();
    return command;
  }

  #sendUp(bytes: number, after: readonly (Command | undefined)[], roomUp: () => void): Command | undefined {
    let there: Command | undefined;
    for (const piece of this.#pieces(bytes)) {
      roomUp();
      there = this.#link.send(piece, after);
    }
    return there;
  }

  /** Bytes that the host reads on the GPU: it waits for them. */
  #read(bytes: number, after: readonly (Command | undefined)[]): SimulatedTask | undefined {
    let last: Command | undefined;
    for (const piece of this.#pieces(bytes)) last = this.#link.read(piece, after);
    return last?.task;
  }

  #pieces(bytes: number): number[] {
    return Array.from({ length: Math.ceil(bytes / this.#pieceBytes) }, (_, i) =>
      Math.min(this.#pieceBytes, bytes - i * this.#pieceBytes),
    );
  }
}
