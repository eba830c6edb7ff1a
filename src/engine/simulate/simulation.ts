// The executor on a simulated clock: a pass follows its schedule over a machine's resources (arithmetic, the link each
// way, the disk each way) by the rules of run/executor.ts, run/link.ts and run/staging.ts: it is encoded ahead of the
// GPU, values go up and down through staging, what is encoded is submitted when half of staging waits for it, a value
// that is needed is waited for, and so is an update on the host. Pure; needs no GPU and moves nothing.
//
// Invariants: the bytes are those that the executor moves; the seconds of a step are those of its operations and of what
// was waited for, to the last of them. Not modelled: what the CPU spends on encoding, and on copies to and from staging.

import type { ChunkMap } from '../../memory/layout/chunk-map.ts';
import { KINDS } from '../../memory/layout/kinds.ts';
import { NO_CHANGES } from '../../memory/plan/extra-slots.ts';
import { changedIn, type Moment } from '../../memory/plan/trace.ts';
import { at } from '../../util/at.ts';
import { assert } from '../../util/errors.ts';
import { needBelow, updatesAhead, updatesAside } from '../compile/candidate.ts';
import type { Fit } from '../compile/fitted.ts';
import { type Keep, KeepQueue } from '../compile/keep-queue.ts';
import { movesAt } from '../compile/moves.ts';
import {
  type CollectiveOperation,
  type DispatchOperation,
  type HostOperation,
  isOnHost,
  isTransfer,
} from '../compile/operations.ts';
import type { Completion, Pass } from '../compile/pass.ts';
import { changesAt, leavesAt, type PassSchedule, readAheadFor, strangersToLeave } from '../compile/schedule.ts';
import { SlotTable } from '../compile/slot-table.ts';
import { isOwned, onlyOwnerOf } from '../ranks/sharding.ts';
import { ComingLoads } from './coming-loads.ts';
import { SimulatedExchanges } from './exchanges.ts';
import { SimulatedHostOptimizer } from './host-optimizer.ts';
import { type Command, type Leaving, SimulatedLink, type SimulatedStoreOptions } from './link.ts';
import { type Machine, secondsOfEach } from './machine.ts';
import { awaitBelow, SimulatedActivations } from './moved-activations.ts';
import type { SimulatedRanks } from './network.ts';
import type { SimulatedPipeline } from './pipeline.ts';
import { SharedPlaces } from './shared-places.ts';
import { divideBelow, sharesBelow } from './shares-below.ts';
import { SimulatedSlots } from './slots.ts';
import { SimulatedBelow, SimulatedStashes } from './stashes.ts';
import { averageStep, type SimulatedStep, type Totals } from './step.ts';
import { SimulatedTiers } from './tiers.ts';

/** What one rank follows. */
export interface SimulatedPart {
  readonly fit: Fit;
  readonly pass: Pass;
  readonly schedule: PassSchedule;
  readonly hostBytes: number;
  readonly ranks?: SimulatedRanks | undefined;
  /** Whether the disk is read ahead of what is needed. @default true */
  readonly prefetch?: boolean | undefined;
  /** Whether copies of what is on the GPU take room below it also where all is there. @default false */
  readonly copiesLie?: boolean | undefined;
  /** Whether updates on the host may begin before a step is decided, where there is room. @default false */
  readonly beginsAhead?: boolean | undefined;
  /** Told of what lies below, behind each operation. @default nothing is */
  readonly watch?: ((below: SimulatedBelow) => void) | undefined;
}

/** A pass on one rank, from step to step. */
export class Simulation {
  readonly #map: ChunkMap;
  readonly #pass: Pass;
  readonly #schedule: PassSchedule;
  readonly #machine: Machine;
  readonly #fit: Fit;
  readonly #ranks: SimulatedRanks | undefined;
  readonly #tiers: SimulatedBelow;
  readonly #readAhead: number;
  readonly #watch: SimulatedPart['watch'];
  readonly #places: SharedPlaces<Command>;
  readonly #activations: SimulatedActivations;
  /** Seconds of each operation, on the GPU or on the host. */
  readonly #seconds: Float64Array;
  readonly #completions: ReadonlyMap<number, Completion>;
  readonly #coming: ComingLoads;

  readonly #link: SimulatedLink;
  readonly #slots: SimulatedSlots;
  readonly #exchanges: SimulatedExchanges;
  readonly #host: SimulatedHostOptimizer;
  readonly #keeps = new KeepQueue<Keep & { readonly options: SimulatedStoreOptions }>();

  #step = 0;
  #base = 0;
  #recovery = 0;
  /** What was encoded last of arithmetic, and what the next of it is behind. */
  #encoded: Command | undefined;
  #awaited: Command | undefined;
  /** What must be done before activations lie where extra slots were. */
  readonly #left: (Command | undefined)[] = [];

