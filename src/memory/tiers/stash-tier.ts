// `StashTier`: pieces of activations below the GPU: each has a place of its own size, in host memory or on disk, for as long
// as the activations are planned as they are (shares.ts). A value is put, at once or one part behind the other, fetched, any number
// of times, and discarded; there is no choice of what leaves. Knows numbers and bytes: no tensor, no GPU.
//
// Invariants: host memory and disk are never more than what the pieces were given; a fetch never waits for another
// fetch, as what is read ahead leaves it a reader.

import type { BlockFile, CopyBytes } from '../../runtime/host.ts';
import { at } from '../../util/at.ts';
import { type Deferred, deferred } from '../../util/deferred.ts';
import { assert, HoldfastError } from '../../util/errors.ts';
import { DiskFile, type PartSum } from './disk-file.ts';
import { type StashHomes, stashHomes, type TierBytes } from './shares.ts';
import { StopWatch } from './stop-watch.ts';

type Bytes = Uint8Array<ArrayBuffer>;

interface HeldStash {
  readonly id: number;
  readonly size: number;
  /** Where it begins in the part of the file for activations; undefined: it lies in host memory. */
  readonly offset: number | undefined;
  /** Its memory on the host, once it was needed. */
  memory: Bytes | undefined;
  /** Bytes of its value; 0: it has none. */
  length: number;
  /** Checksums of what lies on disk, in the order in which its parts were put. */
  sums: readonly PartSum[];
  /** What was read of it, or is. */
  reading: Reading | undefined;
}

interface Reading {
  readonly memory: Bytes;
  done: Promise<void>;
  isDone: boolean;
}

const NO_HOMES: StashHomes = { offsets: [], onHost: 0, onDisk: 0, readers: 0, readerBytes: 0 };

export class StashTier {
  readonly #room: TierBytes;
  readonly #file: DiskFile | undefined;
  readonly #path: string;
  /** Where in the file their part begins. */
  readonly #begin: number;
  readonly #copyBytes: CopyBytes;
  readonly #readWatch = new StopWatch();
  readonly #underWay = new Set<Promise<unknown>>();
  #first = 0;
  #stashes: readonly HeldStash[] = [];
  #homes = NO_HOMES;
  #readers: Bytes[] = [];
  #made = 0;
  #freed: Deferred<void> | undefined;
  #hostBytes = 0;
  #hostPeak = 0;
  #diskBytes = 0;
  #diskPeak = 0;

  /** `room`: what the pieces may use, in `file` from the byte `begin` on. */
  constructor(room: TierBytes, file?: BlockFile, begin = 0, copyBytes: CopyBytes = (to, from) => to.set(from)) {
    this.#room = room;
    this.#file = file && new DiskFile(file);
    this.#path = file?.path ?? '';
    this.#begin = begin;
    this.#copyBytes = copyBytes;
  }

  /** What a fit of other activations must do with. */
  get room(): TierBytes {
    return this.#room;
  }

  set onDisk(told: DiskFile['onMove']) {
    if (this.#file) this.#file.onMove = told;
  }

  /** From now on there are pieces of these sizes, with numbers from `first` on; those of before are gone, and nothing writes them. */
  place(first: number, sizes: readonly number[]): void {
    const homes = stashHomes(sizes, this.#room);
    assert(homes, 'activations were planned that have no room below the GPU');
    this.#first = first;
    this.#homes = homes;
    this.#stashes = sizes.map((size, i): HeldStash => {
      const offset = homes.offsets[i];
      return { id: first + i, size, offset, memory: undefined, length: 0, sums: [], reading: undefined };
    });
    this.#readers = [];
    this.#made = 0;
    this.#hostBytes = 0;
    this.#diskBytes = 0;
  }

  where(id: number): 'nothing' | 'host' | 'disk' | 'both' {
    const { length, offset, reading } = this.#stash(id);
    if (length === 0) return 'nothing';
    if (offset === undefined) return 'host';
    return reading?.isDone ? 'both' : 'disk';
  }

