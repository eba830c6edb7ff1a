// `Link`: the link between host and GPU: what is encoded and when it is submitted, and the values that go up and come
// down through staging. Both ways are copies inside the command buffers that use the values, so one queue, in order,
// makes them safe; nothing here waits but for room in staging and for values on their way down, and each wait is
// accounted. A change of values below stands in the same order. Knows no plan, and of slots only the buffers that it is given.
//
// Invariant: values arrive below in the order of what each of them must be behind, and every byte is in the ledger.

import type { Device } from '../../gpu/device.ts';
import { at } from '../../util/at.ts';
import { assert } from '../../util/errors.ts';
import { StoppableWait } from '../../util/stoppable-wait.ts';
import type { Recorder } from '../observe/recording.ts';
import type { ChunkCopies } from './copies.ts';
import type { LinkLedger } from './link-ledger.ts';
import type { Staging } from './staging.ts';

/** A value that goes by a chunk's number below the GPU, and where on the GPU it lies or will lie. */
export interface Placed {
  readonly chunk: number;
  readonly buffer: GPUBuffer;
  /** Bytes; those of a chunk's value fill its slot. */
  readonly offset: number;
  readonly bytes: number;
  /** Where in the value below they go that come down: it ends behind them. @default at its beginning */
  readonly at?: number;
}

/** Values on their way down, together, or the change of values that lie below. */
interface Store {
  /** None of what is read for the host alone. */
  readonly chunks: readonly number[];
  readonly buffers: readonly GPUBuffer[];
  /** Of each of them, what is the value's. */
  readonly bytes: readonly number[];
  /** What must have arrived before: older values of the same chunks, and what is earlier in the sequence. */
  readonly behind: readonly Store[];
  /** What else it waits for once it is submitted. */
  readonly known: (() => Promise<unknown> | undefined) | undefined;
  /** See StoreOptions. */
  readonly sequence: number | undefined;
  /** For the recorder. */
  readonly ended: (() => void) | undefined;
  /** Takes the values below, or to where they are read to. */
  readonly take: (views: readonly Uint8Array<ArrayBuffer>[]) => Promise<void> | void;
  /** What to do when the value has arrived below. */
  readonly arrived: (() => void) | undefined;
  /** See StoreOptions. */
  readonly frees: readonly number[];
  done: Promise<void> | undefined;
}

export interface StoreOptions {
  /** Values arrive behind all that were stored before with another number. */
  readonly sequence?: number;
  /** What must be known before its values are taken, asked for once they are submitted: buffers are mapped in any order. */
  readonly known?: (() => Promise<unknown> | undefined) | undefined;
  readonly arrived?: (() => void) | undefined;
  /** Chunks whose values below it makes useless: new ones arrive behind it. @default none */
  readonly frees?: readonly number[];
  /** For the recorder: see `Transfer`. @default false */
  readonly isKept?: boolean;
}

export interface ChangeOptions extends Pick<StoreOptions, 'known' | 'arrived'> {
  /** It begins behind this one. */
  readonly after: Change | undefined;
}

/** A change of values below, begun or not: only the link looks into it. */
export type Change = Readonly<Pick<Store, 'done' | 'buffers'>>;

export class Link {
  readonly ledger: LinkLedger;
  recorder: Recorder | undefined;
  readonly #device: Device;
  readonly #staging: Staging;
  readonly #copies: ChunkCopies;
  #encoder: GPUCommandEncoder | undefined;
  #pass: GPUComputePassEncoder | undefined;
  /** To be called when what is encoded has been submitted. */
  readonly #unsent: (() => void)[] = [];
  /** Chunks that come down with the next submit. */
  #unsentDown = 0;
  readonly #stores = new Set<Store>();
  #failure: { readonly reason: unknown } | undefined;
  readonly #others = new StoppableWait();

  constructor(device: Device, staging: Staging, copies: ChunkCopies, ledger: LinkLedger) {
    this.ledger = ledger;
    this.#device = device;
    this.#staging = staging;
    this.#copies = copies;
  }

  /** Chunks that staging holds, both ways, and how many it can. */
  get staged(): number {
    return this.#staging.held;
  }
  get capacity(): number {
    return this.#staging.down + this.#staging.up;
  }

  /** Bytes that go up, or come down, at once. */
  get pieceBytes(): number {
    return this.#staging.bytes;
  }

  // ---- Commands ---------------------------------------------------------------------------------------

