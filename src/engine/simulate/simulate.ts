// The executor on a simulated clock: a pass follows its schedule over a machine's resources (arithmetic, the link each
// way, the disk each way) by the rules of run/executor.ts, run/link.ts and run/staging.ts: it is encoded ahead of the
// GPU, values go up and down through staging, what is encoded is submitted when half of staging waits for it, a value
// that is needed is waited for. Pure; needs no GPU and moves nothing.
//
// Invariants: the bytes are those that the executor moves; the seconds of a step are those of its operations and of what
// was waited for, to the last of them. Not modelled: what the CPU spends on encoding, and on copies to and from staging.

import type { ChunkMap } from '../../memory/layout/chunk-map.ts';
import { KINDS } from '../../memory/layout/kinds.ts';
import { bytesBelow, type StashHomes, sharesOf, stashHomes } from '../../memory/tiers/shares.ts';
import { leastDiskChunks, leastHostChunks } from '../../memory/tiers/tier-limits.ts';
import { at } from '../../util/at.ts';
import { formatBytes } from '../../util/bytes.ts';
import { assert, HoldfastError } from '../../util/errors.ts';
import { type Fit, needBelow } from '../compile/fit.ts';
import { type CollectiveOperation, isTransfer, type StashPiece, type TransferOperation } from '../compile/lower.ts';
import type { Completion, Pass } from '../compile/pass.ts';
import type { PassSchedule } from '../compile/schedule.ts';
import { roleIn, spanOf } from '../ranks/collectives.ts';
import { isOwned, onlyOwnerOf } from '../ranks/sharding.ts';
import { readAheadFor } from '../run/warm-up.ts';
import { latest, Resource, type SimulatedTask, type Work, waitedFor } from './clock.ts';
import { type Machine, secondsOn } from './machine.ts';
import { exchangeSeconds, type SimulatedRanks, sentBytes } from './network.ts';
import { SharedPlaces } from './shared-places.ts';
import { SimulatedBelow, SimulatedStashes } from './stashes.ts';
import { SimulatedTiers } from './tiers.ts';

/** Of a step, on average. */
export interface SimulatedStep {
  readonly seconds: number;
  /** Of its operations; the rest of the seconds is `waits`. */
  readonly computeSeconds: number;
  /** What arithmetic stood still for, by what was under way meanwhile. */
  readonly waits: Readonly<Record<Waited, number>>;
  /** Over the network: those that this rank sends. */
  readonly bytes: Readonly<Record<Waited | 'recovery', number>>;
}

export type Waited = Exclude<Work, 'compute'>;

/** Steps until everything repeats itself, and those that count. */
const FIRST_STEPS = 2;
const COUNTED_STEPS = 2;

/** A command on the GPU; it has a task once it is submitted. */
interface Command {
  readonly work: 'compute' | 'up' | 'down' | 'network';
  readonly seconds: number;
  readonly after: readonly (Command | undefined)[];
  task: SimulatedTask | undefined;
}

/** What comes down in one turn. */
interface Store {
  readonly ids: readonly number[];
  readonly phase: number | undefined;
  readonly behind: readonly Store[];
  readonly arrived: (() => void) | undefined;
  done: SimulatedTask | undefined;
}

/** A chunk on the GPU. */
interface Resident {
  readonly slot: number;
  /** What brought it, what used it last, and the copies of it that went down since it changed. */
  load: Command | undefined;
  use: Command | undefined;
  stores: Command[];
  dirty: boolean;
}

interface Sent {
  readonly id: number;
  readonly bytes: number;
  readonly after: readonly (Command | undefined)[];
}

/**
 * A step of a pass that is repeated, within `hostBytes` of host memory and the machine's disk; of a pass with collectives, as
 * the first of `ranks` does it. Errors: HoldfastError
 * where what is not on the GPU fits into neither.
 */
export function simulate(
  fit: Fit,
  pass: Pass,
  schedule: PassSchedule,
  machine: Machine,
  hostBytes = Number.POSITIVE_INFINITY,
  ranks?: SimulatedRanks,
): SimulatedStep {
  return new Simulation(fit, pass, schedule, machine, hostBytes, ranks).run();
}

const nothing = (): Record<Work, number> => ({ compute: 0, up: 0, down: 0, network: 0, diskRead: 0, diskWrite: 0 });

