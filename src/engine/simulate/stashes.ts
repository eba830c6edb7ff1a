// Activations below the GPU on a simulated clock, by the rules of memory/tiers/stash-tier.ts: each piece has its home, in
// host memory or on disk, and what is read ahead leaves a reader to what is needed now. Beside them the chunks
// (tiers.ts), by one sequence of numbers. Moves no bytes and holds none.

import type { StashHomes } from '../../memory/tiers/shares.ts';
import { at } from '../../util/at.ts';
import { assert } from '../../util/errors.ts';
import type { SimulatedTask } from './clock.ts';
import type { MachineDisk } from './machine.ts';
import type { DiskQueues, SimulatedTiers } from './tiers.ts';

export class SimulatedStashes {
  readBytes = 0;
  writtenBytes = 0;
  readonly #homes: StashHomes;
  readonly #sizes: readonly number[];
  readonly #disk: MachineDisk | undefined;
  /** By number, of what has a value: when it is there, and when it was read. */
  readonly #values = new Map<number, { there: SimulatedTask; read: SimulatedTask | undefined }>();
  /** Readers that hold a piece. */
  #held = 0;

  constructor(homes: StashHomes, sizes: readonly number[], disk: MachineDisk | undefined) {
    this.#homes = homes;
    this.#sizes = sizes;
    this.#disk = disk;
  }

  /** A new value, or so many bytes more of it, behind `sent`. Returns what it has arrived behind. */
  put(n: number, sent: SimulatedTask, bytes: number, { writes }: DiskQueues): SimulatedTask {
    let there = sent;
    if (at(this.#homes.offsets, n) !== undefined) {
      assert(this.#disk, 'a piece lies on disk, and there is none');
      this.writtenBytes += bytes;
      there = writes.run('diskWrite', bytes / this.#disk.writeBytesPerSecond, [sent]);
    }
    this.#values.set(n, { there, read: undefined });
    return there;
  }

  has(n: number): boolean {
    return this.#values.has(n);
  }

  /** What a value that is wanted behind `now` is here behind; undefined: it is here. */
  fetch(n: number, now: SimulatedTask | undefined, { reads }: DiskQueues): SimulatedTask | undefined {
    const value = this.#values.get(n);
    assert(value, `piece ${n} is fetched and lies nowhere`);
    if (at(this.#homes.offsets, n) === undefined) return undefined;
    if (!value.read) {
      assert(this.#disk, 'a piece lies on disk, and there is none');
      const bytes = at(this.#sizes, n);
      this.readBytes += bytes;
      this.#held++;
      value.read = reads.run('diskRead', bytes / this.#disk.readBytesPerSecond, [now, value.there]);
    }
    return value.read;
  }

  /** Begins to read a value, if there is a reader more than a fetch needs. */
  prefetch(n: number, now: SimulatedTask | undefined, queues: DiskQueues): void {
    const value = this.#values.get(n);
    if (!value || value.read || this.#homes.readers - this.#held < 2) return;
    this.fetch(n, now, queues);
  }

  discard(n: number): void {
    this.release(n);
    this.#values.delete(n);
  }

  /** What was fetched is not used any more; the value stays. */
  release(n: number): void {
    const value = this.#values.get(n);
    if (!value?.read) return;
    this.#held--;
    value.read = undefined;
  }
}

/** Chunks and activations, which share a disk. */
export class SimulatedBelow {
  readonly #chunks: SimulatedTiers;
  readonly #stashes: SimulatedStashes;
  readonly #count: number;

  /** `count`: of chunks; the numbers of activations follow theirs. */
  constructor(chunks: SimulatedTiers, stashes: SimulatedStashes, count: number) {
    this.#chunks = chunks;
    this.#stashes = stashes;
    this.#count = count;
  }

  /** Bytes moved so far. */
  get readBytes(): number {
    return this.#chunks.readBytes + this.#stashes.readBytes;
  }
  get writtenBytes(): number {
    return this.#chunks.writtenBytes + this.#stashes.writtenBytes;
  }

  /** These chunks lie there before the clock starts. */
  begin(chunks: Iterable<number>): void {
    this.#chunks.begin(chunks);
  }

  put(id: number, sent: SimulatedTask, bytes: number): SimulatedTask {
    if (id < this.#count) return this.#chunks.put(id, sent);
    return this.#stashes.put(id - this.#count, sent, bytes, this.#chunks);
  }

  fetch(id: number, now: SimulatedTask | undefined): SimulatedTask | undefined {
    return id < this.#count ? this.#chunks.fetch(id, now) : this.#stashes.fetch(id - this.#count, now, this.#chunks);
  }

  /** Chunks: see `SimulatedTiers.gather`. */
  gather(chunks: readonly number[], now: SimulatedTask | undefined): SimulatedTask | undefined {
    return this.#chunks.gather(chunks, now);
  }

  /** A chunk: see `SimulatedTiers.change`. */
  change(chunk: number): void {
    this.#chunks.change(chunk);
  }

  /** A chunk: see `SimulatedTiers`. */
  isOnDisk(chunk: number): boolean {
    return this.#chunks.isOnDisk(chunk);
  }
  stow(chunk: number, made: SimulatedTask): SimulatedTask {
    return this.#chunks.stow(chunk, made);
  }
  putStowed(chunk: number, written: SimulatedTask): void {
    this.#chunks.putStowed(chunk, written);
  }

  prefetch(id: number, now: SimulatedTask | undefined): void {
    if (id < this.#count) this.#chunks.prefetch(id, now);
    else this.#stashes.prefetch(id - this.#count, now, this.#chunks);
  }

  /** Each chunk that has a value below. */
  eachChunk(tell: (chunk: number, here: boolean, onDisk: boolean) => void): void {
    this.#chunks.each(tell);
  }

  /** Whether this piece of an activation has a value. */
  hasStash(id: number): boolean {
    return this.#stashes.has(id - this.#count);
  }

  /** See `SimulatedStashes.release`. */
  release(id: number): void {
    this.#stashes.release(id - this.#count);
  }

  discard(id: number): void {
    if (id < this.#count) this.#chunks.discard(id);
    else this.#stashes.discard(id - this.#count);
  }
}
