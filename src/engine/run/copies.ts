// `ChunkCopies`: for each chunk, which of its copies are valid: the one in its slot on the GPU, clean or dirty (newer than
// every other), the one in staging on its way down, and the one below, in host memory, on disk or as zeros. Every change
// of that goes through it. It moves no bytes between the GPU and the host: what it is told has been encoded, in order.
//
// Invariant: a value is nowhere given up while its copy there is the only one; check() lists what must hold.

import type { Backing, TierState } from '../../memory/tiers/backing.ts';
import type { Below, PlacedValue } from '../../memory/tiers/below.ts';
import type { Stowed } from '../../memory/tiers/puts.ts';
import type { Spared } from '../../memory/tiers/tier-limits.ts';
import { at } from '../../util/at.ts';
import { assert } from '../../util/errors.ts';
import type { Slots } from './slots.ts';

/** What it asks of all that lies below the GPU. */
type ValuesBelow = Pick<Below, 'putAll'> &
  Pick<
    Backing,
    'where' | 'setZero' | 'discard' | 'prefetch' | 'update' | 'check' | 'spare' | 'takeRoom' | 'giveRoomBack'
  > &
  Pick<Backing, 'make' | 'stow' | 'putStowed' | 'dropStowed' | 'leaveHost'>;

/** A value that was made beside the old one: in a room, or on disk. */
export type Made = { readonly bytes: Uint8Array<ArrayBuffer> } | { readonly stowed: Stowed };

export class ChunkCopies {
  readonly #slots: Slots;
  readonly #below: ValuesBelow;
  /** Whether a value that changes on the GPU leaves its old copy below in place. */
  readonly #durable: boolean;
  /** By chunk: whether the copy on the GPU is newer than every other. */
  readonly #dirty: Uint8Array;
  /** By chunk: copies in staging. Only the newest counts, and it arrives last. */
  readonly #goingDown: Uint8Array;
  /** By chunk: of these, changes of what lies below. */
  readonly #changing: Uint8Array;
  /** By chunk: the number of the last of these. */
  readonly #changeOf: Float64Array;
  #changes = 0;
  /** By chunk: see `isMade`. */
  readonly #made: Uint8Array;

  constructor(slots: Slots, below: ValuesBelow, chunks: number, durable: boolean) {
    this.#slots = slots;
    this.#below = below;
    this.#durable = durable;
    this.#dirty = new Uint8Array(chunks);
    this.#goingDown = new Uint8Array(chunks);
    this.#changing = new Uint8Array(chunks);
    this.#changeOf = new Float64Array(chunks);
    this.#made = new Uint8Array(chunks);
  }

  // ---- Where they are ---------------------------------------------------------------------------------

  onGPU(chunk: number): boolean {
    return this.#slots.holds(chunk);
  }

  /** Whether the copy on the GPU is newer than every other. */
  isDirty(chunk: number): boolean {
    return this.#dirty[chunk] === 1;
  }