class Simulation {
  readonly #map: ChunkMap;
  readonly #pass: Pass;
  readonly #schedule: PassSchedule;
  readonly #machine: Machine;
  readonly #fit: Fit;
  readonly #ranks: SimulatedRanks | undefined;
  readonly #tiers: SimulatedBelow;
  readonly #readAhead: number;
  readonly #places: SharedPlaces<Command>;
  /** Seconds of each operation. */
  readonly #seconds: Float64Array;
  readonly #completions: ReadonlyMap<number, Completion>;
  /** What the plan brings, in its order. */
  readonly #loads: readonly { readonly moment: number; readonly id: number }[];

  readonly #queues: Readonly<Record<Command['work'], Resource>>;
  /** What the CPU waited for last. */
  #now: SimulatedTask | undefined;
  #lastCompute: SimulatedTask | undefined;
  #unsent: Command[] = [];
  #unsentStores: Store[] = [];
  readonly #stores: Store[] = [];
  #storing = 0;
  #unsentDown = 0;
  /** Staging on the way up: what each free buffer is free behind, and those that are filled. */
  readonly #emptying: (SimulatedTask | undefined)[];
  #filled = 0;

  readonly #residents = new Map<number, Resident>();
  readonly #freeSlots: number[] = [];
  readonly #lastSlot = new Map<number, number>();
  /** By slot: whose bytes are in it, and what used it last. */
  readonly #bytesOf = new Map<number, number>();
  readonly #usedBy = new Map<number, readonly (Command | undefined)[]>();

  #step = 0;
  #base = 0;
  #waits = nothing();
  #compute = 0;
  #up = 0;
  #down = 0;
  #recovery = 0;
  #sent = 0;
  /** What was encoded last of arithmetic, and what the next of it is behind. */
  #encoded: Command | undefined;
  #awaited: Command | undefined;