  /** The compute pass that is open, or a new one; one with `timestampWrites` is always new. */
  pass(label: string, timestampWrites: GPUComputePassTimestampWrites | undefined): GPUComputePassEncoder {
    if (timestampWrites) this.#endPass();
    this.#pass ??= this.#open().beginComputePass({ label, ...(timestampWrites && { timestampWrites }) });
    return this.#pass;
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
    const encoder = this.#encoder;
    if (encoder) {
      // Finished, whether or not it can be submitted.
      this.#encoder = undefined;
      this.#device.submit(encoder);
      this.ledger.submits++;
      this.recorder?.submit();
      this.#staging.submitted();
      this.#unsentDown = 0;
    }
    for (const submitted of this.#unsent.splice(0)) submitted();
  }

  /** Submits once half of staging, either way, waits for it: so the other half can be used meanwhile. */
  flushIfDue(): void {
    const { filled, up, down } = this.#staging;
    if (filled >= Math.max(1, up >> 1) || this.#unsentDown >= Math.max(1, down >> 1)) this.flush();
  }

  #open(): GPUCommandEncoder {
    this.#encoder ??= this.#device.gpu.createCommandEncoder();
    return this.#encoder;
  }

  #endPass(): void {
    this.#pass?.end();
    this.#pass = undefined;
  }

  // ---- Up ---------------------------------------------------------------------------------------------

  /** Waits until one chunk more can be sent. */
  async roomUp(): Promise<void> {
    if (this.#staging.filled === this.#staging.up) this.flush();
    const { emptied } = this.#staging;
    if (!emptied) return;
    await this.waiting('up', emptied);
    this.check();
  }

  /** Sends a value up, behind what was encoded so far; its bytes are taken at once. There is room for it. */
  send({ chunk, buffer, offset, bytes }: Placed, value: Uint8Array<ArrayBuffer>): void {
    this.write(buffer, offset, value.subarray(0, bytes), this.recorder?.transfer('h2d', [chunk]));
  }

  /** Sends bytes up into any buffer: a staging buffer's, or fewer. `taken` is called when the GPU has taken them. */
  write(buffer: GPUBuffer, offset: number, value: Uint8Array<ArrayBuffer>, taken?: () => void): void {
    const from = this.#staging.fill(value, taken);
    this.command((encoder) => encoder.copyBufferToBuffer(from, 0, buffer, offset, value.length));
    this.ledger.h2dBytes += value.length;
    this.ledger.transfers++;
  }

  // ---- Down -------------------------------------------------------------------------------------------

  /** Values that can go down with nothing waited for. */
  get roomDown(): number {
    return this.#staging.free;
  }

  /**
   * Copies values down, as they are behind what was encoded so far: they arrive below in one turn. They stay on the GPU,
   * clean.
   */
  async store(
    values: readonly Placed[],
    { sequence, known, arrived, frees = [], isKept }: StoreOptions = {},
  ): Promise<void> {
    const buffers = await this.#copiesOf(values);
    const chunks = values.map(({ chunk }) => chunk);
    this.#unsentDown += chunks.length;
    const behind = [...this.#stores].filter(
      (older) =>
        haveCommon([...older.chunks, ...older.frees], chunks) ||
        (sequence !== undefined && older.sequence !== undefined && older.sequence !== sequence),
    );
    const ended = this.recorder?.transfer('d2h', chunks, isKept);
    const bytes = values.map((value) => value.bytes);
    const take = (views: readonly Uint8Array<ArrayBuffer>[]) =>
      this.#copies.put(chunks.map((chunk, i) => ({ chunk, bytes: at(views, i), offset: at(values, i).at ?? 0 })));
    this.#copies.send(chunks);
    this.#goDown({ chunks, buffers, bytes, behind, known, sequence, take, arrived, frees, ended, done: undefined });
  }

  /**
   * Reads what is a staging buffer's or fewer, as it is behind what was encoded so far, and submits: the function that it returns
   * waits until it is there.
   */
  async readEarly(source: GPUBuffer, offset: number, into: Uint8Array): Promise<() => Promise<void>> {
    const buffers = await this.#copiesOf([{ buffer: source, offset, bytes: into.length }]);
    const nothing = {
      behind: [],
      known: undefined,
      sequence: undefined,
      arrived: undefined,
      frees: [],
      ended: undefined,
    };
    const take = ([view]: readonly Uint8Array[]) => this.#device.copyBytes(into, view as Uint8Array);
    const store: Store = { chunks: [], buffers, bytes: [into.length], ...nothing, take, done: undefined };
    this.#goDown(store);
    this.flush();
    return async () => {
      await store.done;
      this.check();
    };
  }

  /**
   * The values of these chunks change below, by `work`: once what is on its way to them has arrived. They are on their way down
   * until that has ended. Nothing here waits for it.
   */
  changeBelow(
    chunks: readonly number[],
    work: () => Promise<void> | void,
    { known, arrived, after }: ChangeOptions,
  ): Change {
    const behind = [...this.#stores].filter((older) => older === after || haveCommon(older.chunks, chunks));
    this.#copies.send(chunks);
    const none = { buffers: [], bytes: [], sequence: undefined, frees: [], ended: undefined, done: undefined };
    const store: Store = { chunks, behind, known, take: work, arrived, ...none };
    this.#goDown(store);
    return store;
  }

  /** Waits until a change has ended. Errors: what went wrong with it. */
  async changed(change: Change): Promise<void> {
    await this.#arrival(change);
  }

  /** Copies in staging, encoded, once there is room. */
  async #copiesOf(values: readonly Omit<Placed, 'chunk'>[]): Promise<GPUBuffer[]> {
    while (this.#staging.free < values.length) {
      this.flush();
      await this.#oldestStaged();
    }
    return values.map(({ buffer: from, offset, bytes }) => {
      const buffer = this.#staging.take();
      this.command((encoder) => encoder.copyBufferToBuffer(from, offset, buffer, 0, bytes));
      this.#countDown(bytes);
      return buffer;
    });
  }

  #countDown(bytes: number): void {
    this.ledger.d2hBytes += bytes;
    this.ledger.transfers++;
  }