  /**
   * A new value: it is there when this resolves, and `bytes` must stay as they are until then. `at`: behind so many bytes of the
   * one that is there; what that has past them is dead. Errors: HoldfastError.
   */
  async put(id: number, bytes: Bytes, at = 0): Promise<void> {
    const stash = this.#stash(id);
    const { length } = bytes;
    assert(length > 0 && at + length <= stash.size, `${length} bytes at ${at} of a piece of ${stash.size}`);
    this.#cut(stash, at);
    if (stash.offset === undefined) {
      stash.memory ??= this.#make(stash.size);
      this.#copyBytes(stash.memory.subarray(at), bytes);
      stash.length = at + length;
      return;
    }
    if (at === 0) this.#diskBytes += stash.size;
    this.#diskPeak = Math.max(this.#diskPeak, this.#diskBytes);
    try {
      const place = this.#onDisk(stash, stash.offset);
      const sum = await this.#track(this.#disk().write(place, bytes, at));
      // Mapped memory goes with a lost device, also while it is written.
      if (bytes.length !== length) throw new Error('the bytes of a piece went away before it was written');
      stash.length = at + length;
      stash.sums = [...stash.sums, { end: stash.length, sum }];
    } finally {
      if (stash.length === 0) this.#diskBytes -= stash.size;
    }
  }

