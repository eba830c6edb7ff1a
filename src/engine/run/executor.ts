// `Executor`: runs a pass by its schedule: it encodes the operations, and between them brings chunks into slots, takes them down
// and clears them. It runs ahead of the GPU: one queue, in order, makes it safe to give an evicted chunk's slot away
// at once. How values move, and what is waited for, is in link.ts; what comes from the tiers below, in scheduled-reads.ts;
// activations that move, in moved-activations.ts.
//
// Invariants: never more chunks than slots (a plan's residents and the strangers beside them are counted); a value
// that exists only on the GPU is copied down before its slot is given away.

import type { Device } from '../../gpu/device.ts';
import { encodeDispatch } from '../../gpu/dispatch.ts';
import type { ChunkMap } from '../../memory/layout/chunk-map.ts';
import { NO_CHANGES } from '../../memory/plan/extra-slots.ts';
import { changedIn } from '../../memory/plan/trace.ts';
import type { Below } from '../../memory/tiers/below.ts';
import { at } from '../../util/at.ts';
import { assert } from '../../util/errors.ts';
import { type Keep, KeepQueue } from '../compile/keep-queue.ts';
import { movesAt } from '../compile/moves.ts';
import type { HostOperation } from '../compile/operations.ts';
import type { Pass } from '../compile/pass.ts';
import { changesAt, leavesAt, type PassSchedule, strangersToLeave } from '../compile/schedule.ts';
import { type CopyPlace, Recorder } from '../observe/recording.ts';
import type { Ranks } from '../ranks/ranks.ts';
import type { Bindings } from './binding.ts';
import type { ChunkCopies } from './copies.ts';
import { Exchanges } from './exchanges.ts';
import { HostOptimizer, type HostUpdating } from './host-optimizer.ts';
import { Link, type Placed, type StoreOptions } from './link.ts';
import { MovedActivations } from './moved-activations.ts';
import { ScheduledReads } from './scheduled-reads.ts';
import { changeSlots } from './slot-changes.ts';
import type { Slots } from './slots.ts';
import type { Staging } from './staging.ts';
import type { Storage } from './storage.ts';

/** What an executor moves values between, and what it goes by. */
export interface ExecutorParts extends HostUpdating {
  readonly device: Device;
  readonly map: ChunkMap;
  readonly storage: Storage;
  readonly slots: Slots;
  readonly copies: ChunkCopies;
  readonly bindings: Bindings;
  readonly staging: Staging;
  readonly below: Below;
  /** Chunks whose reading from disk begins before they are needed. */
  readonly readAhead: number;
  /** Counts on where the executor before this one ended. */
  readonly ledger: Link['ledger'];
  /** For passes with collectives. @default there is one rank */
  readonly ranks?: Ranks['step'] | undefined;
}

/** Chunks whose values are to be kept below. */
interface Kept extends Keep {
  readonly options: StoreOptions;
}

export class Executor {
  /** Which copies of each chunk are valid. */
  readonly copies: ChunkCopies;
  /** Called as soon as the chunks of an index are updated on the host, of operations that run until another pass begins. */
  updated: ((index: number) => void) | undefined;
  /** Set to time each moment in a compute pass of its own. */
  timestamps: ((moment: number) => GPUComputePassTimestampWrites) | undefined;
  readonly #map: ChunkMap;
  readonly #slots: Slots;
  readonly #bindings: Bindings;
  readonly #tiers: Below;
  readonly #link: Link;
  readonly #exchanges: Exchanges;
  readonly #hostOptimizer: HostOptimizer;
  readonly #reads: ScheduledReads;
  readonly #activations: MovedActivations;
  readonly #keeps = new KeepQueue<Kept>();
  #recorder: Recorder | undefined;

  #pass: Pass | undefined;
  #schedule: PassSchedule | undefined;
  #round = 0;
  /** The one that is encoded, or the next one. */
  #moment = 0;
  #nextRounds = new WeakMap<PassSchedule, number>();

  constructor(parts: ExecutorParts) {
    const { device, map, storage, slots, copies, bindings, staging, below, readAhead, ledger, ranks } = parts;
    this.#map = map;
    this.#slots = slots;
    this.copies = copies;
    this.#bindings = bindings;
    this.#tiers = below;
    this.#link = new Link(device, staging, copies, ledger);
    this.#hostOptimizer = new HostOptimizer(parts, map, storage, copies, this.#link);
    this.#exchanges = new Exchanges(this.#link, storage, slots, map.chunkBytes, ranks);
    this.#reads = new ScheduledReads(this.#link, copies, below, readAhead);
    this.#activations = new MovedActivations(this.#link, storage, copies, this.#reads, below.stashes);
  }