  constructor(
    { fit, pass, schedule, hostBytes, ranks, prefetch = true, beginsAhead = false, copiesLie, watch }: SimulatedPart,
    machine: Machine,
    pipeline?: SimulatedPipeline,
  ) {
    const { map, slots, staging, durable } = fit;
    [this.#fit, this.#map, this.#pass, this.#schedule] = [fit, map, pass, schedule];
    [this.#ranks, this.#machine, this.#watch] = [ranks, machine, watch];
    const { hostSlots, beside, homes } = copiesLie
      ? divideBelow(fit, machine.disk?.bytes, hostBytes)
      : sharesBelow(fit, machine, hostBytes);
    const chunksBelow = new SimulatedTiers(hostSlots, (id) => this.#sizeOf(id), machine.disk);
    chunksBelow.nextUse = (id) => this.#nextUse(id);
    this.#tiers = new SimulatedBelow(chunksBelow, new SimulatedStashes(homes, fit.stashes, machine.disk), map.count);
    this.#link = new SimulatedLink(machine, staging, (id, behind, bytes) => this.#tiers.put(id, behind, bytes));
    this.#exchanges = new SimulatedExchanges(this.#link, machine, map.chunkBytes, ranks, pipeline);
    this.#slots = new SimulatedSlots(
      new SlotTable(
        slots,
        fit.extra.map(({ arena }) => arena),
        map.count,
      ),
      map.count,
    );
    this.#seconds = secondsOfEach(machine, pass.operations, ranks);
    const ahead = beginsAhead && durable && updatesAhead(fit) ? beside : undefined;
    const onHost = { aside: updatesAside(fit), operations: pass.operations, seconds: this.#seconds, ahead };
    this.#host = new SimulatedHostOptimizer(this.#link, this.#tiers, onHost);
    const { update } = pass;
    this.#completions = new Map(durable ? update?.completions.map((found) => [found.moment, found]) : []);
    this.#coming = new ComingLoads(schedule);
    const isOnDisk = hostSlots < needBelow(fit).held || homes.onDisk > 0;
    const disk = prefetch && isOnDisk ? machine.disk : undefined;
    this.#readAhead = disk
      ? readAheadFor(
          map.chunkBytes / disk.readBytesPerSecond,
          this.#seconds.reduce((a, b) => a + b, 0),
          this.#coming.count / schedule.plan.steps,
          pass.operations.some(isOnHost),
        )
      : 0;
    const moves = pass.operations.some(isTransfer);
    this.#places = new SharedPlaces(moves ? fit.placements : []);
    this.#activations = new SimulatedActivations(this.#link, this.#tiers, this.#places);
    // Between steps gradients hold no value.
    const held = map.lists.filter(({ kind }) => KINDS[kind].between !== 'FREE');
    const chunks = held.flatMap(({ first, chunks }) => Array.from({ length: chunks }, (_, i) => first + i));
    this.#tiers.begin(chunks.filter((chunk) => this.#ownerOf(chunk) === 0));
  }

  /** Steps that count, behind so many. Yields where other stages must be followed first. */
  *follow(counted: number, behind = counted): Generator<undefined, SimulatedStep> {
    for (let i = 0; i < behind; i++) yield* this.runStep();
    const before = this.#totals();
    this.#link.takeWaits();
    for (let i = 0; i < counted; i++) yield* this.runStep();
    return averageStep(before, this.#totals(), this.#link.takeWaits(), counted);
  }

  #totals(): Totals {
    return {
      ...this.#link.totals,
      network: this.#exchanges.sentBytes,
      recovery: this.#recovery,
      diskRead: this.#tiers.readBytes,
      diskWrite: this.#tiers.writtenBytes,
    };
  }

  // ---- The executor -----------------------------------------------------------------------------------

  /** Seconds to the end of the last arithmetic. */
  get end(): number {
    return this.#link.end;
  }

  /** A step; not to its end where that is behind so many seconds from the beginning. */
  *runStep(until = Number.POSITIVE_INFINITY): Generator<undefined, void> {
    const { plan, trace } = this.#schedule;
    const round = this.#step++ % plan.steps;
    this.#base = round * trace.moments.length;
    this.#places.restart();
    this.#host.restart();
    this.#exchanges.begin(this.#pass.operations, this.#resident);
    const isDirty = (chunk: number) => this.#slots.get(chunk).dirty;
    const leaving = strangersToLeave(this.#schedule, round, this.#slots.chunks, this.#fit.slots, isDirty);
    for (const chunk of leaving) this.#evict(chunk);
    this.#moment = 0;
    const { known, onHost } = this.#pass.update ?? {};
    for (const [m, operation] of this.#pass.operations.entries()) {
      if (this.#link.end >= until) return;
      const moment = at(trace.moments, m);
      if (m === known && onHost !== undefined) {
        this.#keep(this.#keeps.all());
        this.#host.markDecision();
      }
      const moves = movesAt(this.#pass, m);
      for (const move of moves.down) this.#activations.offload(move);
      const { drop, load } = at(plan.moments, this.#base + m);
      if (!this.#keeps.isEmpty) this.#keep(this.#keeps.before([...drop, ...changedIn(moment)]));
      if (!this.#keeps.isEmpty) this.#keep(this.#keeps.fitting(this.#roomDown));
      for (const chunk of drop) if (this.#slots.has(chunk)) this.#evict(chunk);
      const changes = changesAt(this.#schedule, this.#fit.extra.length, m);
      if (changes !== NO_CHANGES) {
        const leaves = (chunk: number) => leavesAt(this.#schedule, chunk, this.#base, m);
        this.#left.push(...this.#slots.change(changes, leaves, this.#encoded, this.#copyChunk));
      }
      for (const { chunk, mode } of moment.accesses) {
        if (!this.#slots.has(chunk)) this.#bring(chunk, mode === 'overwrite', m);
      }
      for (const chunk of load) {
        if (!this.#slots.has(chunk) && this.#slots.table.free > 0) this.#bring(chunk, false, m);
      }
      for (const move of moves.up) this.#activations.fetch(move, () => this.#roomUp(m));
      this.#link.flushIfDue();
      switch (operation.op) {
        case 'dispatch':
          this.#compute(operation, moment, m);
          break;
        case 'offload':
        case 'fetch':
          // At the moments of its pieces.
          break;
        case 'collective':
          yield* this.#exchange(operation, m);
          break;
        case 'host':
          this.#updateOnHost(operation, m);
          break;
        default:
          operation satisfies never;
      }
      for (const { chunk, mode } of moment.accesses) if (mode !== 'read') this.#change(chunk);
      for (const chunk of moment.frees) {
        // What the host used need not be here.
        if (this.#slots.has(chunk)) this.#slots.release(chunk);
        if (!this.#fit.durable) this.#tiers.discard(chunk);
      }
      const completion = this.#completions.get(m);
      if (completion && isOnHost(operation)) this.#discard(completion.frees);
      else if (completion) this.#keepBelow(completion, m);
      this.#watch?.(this.#tiers);
    }
    this.#link.flush();
  }

  /** Behind what brought its chunks, copies of those that it changes, and what used the memory of its activations last. */
  #compute(operation: DispatchOperation, { accesses }: Moment, m: number): void {
    const after: (Command | undefined)[] = [];
    for (const { chunk, mode } of accesses) {
      const { load, stores } = this.#slots.get(chunk);
      after.push(load);
      if (mode !== 'read') after.push(...stores);
    }
    const activations = this.#places.usedBy(operation);
    if (activations.length > 0) after.push(...this.#places.ready(activations));
    after.push(...this.#left.splice(0), this.#awaited);
    const command = this.#link.encode('compute', at(this.#seconds, m), after);
    this.#encoded = command;
    this.#awaited = undefined;
    this.#places.used(activations, command);
    for (const { chunk, mode } of accesses) {
      const resident = this.#slots.get(chunk);
      resident.use = command;
      if (mode !== 'read' && resident.stores.length > 0) resident.stores = [];
    }
  }

  /** What a completed update, or complete gradients, leave below in a durable session. */
  #keepBelow({ chunks: ids, frees, moment }: Completion, m: number): void {
    const isCommit = moment >= (this.#pass.update?.decided ?? 0);
    assert(m === moment, 'a completion has its moment');
    if (!isCommit) this.#discard(frees);
    this.#recovery += ids.length * this.#map.chunkBytes;
    const sequence = 2 * this.#step + Number(isCommit);
    const arrived = isCommit ? () => this.#discard(frees) : () => this.#host.gradientsBelow(ids);
    this.#keeps.add({ chunks: ids, frees: isCommit ? frees : [], options: { sequence, arrived } });
    this.#keep(this.#keeps.fitting(this.#roomDown));
  }

  #keep(keeps: Iterable<Keep & { readonly options: SimulatedStoreOptions }>): void {
    for (const { chunks, options } of keeps) this.#storeChunks(chunks, options);
  }

  readonly #roomDown = (): number => this.#link.roomDown;

  #discard(chunks: readonly number[]): void {
    for (const chunk of chunks) this.#tiers.discard(chunk);
  }

  #change(chunk: number): void {
    const resident = this.#slots.get(chunk);
    if (resident.dirty) return;
    resident.dirty = true;
    if (!this.#fit.durable && !this.#link.isGoingDown(chunk)) this.#tiers.discard(chunk);
  }

  #evict(chunk: number): void {
    this.#keep(this.#keeps.before([chunk]));
    if (this.#slots.get(chunk).dirty) this.#storeChunks([chunk]);
    this.#slots.release(chunk);
  }

  /** From one slot to another. */
  readonly #copyChunk = (after: readonly (Command | undefined)[]): Command =>
    this.#link.encode('compute', (2 * this.#map.chunkBytes) / this.#machine.memoryBytesPerSecond, after);

  #bring(chunk: number, overwrite: boolean, moment: number): void {
    const { chunkBytes } = this.#map;
    if (overwrite) {
      const { same, after } = this.#slots.take(chunk, leavesAt(this.#schedule, chunk, this.#base, moment));
      if (same) this.#slots.place(chunk, { stores: after.filter((command) => command !== undefined) });
      else {
        const load = this.#link.encode('compute', chunkBytes / this.#machine.memoryBytesPerSecond, after);
        this.#slots.place(chunk, { load });
      }
      return;
    }
    awaitBelow(chunk, this.#link, this.#tiers, () => this.#roomUp(moment));
    const { after } = this.#slots.take(chunk, leavesAt(this.#schedule, chunk, this.#base, moment));
    this.#slots.place(chunk, { load: this.#link.send(this.#sizeOf(chunk), after) });
  }

  // ---- On the host ------------------------------------------------------------------------------------

  /** The step's first update waits for what went down before the decision. */
  #updateOnHost({ chunks: { gradient, ...updated } }: HostOperation, moment: number): void {
    this.#keep(this.#keeps.before([gradient, ...Object.values(updated)]));
    if (this.#slots.has(gradient) && this.#slots.get(gradient).dirty) this.#storeChunks([gradient]);
    this.#fetchAhead(moment);
    const changed = Object.values(updated);
    for (const chunk of changed) if (this.#slots.has(chunk)) this.#slots.release(chunk);
    this.#host.update(gradient, changed, moment);
  }

  // ---- Between ranks ----------------------------------------------------------------------------------

  *#exchange(operation: CollectiveOperation, moment: number): Generator<undefined, void> {
    const { on } = operation;
    const resident = 'chunk' in on ? this.#slots.get(on.chunk) : undefined;
    const after = resident ? [resident.load, resident.use, ...resident.stores] : [this.#encoded, this.#awaited];
    const there = yield* this.#exchanges.run(operation, after, () => this.#roomUp(moment));
    if (!there) return;
    if (resident) resident.load = there;
    else this.#awaited = there;
  }

  readonly #resident = (chunk: number) => {
    if (!this.#slots.has(chunk)) return undefined;
    const { load, use, stores } = this.#slots.get(chunk);
    return [load, use, ...stores];
  };

  /** The rank that alone has a value: this one, if all have it. */
  #ownerOf(chunk: number): number {
    const { sharding } = this.#ranks ?? {};
    return (sharding && onlyOwnerOf(chunk, this.#map, sharding)) ?? 0;
  }

  /** Of what lies below: what a rank alone has is so much less where there are more of them. */
  #sizeOf(id: number): number {
    const { chunkBytes, count } = this.#map;
    const ranks = this.#ranks;
    return ranks && id < count && isOwned(id, this.#map, ranks.sharding) ? ranks.owned * chunkBytes : chunkBytes;
  }

  // ---- The link ---------------------------------------------------------------------------------------

  #storeChunks(ids: readonly number[], options?: SimulatedStoreOptions): void {
    const sent = ids.map((id): Leaving => {
      const { load, use } = this.#slots.get(id);
      return { id, bytes: this.#sizeOf(id), after: [load, use] };
    });
    const copies = this.#link.store(sent, options);
    ids.forEach((id, i) => {
      const resident = this.#slots.get(id);
      resident.dirty = false;
      resident.stores.push(at(copies, i));
    });
  }

  #roomUp(moment: number): void {
    this.#fetchAhead(moment);
    this.#link.roomUp();
  }

  // ---- Below ------------------------------------------------------------------------------------------

  #moment = 0;

  #nextUse(id: number): number {
    return this.#host.isMade(id) ? Number.POSITIVE_INFINITY : this.#coming.next(id, this.#base + this.#moment);
  }

  #fetchAhead(moment: number): void {
    this.#moment = moment;
    if (this.#readAhead === 0) return;
    let ahead = this.#readAhead;
    for (const id of this.#coming.behind(this.#base + moment)) {
      if (ahead === 0) return;
      if (this.#slots.has(id) || this.#link.isGoingDown(id) || this.#host.isMade(id)) continue;
      this.#tiers.prefetch(id, this.#link.now);
      ahead--;
    }
  }
}