  /** It is under way once it is submitted. */
  #goDown(store: Store): void {
    this.#stores.add(store);
    this.#unsent.push(() => {
      store.done = this.#takeDown(store).catch((error: unknown) => this.stop(error));
    });
  }

  async #takeDown(store: Store): Promise<void> {
    try {
      const views = await Promise.all(store.buffers.map((buffer, i) => this.#staging.map(buffer, at(store.bytes, i))));
      await Promise.all([...store.behind.map(({ done }) => done), store.known?.()]);
      // Nothing from a lost device, and nothing behind a value that did not arrive.
      this.check();
      await store.take(views);
      store.ended?.();
      store.arrived?.();
    } finally {
      for (const buffer of store.buffers) this.#staging.give(buffer);
      this.#stores.delete(store);
      this.#copies.sent(store.chunks);
    }
  }

  /** Waits until the newest value of this chunk, if it is on its way down, has arrived. */
  async arrival(chunk: number): Promise<void> {
    if (!this.#copies.isGoingDown(chunk)) return;
    const store = [...this.#stores].findLast(({ chunks }) => chunks.includes(chunk));
    await this.#arrival(store as Store);
  }

  async #arrival(store: Change): Promise<void> {
    if (!store.done) this.flush();
    await this.waiting(store.buffers.length > 0 ? 'down' : 'below', store.done as Promise<void>);
    this.check();
  }

  async #oldestStaged(): Promise<void> {
    const store = [...this.#stores].find(({ buffers }) => buffers.length > 0);
    assert(store, 'staging is in use, but nothing is on its way down');
    await this.#arrival(store);
  }

  /** Reads from any buffer through staging, a piece at a time. Waits for the queue. */
  async read(
    source: GPUBuffer,
    offset: number,
    bytes: number,
    use: (piece: Uint8Array, at: number) => void,
  ): Promise<void> {
    for (let at = 0; at < bytes; at += this.#staging.bytes) {
      const size = Math.min(this.#staging.bytes, bytes - at);
      while (this.#staging.free === 0) await this.#oldestStaged();
      const buffer = this.#staging.take();
      this.command((encoder) => encoder.copyBufferToBuffer(source, offset + at, buffer, 0, size));
      this.flush();
      this.#countDown(size);
      await this.#staging.mapped(buffer, size, (piece) => use(piece, at));
      this.check();
    }
  }

  // ---- Ends -------------------------------------------------------------------------------------------

  /** Submits what is encoded; resolves when all that is on its way down by now has arrived, or is lost. */
  sentDown(): Promise<void> {
    this.flush();
    return Promise.all([...this.#stores].map(({ done }) => done)).then(() => {});
  }

  /** Waits until every value on its way down has arrived. Errors: what went wrong with one of them. */
  async settle(): Promise<void> {
    this.flush();
    for (let [oldest] = this.#stores; oldest; [oldest] = this.#stores) await this.#arrival(oldest);
    this.check();
  }

  /** Waits until nothing on its way down is under way, arrived or lost. */
  async abandon(): Promise<void> {
    await Promise.all([...this.#stores].map(({ done }) => done));
  }

  /** Ends what runs here with this error, at its next wait, and everything that is begun. */
  stop(reason: unknown): void {
    this.#failure ??= { reason };
    // They may wait for what this rank can give no more.
    this.#others.stop(reason);
  }

  /** Throws what went wrong with the device, or with a value on its way down. */
  check(): void {
    this.#device.check();
    if (this.#failure) throw this.#failure.reason;
  }

  /** Waits for other ranks. Errors: what goes wrong here meanwhile, too. */
  others<T>(what: Promise<T>): Promise<T> {
    return this.waiting('network', this.#others.until(what));
  }

  /** Waits while the GPU does what is encoded. */
  async waiting<T>(cause: keyof LinkLedger['waits'], what: Promise<T>): Promise<T> {
    this.flush();
    const start = performance.now();
    const result = await what;
    this.ledger.waits[cause] += performance.now() - start;
    this.recorder?.waited(cause, start);
    return result;
  }
}

const haveCommon = (chunks: readonly number[], others: readonly number[]): boolean =>
  chunks.some((chunk) => others.includes(chunk));
