// Follows schedules: encodes the dispatches of a pass, and between them brings chunks into slots, takes them down
// and clears them. It runs ahead of the GPU: one queue, in order, makes it safe to give an evicted chunk's slot away
// at once. It waits only for staging, for values still on their way down, and for what the tiers below wait for;
// each wait is accounted by its cause.
//
// Invariants: never more chunks than slots (a plan's residents and the strangers beside them are counted); a value
// that exists only on the GPU is copied down before its slot is given away; every byte moved is in the ledger.

import type { Device } from '../gpu/device.ts';
import { encode } from '../gpu/dispatch.ts';
import type { Backing } from '../memory/backing.ts';
import type { ChunkMap } from '../memory/chunk-map.ts';
import { assert } from '../util/errors.ts';
import type { Bindings } from './binding.ts';
import type { Pass } from './pass.ts';
import { type Below, Recorder } from './recording.ts';
import type { Schedule } from './schedule.ts';
import type { Slots } from './slots.ts';
import type { Staging } from './staging.ts';

/** Bytes over the link between host and GPU since the start, and what was waited for, in milliseconds. */
export interface LinkLedger {
  h2dBytes: number;
  d2hBytes: number;
  /** Of d2hBytes: what went down only so that a lost device costs no more than a step. */
  recoveryBytes: number;
  /** Slots filled with zeros on the GPU: nothing moves. */
  clearedBytes: number;
  submits: number;
  waits: {
    /** For room in staging, and for values on their way down. */
    down: number;
    /** For the GPU to take what was sent up. */
    up: number;
    /** For host memory and disk. */
    below: number;
  };
}

/** A value on its way down. */
interface Store {
  readonly chunks: readonly number[];
  readonly buffers: readonly GPUBuffer[];
  /** What must have arrived before: older values of the same chunks, and what earlier phases keep below. */
  readonly behind: readonly Store[];
  /** Of those that are kept below. */
  readonly phase: number | undefined;
  /** For the recorder. */
  readonly ended: (() => void) | undefined;
  /** What to do when the value has arrived below. */
  readonly arrived: (() => void) | undefined;
  done: Promise<void> | undefined;
}

/** So many chunks have been taken by the GPU when it is passed. */
interface Fence {
  readonly chunks: number;
  readonly passed: Promise<unknown>;
}

export class Executor {
  readonly ledger: LinkLedger = {
    h2dBytes: 0,
    d2hBytes: 0,
    recoveryBytes: 0,
    clearedBytes: 0,
    submits: 0,
    waits: { down: 0, up: 0, below: 0 },
  };
  /** Chunks whose reading from disk begins before they are needed. */
  readAhead: number;
  #recorder: Recorder | undefined;
  /** Of what is recorded on its way up: to be called when the GPU has taken it. */
  #taken: (() => void)[] = [];
  /** Set to time each moment in a compute pass of its own. */
  timestamps: ((moment: number) => GPUComputePassTimestampWrites) | undefined;
  readonly #device: Device;
  readonly #map: ChunkMap;
  readonly #slots: Slots;
  readonly #bindings: Bindings;
  readonly #staging: Staging;
  readonly #backing: Backing;
  /** Whether a value that changes on the GPU leaves its old copy below in place. */
  readonly #durable: boolean;

  #encoder: GPUCommandEncoder | undefined;
  #pass: GPUComputePassEncoder | undefined;
  /** Counts command buffers; of each slot, the one that used it last. */
  #serial = 1;
  readonly #touched: Int32Array;
  /** Recorded, but not yet submitted. */
  readonly #unsent: (() => void)[] = [];
  readonly #stores = new Set<Store>();
  readonly #storing = new Map<number, Store>();
  /** Chunks sent up that the GPU may not have taken: since the last fence, and behind each fence. */
  #unfenced = 0;
  readonly #fences: Fence[] = [];
  #failure: { readonly reason: unknown } | undefined;

  #schedule: Schedule | undefined;
  #round = 0;
  #nextRounds = new WeakMap<Schedule, number>();