  get ledger(): Link['ledger'] {
    return this.#link.ledger;
  }
  /** Bytes of host memory for exchanges with other ranks. */
  get exchangeMemory(): number {
    return this.#exchanges.bytes;
  }

  /** Chunks whose reading from disk begins before they are needed. */
  set readAhead(chunks: number) {
    this.#reads.ahead = chunks;
  }

  /** Records the next runs of a pass, each up to the beginning of another. An earlier recorder gets no more events. */
  startRecording(pass: Pass, runs: number): Recorder {
    const recorder = new Recorder(pass, runs);
    [this.#recorder, this.#link.recorder] = [recorder, recorder];
    this.#tiers.onDisk = (link, chunk) => recorder.transfer(link, [chunk]);
    return recorder;
  }

  /** Begins a pass: what the plan does not expect on the GPU leaves, as far as the plan needs the room. */
  async begin(pass: Pass, schedule: PassSchedule): Promise<void> {
    this.check();
    this.#pass = pass;
    this.#schedule = schedule;
    this.#moment = 0;
    this.#hostOptimizer.begin(pass);
    await this.#exchanges.begin(pass.operations);
    this.updated = undefined;
    this.#round = this.#nextRounds.get(schedule) ?? 0;
    this.#nextRounds.set(schedule, (this.#round + 1) % schedule.plan.steps);
    const residents = this.#slots.residents();
    this.#recorder?.begin(pass, this.#slots.always, this.#link.capacity, residents, this.#below);
    const isDirty = (chunk: number) => this.copies.isDirty(chunk);
    const leaving = strangersToLeave(schedule, this.#round, residents, this.#slots.always, isDirty);
    for (const chunk of leaving) await this.#evict(chunk);
    this.#reads.begin(schedule, this.#round);
  }

  /** Encodes the moments from `from` up to but without `to`. */
  async run(from: number, to: number): Promise<void> {
    const pass = this.#pass as Pass;
    const { name, operations } = pass;
    const schedule = this.#schedule as PassSchedule;
    const { trace, plan } = schedule;
    const { moments } = trace;
    const base = this.#round * moments.length;
    for (this.#moment = from; this.#moment < to; this.#moment++) {
      this.check();
      const m = this.#moment;
      const moment = at(moments, m);
      this.#recorder?.enter(m);
      const moves = movesAt(pass, m);
      for (const move of moves.down) await this.#activations.offload(move);
      if (!this.#keeps.isEmpty) {
        await this.#keep(this.#keeps.before([...at(plan.moments, base + m).drop, ...changedIn(moment)]));
        await this.#keep(this.#keeps.fitting(this.#roomDown));
      }
      for (const chunk of at(plan.moments, base + m).drop) {
        if (this.copies.onGPU(chunk)) await this.#evict(chunk);
      }
      const changes = changesAt(schedule, this.#slots.extra, m);
      if (changes !== NO_CHANGES) {
        const leaves = (chunk: number) => leavesAt(schedule, chunk, base, m);
        await changeSlots(changes, this.#slots, this.copies, this.#link, leaves, () => this.#makeRoom());
      }
      for (const { chunk, mode } of moment.accesses) {
        if (!this.copies.onGPU(chunk)) {
          if (this.#slots.free === 0) await this.#makeRoom();
          await this.#bring(chunk, mode === 'overwrite');
        }
        this.#recorder?.event(m, chunk, 'use');
      }
      for (const chunk of at(plan.moments, base + m).load) {
        // Ahead of its need: where the plan was not followed, there may be no room yet.
        if (!this.copies.onGPU(chunk) && this.#slots.free > 0) await this.#bring(chunk, false);
      }
      for (const move of moves.up) await this.#activations.fetch(move, m);
      this.#link.flushIfDue();
      this.#recorder?.encode(this.#link.staged, this.#slots.among, this.#below);
      const operation = at(operations, m);
      switch (operation.op) {
        case 'dispatch':
          encodeDispatch(this.#link.pass(name, this.timestamps?.(m)), this.#bindings.bind(operation));
          break;
        case 'offload':
        case 'fetch':
          // At the moments of its pieces.
          break;
        case 'collective':
          await this.#exchanges.run(operation);
          break;
        case 'host':
          await this.#updateOnHost(operation, moment.frees);
          break;
        default:
          operation satisfies never;
      }
      for (const { chunk, mode } of moment.accesses) {
        if (mode !== 'read') this.copies.change(chunk);
      }
      for (const chunk of moment.frees) {
        // What the host used need not be here.
        const isHere = this.copies.onGPU(chunk);
        this.copies.free(chunk);
        if (isHere) this.#recorder?.event(m, chunk, 'free');
      }
    }
  }

  /**
   * Copies the values of chunks down, together: they arrive in one turn, behind all that is earlier in their sequence. They stay
   * here, clean. Where staging has no room, that is left for later: until they change, or what they make useless below does.
   */
  async keepBelow(chunks: readonly number[], options: StoreOptions): Promise<void> {
    this.ledger.recoveryBytes += chunks.length * this.#map.chunkBytes;
    this.#recorder?.keep(chunks);
    this.#keeps.add({ chunks, frees: options.frees ?? [], options });
    await this.#keep(this.#keeps.fitting(this.#roomDown));
  }

  /** What is to be called when the gradients in these chunks, of the pass under way, lie below, complete. */
  gradientsSent(chunks: readonly number[]): () => void {
    return this.#hostOptimizer.gradientsSent(chunks);
  }

  /** Submits what is encoded. The step is decided: what the host updates of it waits for what is on its way down by now. */
  async markDecision(): Promise<void> {
    await this.#keep(this.#keeps.all());
    this.#hostOptimizer.markDecision();
  }

  /** What the GPU will have decided of the step: the host need not ask for it. */
  decide(state: Promise<Float32Array>): void {
    this.#hostOptimizer.decide(state);
  }

  /** Records a command outside of passes, behind what was encoded so far. */
  command(encode: (encoder: GPUCommandEncoder) => void, submitted?: () => void): void {
    this.#link.command(encode, submitted);
  }

  /** Submits what is encoded. */
  flush(): void {
    this.#link.flush();
  }

  /** Waits until every value on its way down has arrived. Errors: what went wrong with one of them. */
  async settle(): Promise<void> {
    await this.#keep(this.#keeps.all());
    await this.#link.settle();
  }

  /** Takes down everything: nothing lives on the GPU alone. */
  async empty(): Promise<void> {
    for (const chunk of this.#slots.residents()) await this.#evict(chunk);
    await this.settle();
  }

  /** Ends what runs here with this error, at its next moment or wait, and everything that is begun. */
  stop(reason: unknown): void {
    this.#keeps.clear();
    this.#link.stop(reason);
  }

  /** Throws what went wrong with the device, or with a value on its way down. */
  check(): void {
    this.#link.check();
  }

  /** Waits until nothing on its way down is under way, arrived or lost. */
  async abandon(): Promise<void> {
    await this.#link.abandon();
    await this.#hostOptimizer.abandon();
  }

  /** Brings a chunk whose whole value is given. */
  async upload(chunk: number, bytes: Uint8Array<ArrayBuffer>): Promise<void> {
    this.check();
    await this.#keep(this.#keeps.before([chunk]));
    if (!this.copies.onGPU(chunk)) this.copies.bring(chunk);
    const { buffer, offset, bytes: size } = this.#placed(chunk);
    for (let from = 0; from < size; from += this.#link.pieceBytes) {
      await this.#link.roomUp();
      this.#link.write(buffer, offset + from, bytes.subarray(from, Math.min(from + this.#link.pieceBytes, size)));
      this.#link.flush();
    }
    this.copies.change(chunk);
  }

  /** Whether a chunk has a value anywhere, when what is on its way down has arrived. */
  async exists(chunk: number): Promise<boolean> {
    this.check();
    await this.#link.arrival(chunk);
    return this.copies.exists(chunk);
  }

  /** Bytes of a chunk, from wherever its newest value is. */
  async read(chunk: number, offset: number, into: Uint8Array): Promise<void> {
    this.check();
    await this.#link.arrival(chunk);
    if (this.copies.isDirty(chunk)) {
      const { buffer, offset: start } = this.#slots.range(chunk);
      await this.readBuffer(buffer, start + offset, into.length, (piece, at) => into.set(piece, at));
    } else if (this.copies.below(chunk) === 'zero') into.fill(0);
    else {
      const bytes = this.#tiers.peek(chunk) ?? (await this.#tiers.fetch(chunk));
      into.set(bytes.subarray(offset, offset + into.length));
    }
  }

  /** Reads from any buffer. Waits for the queue. */
  readBuffer(
    source: GPUBuffer,
    offset: number,
    bytes: number,
    use: (piece: Uint8Array, at: number) => void,
  ): Promise<void> {
    return this.#link.read(source, offset, bytes, use);
  }

  // ---- Moving chunks ----------------------------------------------------------------------------------

  async #bring(chunk: number, overwrite: boolean): Promise<void> {
    const schedule = this.#schedule as PassSchedule;
    const leaves = leavesAt(schedule, chunk, this.#round * schedule.trace.moments.length, this.#moment);
    const zero = !overwrite && this.copies.below(chunk) === 'zero';
    if (overwrite || zero) {
      const same = this.copies.bring(chunk, leaves);
      // What is overwritten is so piece by piece, all of it; the padding between must be zero, as it is in its own.
      if (same && !zero) return;
      const { buffer, offset, bytes } = this.#slots.range(chunk);
      this.command((encoder) => encoder.clearBuffer(buffer, offset, bytes));
      this.ledger.clearedBytes += this.#map.chunkBytes;
      this.#recorder?.event(this.#moment, chunk, 'clear');
      return;
    }
    await this.#reads.send(chunk, this.#moment, (bytes) => {
      this.copies.bring(chunk, leaves);
      this.#link.send(this.#placed(chunk), bytes);
    });
    this.#recorder?.event(this.#moment, chunk, 'load');
  }

  async #evict(chunk: number): Promise<void> {
    await this.#keep(this.#keeps.before([chunk]));
    if (this.copies.isDirty(chunk)) await this.#store([chunk]);
    this.copies.drop(chunk);
    this.#recorder?.event(this.#moment, chunk, 'drop');
  }

  /** Only where the plan was not followed from its first moment: the chunk that is needed last leaves. */
  async #makeRoom(): Promise<void> {
    const { moments } = (this.#schedule as PassSchedule).trace;
    const victims = new Set(this.#slots.residents());
    for (let i = 0; i < moments.length && victims.size > 1; i++) {
      for (const { chunk } of moments[(this.#moment + i) % moments.length]?.accesses ?? []) {
        if (i === 0 || victims.size > 1) victims.delete(chunk);
      }
    }
    const [victim] = victims;
    assert(victim !== undefined, `moment ${this.#moment} needs more chunks than there are slots`);
    await this.#evict(victim);
  }

  /** Copies the values of chunks down. They stay here, clean. */
  async #store(chunks: readonly number[], options?: StoreOptions): Promise<void> {
    const placed = chunks.map((chunk) => this.#placed(chunk));
    await this.#link.store(placed, options);
    for (const chunk of chunks) this.#recorder?.event(this.#moment, chunk, 'store');
  }

  async #keep(keeps: Iterable<Kept>): Promise<void> {
    for (const { chunks, options } of keeps) await this.#store(chunks, { ...options, isKept: true });
  }

  readonly #roomDown = (): number => this.#link.roomDown;

  readonly #below = (chunk: number): CopyPlace => this.copies.placeBelow(chunk);

  #placed(chunk: number): Placed {
    return { chunk, ...this.#slots.range(chunk) };
  }

  // ---- On the host ------------------------------------------------------------------------------------

  /** Has chunks updated below the GPU. A gradient that nothing kept below goes down for it. */
  async #updateOnHost(operation: HostOperation, frees: readonly number[]): Promise<void> {
    const { gradient, parameter } = operation.chunks;
    const { updated } = this;
    await this.#keep(this.#keeps.before(Object.values(operation.chunks)));
    if (this.copies.isDirty(gradient)) await this.#store([gradient]);
    this.#reads.start(this.#moment);
    const hadParameter = this.copies.onGPU(parameter);
    await this.#hostOptimizer.run(operation, frees, updated && (() => updated(operation.index)));
    if (hadParameter) this.#recorder?.event(this.#moment, parameter, 'drop');
  }
}