  /** Of the value the first bytes stay: all of some of its parts. */
  #cut(stash: HeldStash, bytes: number): void {
    const { id, length, offset, sums } = stash;
    if (bytes === 0) {
      this.discard(id);
      return;
    }
    assert(bytes <= length, `${this.#nameOf(stash)} has ${length} bytes, and more would be put at ${bytes}`);
    this.release(id);
    if (bytes === length) return;
    stash.sums = sums.filter(({ end }) => end <= bytes);
    assert(offset === undefined || stash.sums.at(-1)?.end === bytes, `a part of ${this.#nameOf(stash)} would be cut`);
    stash.length = bytes;
  }

  /** The bytes if they lie in host memory now: valid until the value is discarded. */
  peek(id: number): Bytes | undefined {
    const { memory, length, reading } = this.#stash(id);
    const found = length > 0 ? (memory ?? (reading?.isDone ? reading.memory : undefined)) : undefined;
    return found?.subarray(0, length);
  }

  /** The bytes, from disk if need be: valid until the value is discarded. Errors: HoldfastError when they cannot be read, or are damaged. */
  async fetch(id: number): Promise<Bytes> {
    const stash = this.#stash(id);
    for (;;) {
      assert(stash.length > 0, `${this.#nameOf(stash)} is fetched and holds no value`);
      const here = this.peek(id);
      if (here) return here;
      this.#readWatch.start();
      try {
        const memory = stash.reading ? undefined : await this.#reader();
        if (memory) this.#read(stash, memory);
        await stash.reading?.done;
      } finally {
        this.#readWatch.stop();
      }
    }
  }

  /** Begins to read a piece, where a reader more than a fetch needs is free. Errors are left to the fetch. */
  prefetch(id: number): void {
    const stash = this.#stash(id);
    if (stash.length === 0 || stash.offset === undefined || stash.reading) return;
    if (this.#readers.length + this.#homes.readers - this.#made < 2) return;
    try {
      const memory = this.#freeReader();
      if (memory) this.#read(stash, memory);
    } catch {
      // No memory for a reader: the fetch will say so.
    }
  }

  /** The value is dead. */
  discard(id: number): void {
    const stash = this.#stash(id);
    const { offset, length, size } = stash;
    stash.length = 0;
    stash.sums = [];
    if (offset !== undefined && length > 0) this.#diskBytes -= size;
    this.release(id);
  }

  /** What was fetched is not used any more; the value stays, and is fetched again. */
  release(id: number): void {
    const stash = this.#stash(id);
    const { reading } = stash;
    stash.reading = undefined;
    if (reading?.isDone) this.#giveBack(reading.memory);
  }

  get ledger() {
    return {
      diskReadBytes: this.#file?.readBytes ?? 0,
      diskWriteBytes: this.#file?.writtenBytes ?? 0,
      hostBytes: this.#hostBytes,
      hostPeak: this.#hostPeak,
      diskBytes: this.#diskBytes,
      diskPeak: this.#diskPeak,
      diskReadMs: this.#readWatch.milliseconds,
    };
  }

  /** Waits for what is under way. The file stays. */
  async close(): Promise<void> {
    await Promise.allSettled([...this.#underWay]);
  }

  /** Every fact that a legal state must satisfy, for tests. */
  check(): void {
    const { onHost, readers, readerBytes } = this.#homes;
    assert(this.#hostBytes <= onHost + readers * readerBytes, 'pieces use more host memory than they were given');
    assert(this.#diskBytes <= this.#homes.onDisk, 'pieces use more of the disk than they were given');
    const held = this.#stashes.filter(({ reading }) => reading).length;
    assert(held + this.#readers.length <= this.#made, `${held} readers hold a piece, of ${this.#made}`);
  }

  // ---- Reads ------------------------------------------------------------------------------------------------

  #read(stash: HeldStash, memory: Bytes): void {
    const { length, sums, offset } = stash;
    assert(offset !== undefined, `${this.#nameOf(stash)} is read and is not on disk`);
    const readers = this.#readers;
    const run = async () => {
      try {
        await this.#disk().read(this.#onDisk(stash, offset), sums, memory.subarray(0, length));
        reading.isDone = true;
      } finally {
        const isWanted = stash.reading === reading;
        if (isWanted && !reading.isDone) stash.reading = undefined;
        // Of a piece that got another value meanwhile, or could not be read.
        if ((!isWanted || !reading.isDone) && readers === this.#readers) this.#giveBack(memory);
      }
    };
    const reading: Reading = { memory, done: Promise.resolve(), isDone: false };
    stash.reading = reading;
    reading.done = this.#track(run());
    reading.done.catch(() => {}); // of a prefetch that is not awaited
  }

  #freeReader(): Bytes | undefined {
    const free = this.#readers.pop();
    if (free || this.#made === this.#homes.readers) return free;
    const made = this.#make(this.#homes.readerBytes);
    this.#made++;
    return made;
  }

  async #reader(): Promise<Bytes> {
    for (;;) {
      const free = this.#freeReader();
      if (free) return free;
      this.#freed ??= deferred();
      await this.#freed.promise;
    }
  }

  #giveBack(memory: Bytes): void {
    this.#readers.push(memory);
    this.#freed?.resolve();
    this.#freed = undefined;
  }

  // ---- Memory -----------------------------------------------------------------------------------------------

  #make(bytes: number): Bytes {
    try {
      const made = new Uint8Array(bytes);
      this.#hostBytes += bytes;
      this.#hostPeak = Math.max(this.#hostPeak, this.#hostBytes);
      return made;
    } catch {
      throw new HoldfastError(
        `host memory: the runtime has no ${bytes} bytes more than the ${this.#hostBytes} that hold activations; ` +
          'set a host memory limit and a disk, or have activations made again (--activations recompute)',
      );
    }
  }

  #onDisk(stash: HeldStash, offset: number) {
    const name = `${this.#nameOf(stash)} (byte ${this.#begin + offset} of ${this.#path})`;
    return { id: stash.id, name, offset: this.#begin + offset };
  }

  #nameOf({ id }: HeldStash): string {
    return `activations ${id - this.#first}`;
  }

  #disk(): DiskFile {
    assert(this.#file, 'a piece lies on disk, and there is none');
    return this.#file;
  }

  async #track<T>(work: Promise<T>): Promise<T> {
    this.#underWay.add(work);
    try {
      return await work;
    } finally {
      this.#underWay.delete(work);
    }
  }

  #stash(id: number): HeldStash {
    return at(this.#stashes, id - this.#first);
  }
}