  constructor(
    device: Device,
    map: ChunkMap,
    slots: Slots,
    bindings: Bindings,
    staging: Staging,
    backing: Backing,
    options: { durable: boolean; readAhead: number },
  ) {
    this.#device = device;
    this.#map = map;
    this.#slots = slots;
    this.#bindings = bindings;
    this.#staging = staging;
    this.#backing = backing;
    this.#durable = options.durable;
    this.readAhead = options.readAhead;
    this.#touched = new Int32Array(slots.buffers.length);
  }

  /** Records the next runs of a pass, each up to the beginning of another. A recorder of before hears no more. */
  startRecording(pass: Pass, runs: number): Recorder {
    const recorder = new Recorder(pass, runs);
    this.#recorder = recorder;
    this.#backing.onDisk = (link, chunk) => recorder.transfer(link, [chunk]);
    return recorder;
  }

  /** Begins a pass: what the plan does not expect on the GPU leaves, as far as the plan needs the room. */
  async begin(schedule: Schedule): Promise<void> {
    this.check();
    this.#schedule = schedule;
    this.#round = this.#nextRounds.get(schedule) ?? 0;
    this.#nextRounds.set(schedule, (this.#round + 1) % schedule.plan.steps);
    const expected = schedule.starts[this.#round] as ReadonlySet<number>;
    const residents = this.#slots.residents();
    this.#recorder?.begin(
      schedule.pass,
      this.#slots.buffers.length,
      this.#staging.down + this.#staging.up,
      residents,
      this.#below,
    );
    const strangers = residents.filter((chunk) => !expected.has(chunk));
    const room = this.#slots.buffers.length - schedule.peakSlots;
    // The plan does not count with them. Those that must be copied down first stay.
    strangers.sort((a, b) => Number(this.#slots.isDirty(b)) - Number(this.#slots.isDirty(a)) || a - b);
    for (const chunk of strangers.slice(room)) await this.#evict(chunk, 0);
    this.#orderBelow(0);
  }

  /** Encodes the moments from `from` up to but without `to`. */
  async run(from: number, to: number): Promise<void> {
    const { pass, plan } = this.#schedule as Schedule;
    const { moments } = pass.trace;
    const base = this.#round * moments.length;
    for (let m = from; m < to; m++) {
      this.check();
      const moment = moments[m] as (typeof moments)[number];
      this.#recorder?.enter(m);
      for (const chunk of (plan.moments[base + m] as (typeof plan.moments)[number]).drop) {
        if (this.#slots.holds(chunk)) await this.#evict(chunk, m);
      }
      for (const { chunk, mode } of moment.accesses) {
        if (!this.#slots.holds(chunk)) {
          if (this.#slots.free === 0) await this.#makeRoom(m);
          await this.#bring(chunk, mode === 'overwrite', m);
        }
        this.#recorder?.event(m, chunk, 'use');
      }
      this.#recorder?.encode(this.#staged, this.#below);
      const bound = this.#bindings.bind(pass.dispatches[m] as (typeof pass.dispatches)[number]);
      const timestampWrites = this.timestamps?.(m);
      if (timestampWrites) this.#endPass();
      this.#pass ??= this.#open().beginComputePass({ label: pass.name, ...(timestampWrites && { timestampWrites }) });
      encode(this.#pass, bound);
      for (const { chunk, mode } of moment.accesses) {
        this.#touched[this.#slots.of(chunk)] = this.#serial;
        if (mode !== 'read') this.#change(chunk);
      }
      for (const chunk of moment.frees) {
        this.#slots.release(chunk);
        if (!this.#durable) this.#backing.discard(chunk);
        this.#recorder?.event(m, chunk, 'free');
      }
    }
  }

  /**
   * Copies the values of chunks down, together: they arrive below in one turn, and behind all that earlier
   * phases keep. They stay here, clean.
   */
  async keepBelow(chunks: readonly number[], moment: number, phase: number, arrived?: () => void): Promise<void> {
    this.ledger.recoveryBytes += chunks.length * this.#map.chunkBytes;
    await this.#store(chunks, moment, { phase, arrived });
  }

  /** Records a command outside of passes, behind what was encoded so far. */
  command(encode: (encoder: GPUCommandEncoder) => void, submitted?: () => void): void {
    this.#endPass();
    encode(this.#open());
    if (submitted) this.#unsent.push(submitted);
  }

  /** Submits what is encoded. */
  flush(): void {
    this.#endPass();
    if (this.#encoder) {
      this.#device.submit(this.#encoder);
      this.ledger.submits++;
      this.#recorder?.submit();
      this.#hearTaken();
      this.#encoder = undefined;
      this.#serial++;
    }
    for (const submitted of this.#unsent.splice(0)) submitted();
  }

  /** Waits until every value on its way down has arrived. Errors: what went wrong with one of them. */
  async settle(): Promise<void> {
    this.flush();
    while (this.#stores.size > 0) await this.#oldestStore();
    this.check();
  }

  /** Takes down everything: nothing lives on the GPU alone. */
  async empty(): Promise<void> {
    for (const chunk of this.#slots.residents()) await this.#evict(chunk, 0);
    await this.settle();
  }

  /** Ends what runs here with this error, at its next moment or wait, and everything that is begun. */
  stop(reason: unknown): void {
    this.#failure ??= { reason };
  }

  /** Waits until nothing on its way down is under way, arrived or lost. */
  async abandon(): Promise<void> {
    await Promise.all([...this.#stores].map(({ done }) => done));
  }

  /** Brings a chunk whose whole value is given; `bytes` are taken at once. */
  async upload(chunk: number, bytes: Uint8Array<ArrayBuffer>): Promise<void> {
    this.check();
    if (!this.#slots.holds(chunk)) this.#slots.take(chunk);
    await this.#send(chunk, bytes);
    this.#slots.setDirty(chunk, true);
  }

  /** Bytes of a chunk, from wherever its newest value is. */
  async read(chunk: number, offset: number, into: Uint8Array): Promise<void> {
    this.check();
    const storing = this.#storing.get(chunk);
    if (storing) await this.#arrival(storing);
    if (this.#slots.holds(chunk) && this.#slots.isDirty(chunk)) {
      const buffer = this.#slots.buffer(chunk);
      await this.readBuffer(buffer, offset, into.length, (piece, at) => into.set(piece, at));
    } else if (this.#backing.where(chunk) === 'zero') into.fill(0);
    else {
      const bytes = this.#backing.peek(chunk) ?? (await this.#backing.fetch(chunk));
      into.set(bytes.subarray(offset, offset + into.length));
    }
  }

  /** Reads from any buffer through staging, a piece at a time. Waits for the queue. */
  async readBuffer(
    source: GPUBuffer,
    offset: number,
    bytes: number,
    use: (piece: Uint8Array, at: number) => void,
  ): Promise<void> {
    for (let at = 0; at < bytes; at += this.#staging.bytes) {
      const size = Math.min(this.#staging.bytes, bytes - at);
      while (this.#staging.free === 0) await this.#oldestStore();
      const buffer = this.#staging.take();
      this.command((encoder) => encoder.copyBufferToBuffer(source, offset + at, buffer, 0, size));
      this.flush();
      this.ledger.d2hBytes += size;
      await this.#staging.mapped(buffer, size, (piece) => use(piece, at));
      this.check();
    }
  }

  /** Throws what went wrong with the device, or with a value on its way down. */
  check(): void {
    this.#device.check();
    if (this.#failure) throw this.#failure.reason;
  }

  // ---- Moving chunks ----------------------------------------------------------------------------------

  async #evict(chunk: number, moment: number): Promise<void> {
    if (this.#slots.isDirty(chunk)) await this.#store([chunk], moment);
    this.#slots.release(chunk);
    this.#recorder?.event(moment, chunk, 'drop');
  }

  /** Only where the plan was not followed from its first moment: whoever is needed last leaves. */
  async #makeRoom(moment: number): Promise<void> {
    const { moments } = (this.#schedule as Schedule).pass.trace;
    const victims = new Set(this.#slots.residents());
    for (let i = 0; i < moments.length && victims.size > 1; i++) {
      for (const { chunk } of moments[(moment + i) % moments.length]?.accesses ?? []) {
        if (i === 0 || victims.size > 1) victims.delete(chunk);
      }
    }
    const [victim] = victims;
    assert(victim !== undefined, `moment ${moment} needs more chunks than there are slots`);
    await this.#evict(victim, moment);
  }

  async #store(
    chunks: readonly number[],
    moment: number,
    { phase, arrived }: { phase?: number; arrived?: (() => void) | undefined } = {},
  ): Promise<void> {
    while (this.#staging.free < chunks.length) {
      this.flush();
      await this.#oldestStore();
    }
    const { chunkBytes } = this.#map;
    const buffers = chunks.map((chunk) => {
      const buffer = this.#staging.take();
      this.command((encoder) => encoder.copyBufferToBuffer(this.#slots.buffer(chunk), 0, buffer, 0, chunkBytes));
      this.#touched[this.#slots.of(chunk)] = this.#serial;
      this.#slots.setDirty(chunk, false);
      this.#recorder?.event(moment, chunk, 'store');
      return buffer;
    });
    this.ledger.d2hBytes += chunks.length * chunkBytes;
    const behind = [...this.#stores].filter(
      (older) =>
        older.chunks.some((chunk) => chunks.includes(chunk)) ||
        (phase !== undefined && older.phase !== undefined && older.phase !== phase),
    );
    const ended = this.#recorder?.transfer('d2h', chunks);
    const store: Store = { chunks, buffers, behind, phase, arrived, ended, done: undefined };
    this.#stores.add(store);
    for (const chunk of chunks) this.#storing.set(chunk, store);
    this.#unsent.push(() => {
      store.done = this.#takeDown(store).catch((error: unknown) => this.stop(error));
    });
  }

  async #takeDown(store: Store): Promise<void> {
    try {
      const views = await Promise.all(store.buffers.map((buffer) => this.#staging.map(buffer, this.#map.chunkBytes)));
      await Promise.all(store.behind.map(({ done }) => done));
      // Nothing from a lost device, and nothing behind a value that did not arrive.
      this.check();
      await this.#backing.putAll(
        store.chunks.map((chunk, i) => ({ chunk, bytes: views[i] as Uint8Array<ArrayBuffer> })),
      );
      store.ended?.();
      store.arrived?.();
    } finally {
      for (const buffer of store.buffers) this.#staging.give(buffer);
      this.#stores.delete(store);
      for (const chunk of store.chunks) if (this.#storing.get(chunk) === store) this.#storing.delete(chunk);
    }
  }

  async #oldestStore(): Promise<void> {
    const [store] = this.#stores;
    assert(store, 'staging is in use, but nothing is on its way down');
    await this.#arrival(store);
  }

  async #arrival(store: Store): Promise<void> {
    if (!store.done) this.flush();
    await this.#waiting('down', store.done as Promise<void>);
    this.check();
  }

  async #bring(chunk: number, overwrite: boolean, moment: number): Promise<void> {
    const zero = !overwrite && this.#backing.where(chunk) === 'zero';
    if (overwrite || zero) {
      const same = this.#slots.take(chunk);
      // What is overwritten is so piece by piece, all of it; the padding between must be zero, as it is in its own.
      if (same && !zero) return;
      const buffer = this.#slots.buffer(chunk);
      this.command((encoder) => encoder.clearBuffer(buffer));
      this.#touched[this.#slots.of(chunk)] = this.#serial;
      this.ledger.clearedBytes += this.#map.chunkBytes;
      this.#recorder?.event(moment, chunk, 'clear');
      return;
    }
    const storing = this.#storing.get(chunk);
    if (storing) await this.#arrival(storing);
    // Its newest value may be one that was lost on its way down.
    this.check();
    this.#fetchAhead(moment);
    let bytes = this.#backing.peek(chunk);
    if (!bytes) bytes = await this.#waiting('below', this.#backing.fetch(chunk));
    this.#slots.take(chunk);
    await this.#send(chunk, bytes);
    this.#recorder?.event(moment, chunk, 'load');
  }

  /** `bytes` are taken before the first wait. */
  async #send(chunk: number, bytes: Uint8Array<ArrayBuffer>): Promise<void> {
    if (this.#touched[this.#slots.of(chunk)] === this.#serial) this.flush();
    this.#device.gpu.queue.writeBuffer(this.#slots.buffer(chunk), 0, bytes);
    this.ledger.h2dBytes += this.#map.chunkBytes;
    const taken = this.#recorder?.transfer('h2d', [chunk]);
    if (taken) this.#taken.push(taken);
    this.#unfenced++;
    // Half of what may be under way waits behind a fence, so that the other half can be sent meanwhile.
    const window = this.#staging.up;
    if (this.#unfenced < Math.max(1, window >> 1)) return;
    this.flush();
    // A lost device shows in check().
    const passed = this.#device.gpu.queue.onSubmittedWorkDone().catch(() => {});
    this.#fences.push({ chunks: this.#unfenced, passed });
    this.#unfenced = 0;
    while (this.#fences.reduce((sum, { chunks }) => sum + chunks, 0) + Math.max(1, window >> 1) > window) {
      await this.#waiting('up', (this.#fences.shift() as Fence).passed);
      this.check();
    }
  }

  #hearTaken(): void {
    if (this.#taken.length === 0) return;
    const all = this.#taken.splice(0);
    const hear = () => {
      for (const taken of all) taken();
    };
    this.#device.gpu.queue.onSubmittedWorkDone().then(hear, () => {});
  }

  readonly #below = (chunk: number): Below => (this.#storing.has(chunk) ? 'staging' : this.#backing.where(chunk));

  /** Chunks that staging holds, both ways: what is not known to have arrived counts. */
  get #staged(): number {
    const fenced = this.#fences.reduce((sum, { chunks }) => sum + chunks, 0);
    return this.#staging.down - this.#staging.free + this.#unfenced + fenced;
  }

  /** The value on the GPU is newer than those below. */
  #change(chunk: number): void {
    if (this.#slots.isDirty(chunk)) return;
    this.#slots.setDirty(chunk, true);
    if (!this.#durable && !this.#storing.has(chunk)) this.#backing.discard(chunk);
  }

  // ---- The tiers below --------------------------------------------------------------------------------

  /** Tells the tiers below when each chunk will be brought again. */
  #orderBelow(moment: number): void {
    const { loadsOf, plan, pass } = this.#schedule as Schedule;
    const now = this.#round * pass.trace.moments.length + moment;
    this.#backing.setOrder((chunk) => {
      const loads = loadsOf.get(chunk);
      if (!loads) return Number.POSITIVE_INFINITY;
      return loads.find((load) => load > now) ?? (loads[0] as number) + plan.moments.length;
    });
  }

  /** Starts reading what the plan will bring soon. */
  #fetchAhead(moment: number): void {
    this.#orderBelow(moment);
    if (this.readAhead === 0) return;
    const { plan, pass } = this.#schedule as Schedule;
    const { length } = plan.moments;
    const base = this.#round * pass.trace.moments.length;
    let ahead = this.readAhead;
    for (let i = 1; i < length && ahead > 0; i++) {
      for (const chunk of (plan.moments[(base + moment + i) % length] as (typeof plan.moments)[number]).load) {
        if (this.#slots.holds(chunk) || this.#storing.has(chunk)) continue;
        this.#backing.prefetch(chunk);
        if (--ahead === 0) return;
      }
    }
  }

  // ---- Encoding ---------------------------------------------------------------------------------------

  #open(): GPUCommandEncoder {
    this.#encoder ??= this.#device.gpu.createCommandEncoder();
    return this.#encoder;
  }

  #endPass(): void {
    this.#pass?.end();
    this.#pass = undefined;
  }

  async #waiting<T>(cause: keyof LinkLedger['waits'], what: Promise<T>): Promise<T> {
    const start = performance.now();
    const result = await what;
    this.ledger.waits[cause] += performance.now() - start;
    this.#recorder?.waited(cause, start);
    return result;
  }
}