  constructor(
    fit: Fit,
    pass: Pass,
    schedule: PassSchedule,
    machine: Machine,
    hostBytes: number,
    ranks: SimulatedRanks | undefined,
  ) {
    const { map, slots, staging, durable } = fit;
    this.#fit = fit;
    this.#ranks = ranks;
    this.#map = map;
    this.#pass = pass;
    this.#schedule = schedule;
    this.#machine = machine;
    const { hostSlots, homes } = sharesBelow(fit, machine, hostBytes);
    const chunksBelow = new SimulatedTiers(hostSlots, (id) => this.#sizeOf(id), machine.disk);
    chunksBelow.nextUse = (id) => this.#nextUse(id);
    this.#tiers = new SimulatedBelow(chunksBelow, new SimulatedStashes(homes, fit.stashes, machine.disk), map.count);
    const shared = new Resource();
    const isSerial = machine.link.copies === 'serial';
    this.#queues = {
      compute: shared,
      up: isSerial ? shared : new Resource(),
      down: isSerial ? shared : new Resource(),
      network: new Resource(),
    };
    this.#emptying = Array.from({ length: staging.up }, () => undefined);
    for (let slot = slots - 1; slot >= 0; slot--) this.#freeSlots.push(slot);
    this.#seconds = Float64Array.from(pass.operations, (operation) => {
      const { owned = 1, arithmetic = 1 } = ranks ?? {};
      return arithmetic * secondsOn(machine, operation, owned);
    });
    const { update } = pass;
    this.#completions = new Map(durable ? update?.completions.map((found) => [found.moment, found]) : []);
    this.#loads = [...schedule.loadsOf]
      .flatMap(([id, moments]) => moments.map((moment) => ({ moment, id })))
      .sort((a, b) => a.moment - b.moment || a.id - b.id);
    const disk = machine.disk && (hostSlots < chunksOf(fit) || homes.onDisk > 0) ? machine.disk : undefined;
    this.#readAhead = disk
      ? readAheadFor(
          map.chunkBytes / disk.readBytesPerSecond,
          this.#seconds.reduce((a, b) => a + b, 0),
          this.#loads.length / schedule.plan.steps,
        )
      : 0;
    const moves = pass.operations.some(isTransfer);
    this.#places = new SharedPlaces(moves ? fit.placements : []);
    // Between steps gradients hold no value.
    const held = map.lists.filter(({ kind }) => KINDS[kind].between !== 'FREE');
    const chunks = held.flatMap(({ first, chunks }) => Array.from({ length: chunks }, (_, i) => first + i));
    this.#tiers.begin(chunks.filter((chunk) => this.#ownerOf(chunk) === 0));
  }

  run(): SimulatedStep {
    const { steps } = this.#schedule.plan;
    for (let i = 0; i < FIRST_STEPS * steps; i++) this.#runStep();
    const before = this.#totals();
    this.#waits = nothing();
    const counted = COUNTED_STEPS * steps;
    for (let i = 0; i < counted; i++) this.#runStep();
    const after = this.#totals();
    const each = (part: keyof typeof after) => (after[part] - before[part]) / counted;
    const { up, down, network, diskRead, diskWrite } = this.#waits;
    return {
      seconds: each('end'),
      computeSeconds: each('compute'),
      waits: {
        up: up / counted,
        down: down / counted,
        network: network / counted,
        diskRead: diskRead / counted,
        diskWrite: diskWrite / counted,
      },
      bytes: {
        up: each('up'),
        down: each('down'),
        network: each('network'),
        recovery: each('recovery'),
        diskRead: each('diskRead'),
        diskWrite: each('diskWrite'),
      },
    };
  }

  #totals() {
    return {
      end: this.#lastCompute?.end ?? 0,
      compute: this.#compute,
      up: this.#up,
      down: this.#down,
      network: this.#sent,
      recovery: this.#recovery,
      diskRead: this.#tiers.readBytes,
      diskWrite: this.#tiers.writtenBytes,
    };
  }

  // ---- The executor -----------------------------------------------------------------------------------

  #runStep(): void {
    const { plan, trace, starts, peakSlots } = this.#schedule;
    const round = this.#step++ % plan.steps;
    this.#base = round * trace.moments.length;
    this.#places.restart();
    const expected = at(starts, round);
    const strangers = [...this.#residents.keys()].filter((chunk) => !expected.has(chunk));
    const isDirty = (chunk: number) => Number(this.#residents.get(chunk)?.dirty ?? false);
    strangers.sort((a, b) => isDirty(b) - isDirty(a) || a - b);
    for (const chunk of strangers.slice(this.#fit.slots - peakSlots)) this.#evict(chunk);
    this.#moment = 0;
    this.#pass.operations.forEach((operation, m) => {
      const moment = at(trace.moments, m);
      for (const chunk of at(plan.moments, this.#base + m).drop) if (this.#residents.has(chunk)) this.#evict(chunk);
      for (const { chunk, mode } of moment.accesses) {
        if (!this.#residents.has(chunk)) this.#bring(chunk, mode === 'overwrite', m);
      }
      this.#flushIfDue();
      switch (operation.op) {
        case 'dispatch': {
          const after = moment.accesses.flatMap(({ chunk, mode }) => {
            const { load, stores } = this.#resident(chunk);
            return mode === 'read' ? [load] : [load, ...stores];
          });
          const operands = Object.values(operation.operands);
          const ready = this.#places.ready(operands);
          const command = this.#encode('compute', at(this.#seconds, m), [...after, ...ready, this.#awaited]);
          this.#encoded = command;
          this.#awaited = undefined;
          this.#places.used(operands, command);
          for (const { chunk, mode } of moment.accesses) {
            const resident = this.#resident(chunk);
            resident.use = command;
            if (mode !== 'read') resident.stores = [];
          }
          break;
        }
        case 'offload':
          this.#offload(operation);
          break;
        case 'fetch':
          this.#fetch(operation, m);
          break;
        case 'collective':
          this.#exchange(operation, m);
          break;
        case 'host':
          throw new Error('internal: a simulated machine has no optimizer on its host');
        default:
          operation satisfies never;
      }
      for (const { chunk, mode } of moment.accesses) if (mode !== 'read') this.#change(chunk);
      for (const chunk of moment.frees) {
        this.#release(chunk);
        if (!this.#fit.durable) this.#tiers.discard(chunk);
      }
      const completion = this.#completions.get(m);
      if (completion) this.#keepBelow(completion, m);
    });
    this.#flush();
  }

  /** What a completed update, or complete gradients, leave below in a durable session. */
  #keepBelow({ chunks: ids, frees, moment }: Completion, m: number): void {
    const isCommit = moment >= (this.#pass.update?.decided ?? 0);
    assert(m === moment, 'a completion has its moment');
    if (!isCommit) this.#discard(frees);
    this.#recovery += ids.length * this.#map.chunkBytes;
    this.#storeChunks(ids, {
      phase: 2 * this.#step + Number(isCommit),
      arrived: isCommit ? () => this.#discard(frees) : undefined,
    });
  }

  #discard(chunks: readonly number[]): void {
    for (const chunk of chunks) this.#tiers.discard(chunk);
  }

  #change(chunk: number): void {
    const resident = this.#resident(chunk);
    if (resident.dirty) return;
    resident.dirty = true;
    if (!this.#fit.durable && !this.#isGoingDown(chunk)) this.#tiers.discard(chunk);
  }

  #evict(chunk: number): void {
    if (this.#resident(chunk).dirty) this.#storeChunks([chunk]);
    this.#release(chunk);
  }

  #release(chunk: number): void {
    const { slot, load, use, stores } = this.#resident(chunk);
    this.#residents.delete(chunk);
    this.#usedBy.set(slot, [load, use, ...stores]);
    this.#freeSlots.push(slot);
  }

  #resident(chunk: number): Resident {
    const found = this.#residents.get(chunk);
    assert(found, `chunk ${chunk} is not on the GPU`);
    return found;
  }

  /** A slot, and whether the chunk's own bytes are in it: its last one if that is free. */
  #takeSlot(chunk: number): { slot: number; same: boolean } {
    const before = this.#freeSlots.lastIndexOf(this.#lastSlot.get(chunk) ?? -1);
    const [slot] = this.#freeSlots.splice(before >= 0 ? before : this.#freeSlots.length - 1, 1);
    assert(slot !== undefined, `no slot is free for chunk ${chunk}`);
    const same = this.#bytesOf.get(slot) === chunk;
    this.#lastSlot.set(chunk, slot);
    this.#bytesOf.set(slot, chunk);
    return { slot, same };
  }

  #bring(chunk: number, overwrite: boolean, moment: number): void {
    const { chunkBytes } = this.#map;
    if (overwrite) {
      const { slot, same } = this.#takeSlot(chunk);
      const used = this.#usedBy.get(slot) ?? [];
      const clear = () => this.#encode('compute', chunkBytes / this.#machine.memoryBytesPerSecond, used);
      const resident: Resident = { slot, load: undefined, use: undefined, stores: [], dirty: false };
      if (same) resident.stores = used.filter((command) => command !== undefined);
      else resident.load = clear();
      this.#residents.set(chunk, resident);
      return;
    }
    this.#awaitBelow(chunk, moment);
    const { slot } = this.#takeSlot(chunk);
    const load = this.#send(this.#sizeOf(chunk), this.#usedBy.get(slot) ?? []);
    this.#residents.set(chunk, { slot, load, use: undefined, stores: [], dirty: false });
  }

  // ---- Activations ------------------------------------------------------------------------------------

  #offload({ tensor, pieces }: TransferOperation): void {
    const written = this.#places.writers(tensor);
    for (const { id, bytes } of pieces) {
      const [copy] = this.#store([{ id, bytes, after: written }]);
      this.#places.leaves(tensor, copy);
    }
  }

  #fetch({ tensor, pieces }: TransferOperation, moment: number): void {
    const free = this.#places.ready([tensor]);
    for (const { id, bytes } of pieces satisfies readonly StashPiece[]) {
      this.#awaitBelow(id, moment);
      this.#places.arrives(tensor, this.#send(bytes, free));
      this.#tiers.discard(id);
    }
  }

  // ---- Between ranks ----------------------------------------------------------------------------------

  #exchange(operation: CollectiveOperation, moment: number): void {
    const ranks = this.#ranks;
    assert(ranks, `${operation.label} waits for other ranks, and there is one here`);
    const { on } = operation;
    const { gives, gets } = roleIn(operation, ranks.sharding.rank);
    const resident = 'chunk' in on ? this.#resident(on.chunk) : undefined;
    const after = resident ? [resident.load, resident.use, ...resident.stores] : [this.#encoded, this.#awaited];
    const done = (command: Command): void => {
      if (resident) resident.load = command;
      else this.#awaited = command;
    };
    const seconds = exchangeSeconds(this.#machine, ranks, operation);
    this.#sent += sentBytes(ranks, operation);
    if (this.#machine.network?.exchange === 'direct') {
      done(this.#encode('network', seconds, after));
      return;
    }
    // Where another has the value, it is read there.
    const reading = this.#read(gives ? spanOf(operation) : 0, after);
    const elsewhere = gives ? 0 : spanOf(operation) / this.#machine.link.downBytesPerSecond;
    this.#wait(reading);
    this.#wait(this.#queues.network.run('network', elsewhere + seconds, [this.#now]));
    for (const bytes of gets ? this.#pieces(spanOf(operation)) : []) {
      this.#roomUp(moment);
      done(this.#send(bytes, after));
    }
  }

  /** Bytes that the host reads on the GPU: it waits for them. */
  #read(bytes: number, after: readonly (Command | undefined)[]): SimulatedTask | undefined {
    let last: Command | undefined;
    for (const piece of this.#pieces(bytes)) {
      while (this.#storing === this.#fit.staging.down) this.#awaitOldest();
      this.#down += piece;
      last = this.#encode('down', piece / this.#machine.link.downBytesPerSecond, after);
      this.#flush();
    }
    return last?.task;
  }

  #pieces(bytes: number): number[] {
    const { chunkBytes } = this.#map;
    return Array.from({ length: Math.ceil(bytes / chunkBytes) }, (_, i) =>
      Math.min(chunkBytes, bytes - i * chunkBytes),
    );
  }

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

  #encode(work: Command['work'], seconds: number, after: readonly (Command | undefined)[]): Command {
    const command: Command = { work, seconds, after, task: undefined };
    this.#unsent.push(command);
    return command;
  }

  #flushIfDue(): void {
    const { up, down } = this.#fit.staging;
    if (this.#filled >= Math.max(1, up >> 1) || this.#unsentDown >= Math.max(1, down >> 1)) this.#flush();
  }

  /** Submits what is encoded: only now does it have its place in time. */
  #flush(): void {
    const submitted = this.#now;
    const tasks = this.#unsent.map((command) => {
      const { work, seconds, after } = command;
      const before = this.#lastCompute;
      const task = this.#queues[work].run(work, seconds, [submitted, ...after.map((other) => other?.task)]);
      command.task = task;
      if (work === 'compute') {
        this.#compute += seconds;
        if (task.start > (before?.end ?? 0)) waitedFor(task, before?.end ?? 0, this.#waits);
        this.#lastCompute = task;
      }
      return task;
    });
    this.#unsent = [];
    const end = latest(tasks.filter(({ work }) => work !== 'network'));
    // A buffer is mapped again when all that was submitted with it is done.
    for (; this.#filled > 0; this.#filled--) this.#emptying.push(end);
    this.#unsentDown = 0;
    for (const store of this.#unsentStores) {
      const put = store.ids.map((id) => (end ? this.#tiers.put(id, end) : undefined));
      store.done = latest([...put, ...store.behind.map(({ done }) => done)]);
      store.arrived?.();
    }
    this.#unsentStores = [];
  }

  #wait(task: SimulatedTask | undefined): void {
    this.#now = latest([this.#now, task]);
  }

  #send(bytes: number, after: readonly (Command | undefined)[]): Command {
    this.#up += bytes;
    this.#filled++;
    return this.#encode('up', bytes / this.#machine.link.upBytesPerSecond, after);
  }

  #storeChunks(ids: readonly number[], options?: Pick<Store, 'phase' | 'arrived'>): void {
    const sent = ids.map((id): Sent => {
      const { load, use } = this.#resident(id);
      return { id, bytes: this.#sizeOf(id), after: [load, use] };
    });
    const copies = this.#store(sent, options);
    ids.forEach((id, i) => {
      const resident = this.#resident(id);
      resident.dirty = false;
      resident.stores.push(at(copies, i));
    });
  }

  #store(values: readonly Sent[], { phase, arrived }: Partial<Pick<Store, 'phase' | 'arrived'>> = {}): Command[] {
    while (this.#fit.staging.down - this.#storing < values.length) this.#awaitOldest();
    this.#storing += values.length;
    const commands = values.map(({ bytes, after }) => {
      this.#down += bytes;
      return this.#encode('down', bytes / this.#machine.link.downBytesPerSecond, after);
    });
    this.#unsentDown += values.length;
    const ids = values.map(({ id }) => id);
    const behind = this.#stores.filter(
      (older) =>
        older.ids.some((id) => ids.includes(id)) ||
        (phase !== undefined && older.phase !== undefined && older.phase !== phase),
    );
    const store: Store = { ids, phase, behind, arrived, done: undefined };
    this.#stores.push(store);
    this.#unsentStores.push(store);
    return commands;
  }

  #awaitOldest(): void {
    const oldest = this.#stores.shift();
    assert(oldest, 'staging is in use, but nothing is on its way down');
    this.#flush();
    this.#wait(oldest.done);
    this.#storing -= oldest.ids.length;
  }

  #newestOf(id: number): Store | undefined {
    return this.#stores.findLast(({ ids }) => ids.includes(id));
  }

  #isGoingDown(id: number): boolean {
    const store = this.#newestOf(id);
    return store !== undefined && (!store.done || store.done.end > (this.#now?.end ?? 0));
  }

  /** Waits until a value below can be sent up: it has arrived there, there is room for it, it was read. */
  #awaitBelow(id: number, moment: number): void {
    const store = this.#newestOf(id);
    if (store) {
      if (!store.done) this.#flush();
      this.#wait(store.done);
    }
    this.#roomUp(moment);
    this.#wait(this.#tiers.fetch(id, this.#now));
  }

  #roomUp(moment: number): void {
    this.#fetchAhead(moment);
    if (this.#filled === this.#fit.staging.up) this.#flush();
    this.#wait(this.#emptying.shift());
  }

  // ---- Below ------------------------------------------------------------------------------------------

  #moment = 0;

  #nextUse(id: number): number {
    const loads = this.#schedule.loadsOf.get(id);
    if (!loads) return Number.POSITIVE_INFINITY;
    const now = this.#base + this.#moment;
    return loads.find((load) => load > now) ?? at(loads, 0) + this.#schedule.plan.moments.length;
  }

  #fetchAhead(moment: number): void {
    this.#moment = moment;
    if (this.#readAhead === 0) return;
    const first = this.#loads.findIndex((load) => load.moment > this.#base + moment);
    let ahead = this.#readAhead;
    for (let i = 0; i < this.#loads.length && ahead > 0; i++) {
      const { id } = at(this.#loads, (Math.max(0, first) + i) % this.#loads.length);
      if (this.#residents.has(id) || this.#isGoingDown(id)) continue;
      this.#tiers.prefetch(id, this.#now);
      ahead--;
    }
  }
}

/** Chunks that may lie below: on one of several ranks, those that it has at once. */
const chunksOf = ({ workload, map, residents }: Fit): number => (workload.isShared ? residents : map.count);

/** Chunks that host memory holds, and where activations lie. Errors: HoldfastError where it and the disk are too small, with what would do. */
function sharesBelow(fit: Fit, { disk }: Machine, hostBytes: number): { hostSlots: number; homes: StashHomes } {
  const { map, slots, residents, stashes } = fit;
  const need = { ...needBelow(fit), chunks: chunksOf(fit), updates: false };
  const count = Math.max(need.chunks, 1);
  const isWhole = slots >= residents && stashes.length === 0;
  const shares = isWhole ? undefined : sharesOf(need, { host: hostBytes, disk: disk?.bytes ?? 0 });
  const homes = stashHomes(stashes, shares?.stashes ?? { host: 0, disk: 0 });
  if (isWhole && homes) return { hostSlots: count, homes };
  const held = Math.min(count, Math.floor((shares?.chunks.host ?? 0) / map.chunkBytes));
  const blocks = Math.floor((shares?.chunks.disk ?? 0) / map.chunkBytes);
  const hasDisk = disk !== undefined;
  if (!homes || held < leastHostChunks(count, hasDisk) || blocks < leastDiskChunks(count, held, map.largestPut)) {
    const all = bytesBelow(need);
    throw new HoldfastError(
      `${formatBytes(all)} lie below the GPU, and there are ${formatBytes(hostBytes)} of host memory` +
        `${disk ? ` and ${formatBytes(disk.bytes)} of disk` : ' and no disk'}; --host-memory ${Math.ceil(all / 1e6)}MB would do`,
    );
  }
  return { hostSlots: held, homes };
}