  /** Whether a copy is in staging, on its way down. */
  isGoingDown(chunk: number): boolean {
    return at(this.#goingDown, chunk) > 0;
  }

  /** The newest copy that is not in a slot; where the chunk is dirty it is out of date. */
  below(chunk: number): TierState | 'staging' {
    return this.isGoingDown(chunk) ? 'staging' : this.#below.where(chunk);
  }

  /** Where that copy lies; of a value that changes below, where it did. */
  placeBelow(chunk: number): TierState | 'staging' {
    return at(this.#goingDown, chunk) > at(this.#changing, chunk) ? 'staging' : this.#below.where(chunk);
  }

  /** Whether there is a copy anywhere. */
  exists(chunk: number): boolean {
    return this.onGPU(chunk) || this.below(chunk) !== 'nothing';
  }

  // ---- On the GPU -------------------------------------------------------------------------------------

  /** The chunk gets a slot, for a copy of what lies below or to be overwritten. As `SlotTable.take`. */
  bring(chunk: number, leaves?: number): boolean {
    return this.#slots.take(chunk, leaves);
  }

  /** The copy on the GPU gets another value. */
  change(chunk: number): void {
    if (this.isDirty(chunk)) return;
    assert(this.onGPU(chunk), `chunk ${chunk} changes on the GPU and is not there`);
    this.#dirty[chunk] = 1;
    if (!this.#durable && !this.isGoingDown(chunk)) this.#below.discard(chunk);
  }

  /** The copy on the GPU goes: there is another. */
  drop(chunk: number): void {
    assert(!this.isDirty(chunk), `chunk ${chunk} would lose its newest value`);
    this.#slots.release(chunk);
  }

  /** The value is used up: it is of no use on the GPU, if it is there, and what lies below is kept for a recovery alone. */
  free(chunk: number): void {
    if (this.onGPU(chunk)) this.#release(chunk);
    if (!this.#durable && !this.isGoingDown(chunk)) this.#below.discard(chunk);
  }

  /** The value below was used up there: it is kept for a recovery alone. */
  freeBelow(chunk: number): void {
    if (!this.#durable) this.#below.discard(chunk);
  }

  // ---- Below the GPU ----------------------------------------------------------------------------------

  /** Copies of the values on the GPU are in staging. */
  send(chunks: readonly number[]): void {
    for (const chunk of chunks) {
      this.#dirty[chunk] = 0;
      this.#goingDown[chunk] = at(this.#goingDown, chunk) + 1;
    }
  }

  /** What was sent comes to lie below, in one turn: see `Backing.putAll`. */
  put(entries: readonly PlacedValue[]): Promise<void> {
    return this.#below.putAll(entries);
  }

  /** What was sent is in staging no more: it was put, or is lost with its device. */
  sent(chunks: readonly number[]): void {
    for (const chunk of chunks) this.#goingDown[chunk] = at(this.#goingDown, chunk) - 1;
  }

  /** Room for values that are made beside those that there are: see `Backing.spare`. */
  get spare(): Spared {
    return this.#below.spare;
  }

  /** Where a value may be made that replaces one: see `Backing.takeRoom`. */
  takeRoom(): Uint8Array<ArrayBuffer> | undefined {
    return this.#below.takeRoom();
  }

  giveRoomBack(bytes: Uint8Array<ArrayBuffer>): void {
    this.#below.giveRoomBack(bytes);
  }

  /** Another value, given below, takes the place of all copies. Nothing of the chunk is on its way down. */
  async replace(chunk: number, bytes: Uint8Array<ArrayBuffer>): Promise<void> {
    assert(!this.isGoingDown(chunk), `chunk ${chunk} is replaced while it is on its way down`);
    if (this.onGPU(chunk)) this.#release(chunk);
    await this.#below.putAll([{ chunk, bytes }]);
  }

  /**
   * The values below are to change, some by others that are only read: copies of them on the GPU go. None is newer there; what
   * is on its way down arrives before.
   */
  leaveBelow(read: readonly number[], changed: readonly number[]): void {
    for (const chunk of [...read, ...changed]) {
      assert(!this.isDirty(chunk), `chunk ${chunk} is to change below and is newer on the GPU`);
    }
    for (const chunk of changed) if (this.onGPU(chunk)) this.drop(chunk);
    this.#countChanges([...read, ...changed], 1);
    this.#changes++;
    for (const chunk of [...read, ...changed]) this.#changeOf[chunk] = this.#changes;
  }

  /** The number of the change below that a value waits for or that works on it: one that waits longer has a smaller one, of at least 1. */
  changeOf(chunk: number): number | undefined {
    return at(this.#changing, chunk) > 0 ? at(this.#changeOf, chunk) : undefined;
  }

  /** The value is read from disk before its change begins, unless it was made ahead. */
  prefetchBelow(chunk: number): void {
    if (!this.isMade(chunk)) this.#below.prefetch(chunk);
  }

  /** Changes values below in place, by `work`, which gets the bytes of what is read and of what changes, in this order. */
  async update(
    read: number,
    changed: readonly number[],
    work: (bytes: readonly Uint8Array<ArrayBuffer>[]) => Promise<void> | void,
  ): Promise<void> {
    const all = [read, ...changed];
    await this.#below.update(
      all.map((chunk) => ({ chunk, kept: chunk === read })),
      work,
    );
    this.#countChanges(all, -1);
  }

  /** See `Backing.make`. */
  make(...work: Parameters<Backing['make']>): ReturnType<Backing['make']> {
    return this.#below.make(...work);
  }

  /** See `Backing.stow`. */
  async stow(chunk: number, bytes: Uint8Array<ArrayBuffer>): Promise<Made | undefined> {
    const stowed = await this.#below.stow(chunk, bytes);
    return stowed && { stowed };
  }

  /** Whether the update that it waits for was made ahead: what lies below is for another decision alone. */
  isMade(chunk: number): boolean {
    return this.#made[chunk] === 1;
  }

  /** Of what was made ahead the old values leave host memory where they lie on disk, too. */
  setMade(chunks: readonly number[], isMade: boolean): void {
    for (const chunk of chunks) {
      this.#made[chunk] = Number(isMade);
      if (isMade) this.#below.leaveHost(chunk);
    }
  }

  /** A value that was made is not wanted. */
  giveUp(made: Made): void {
    if ('bytes' in made) this.#below.giveRoomBack(made.bytes);
    else this.#below.dropStowed(made.stowed);
  }

  /**
   * In place of `update`: values that were made take the places of the old ones. Of `parts`, those of a part of their chunk,
   * `copy` gets the bytes of the chunks and changes them in place.
   */
  async replaceBelow(
    read: number,
    news: readonly { readonly chunk: number; readonly made: Made }[],
    parts: readonly number[],
    copy: (bytes: readonly Uint8Array<ArrayBuffer>[]) => void,
  ): Promise<void> {
    const inPlace = parts.map((chunk) => ({ chunk, kept: false }));
    if (parts.length > 0) await this.#below.update(inPlace, copy);
    const values = news.flatMap(({ chunk, made }) => ('bytes' in made ? { chunk, bytes: made.bytes } : []));
    // All in one turn: values in rooms are put at once.
    const put = values.length > 0 ? this.#below.putAll(values) : undefined;
    for (const { chunk, made } of news) if ('stowed' in made) this.#below.putStowed(chunk, made.stowed);
    await put;
    this.#countChanges([read, ...news.map(({ chunk }) => chunk), ...parts], -1);
  }

  #countChanges(chunks: readonly number[], by: 1 | -1): void {
    for (const chunk of chunks) this.#changing[chunk] = at(this.#changing, chunk) + by;
  }

  /** The value is to be made anew below, by an update: over zeros, where there is none. */
  renewBelow(chunk: number): void {
    if (this.#below.where(chunk) === 'nothing') this.#below.setZero(chunk);
  }

  /** What lies below is of no use any more. */
  forgetBelow(chunk: number): void {
    this.#below.discard(chunk);
  }

  #release(chunk: number): void {
    this.#slots.release(chunk);
    this.#dirty[chunk] = 0;
  }

  /** Every fact that a legal state must satisfy between two moments, for tests. */
  check(): void {
    this.#slots.check();
    this.#below.check();
    for (let chunk = 0; chunk < this.#dirty.length; chunk++) {
      const below = this.below(chunk);
      if (this.isDirty(chunk)) {
        assert(this.onGPU(chunk), `chunk ${chunk} is dirty and not on the GPU`);
        assert(
          this.#durable || below === 'nothing',
          `chunk ${chunk} is dirty, and a useless copy lies below: ${below}`,
        );
      } else assert(!this.onGPU(chunk) || below !== 'nothing', `chunk ${chunk} is clean on the GPU and nowhere else`);
    }
  }
}
