// `SlotTable`: the slots, the chunk in each, and those that can take one: those that there always are, and extra ones
// among the activations while those leave them free. A chunk gets the slot that it had last if that is free and stays
// so for long enough, so that a step repeated finds the bind groups of the step before. Knows no plan and no buffer;
// the simulated executor uses it too.
//
// Invariant: a slot holds one chunk at most; one that does not serve gets none, and what is in it when it ends to serve moves.

import { at } from '../../util/at.ts';
import { assert } from '../../util/errors.ts';

const NONE = -1;

export class SlotTable {
  /** Slots in all, and those that there always are; the extra ones come behind these. */
  readonly count: number;
  readonly always: number;
  /** Of the extra ones: the arena of each. No copy goes from one range of a buffer to another. */
  readonly #arenas: readonly number[];
  /** By slot: the moment before which it ends to serve; 0 while it does not. */
  readonly #until: Float64Array;
  /** By slot: the chunk in it, and whose bytes are in it. */
  readonly #chunkIn: Int32Array;
  readonly #bytesOf: Int32Array;
  /** By chunk. */
  readonly #slotOf: Int32Array;
  readonly #lastSlot: Int32Array;
  /** Slots that serve and hold nothing; the one to be taken first comes last: what lay there has had the longest to leave. */
  readonly #free: number[] = [];

  constructor(always: number, arenas: readonly number[], chunks: number) {
    this.always = always;
    this.#arenas = arenas;
    this.count = always + arenas.length;
    for (let slot = always - 1; slot >= 0; slot--) this.#free.push(slot);
    this.#until = new Float64Array(this.count).fill(Number.POSITIVE_INFINITY, 0, always);
    this.#chunkIn = new Int32Array(this.count).fill(NONE);
    this.#bytesOf = new Int32Array(this.count).fill(NONE);
    this.#slotOf = new Int32Array(chunks).fill(NONE);
    this.#lastSlot = new Int32Array(chunks).fill(NONE);
  }

  holds(chunk: number): boolean {
    return this.#slotOf[chunk] !== NONE;
  }

  /** The slot of a chunk that is here. */
  of(chunk: number): number {
    const slot = at(this.#slotOf, chunk);
    assert(slot !== NONE, `chunk ${chunk} is not on the GPU`);
    return slot;
  }

  /** Slots that serve at times. */
  get extra(): number {
    return this.#arenas.length;
  }

  /** Chunks in slots that serve at times. */
  get among(): number {
    return this.#chunkIn.subarray(this.always).reduce((sum, chunk) => sum + (chunk === NONE ? 0 : 1), 0);
  }

  get free(): number {
    return this.#free.length;
  }

  /** Chunks that are here, ascending. */
  residents(): number[] {
    const found: number[] = [];
    this.#slotOf.forEach((slot, chunk) => {
      if (slot !== NONE) found.push(chunk);
    });
    return found;
  }

  /**
   * Gives a chunk, which stays until the moment `leaves` if nothing else happens, a free slot. Returns whether the bytes in
   * it are the chunk's own of before.
   */
  take(chunk: number, leaves = Number.POSITIVE_INFINITY): boolean {
    assert(!this.holds(chunk), `chunk ${chunk} is already on the GPU`);
    const slot = this.#choose(chunk, leaves, () => true);
    assert(slot !== undefined, `no slot is free for chunk ${chunk}`);
    const same = this.#bytesOf[slot] === chunk;
    this.#put(chunk, slot);
    return same;
  }

  release(chunk: number): void {
    const slot = this.of(chunk);
    this.#slotOf[chunk] = NONE;
    this.#chunkIn[slot] = NONE;
    if (at(this.#until, slot) > 0) this.#free.unshift(slot);
    else this.#bytesOf[slot] = NONE;
  }

  // ---- Extra slots ------------------------------------------------------------------------------------

  /** From now on an extra slot serves, until a moment. */
  open(extra: number, until: number): void {
    const slot = this.always + extra;
    const serves = at(this.#until, slot) > 0;
    this.#until[slot] = until;
    if (!serves && this.#chunkIn[slot] === NONE) this.#free.push(slot);
  }

  /** From now on it does not. Returns the chunk in it, which must leave or move. */
  close(extra: number): number | undefined {
    const slot = this.always + extra;
    if (at(this.#until, slot) > 0 && this.#chunkIn[slot] === NONE) this.#free.splice(this.#free.lastIndexOf(slot), 1);
    this.#until[slot] = 0;
    const chunk = at(this.#chunkIn, slot);
    if (chunk !== NONE) return chunk;
    this.#bytesOf[slot] = NONE;
    return undefined;
  }

  /**
   * Gives a chunk another slot, which must be free. Returns the copies, in order, that take the bytes there: two, the first of
   * another chunk that makes room for it, where all free slots lie in the buffer of its own.
   */
  move(chunk: number, leaves: number): readonly { readonly from: number; readonly to: number }[] {
    const from = this.of(chunk);
    const elsewhere = this.#choose(chunk, leaves, (slot) => this.#arenaOf(slot) !== this.#arenaOf(from));
    if (elsewhere !== undefined) {
      this.release(chunk);
      this.#put(chunk, elsewhere);
      return [{ from, to: elsewhere }];
    }
    const beside = this.#free.at(-1);
    assert(beside !== undefined, `no slot is free for chunk ${chunk} to move to`);
    const between = this.#chunkIn.subarray(0, this.always).findIndex((other) => other !== NONE);
    assert(between !== NONE, 'a slot that there always is would be free');
    const other = at(this.#chunkIn, between);
    this.release(other);
    this.#put(other, beside);
    this.release(chunk);
    this.#put(chunk, between);
    return [
      { from: between, to: beside },
      { from, to: between },
    ];
  }

  #arenaOf(slot: number): number | undefined {
    return slot < this.always ? undefined : at(this.#arenas, slot - this.always);
  }

  /** The last slot; else the one that serves long enough and not much longer; else the one that serves longest. */
  #choose(chunk: number, leaves: number, mayBe: (slot: number) => boolean): number | undefined {
    const last = at(this.#lastSlot, chunk);
    const isFree = last !== NONE && this.#chunkIn[last] === NONE && at(this.#until, last) >= leaves;
    if (isFree && mayBe(last)) return last;
    let best: number | undefined;
    for (let i = this.#free.length - 1; i >= 0; i--) {
      const slot = at(this.#free, i);
      if (mayBe(slot) && (best === undefined || this.#isBetter(slot, best, leaves))) best = slot;
    }
    return best;
  }

  #isBetter(slot: number, than: number, leaves: number): boolean {
    const [own, other] = [at(this.#until, slot), at(this.#until, than)];
    if (own >= leaves) return other < leaves || own < other;
    return own > other;
  }

  #put(chunk: number, slot: number): void {
    this.#free.splice(this.#free.lastIndexOf(slot), 1);
    this.#chunkIn[slot] = chunk;
    this.#bytesOf[slot] = chunk;
    this.#slotOf[chunk] = slot;
    this.#lastSlot[chunk] = slot;
  }

  /** Every fact that a legal state must satisfy, for tests. */
  check(): void {
    const taken = this.residents().map((chunk) => this.of(chunk));
    assert(new Set(taken).size === taken.length, 'a slot is taken twice');
    assert(new Set(this.#free).size === this.#free.length, 'a slot is free twice');
    this.#chunkIn.forEach((chunk, slot) => {
      assert(chunk === NONE || this.#slotOf[chunk] === slot, `slot ${slot} holds a chunk that is elsewhere`);
      const serves = at(this.#until, slot) > 0;
      assert(this.#free.includes(slot) === (serves && chunk === NONE), `slot ${slot} is free and taken, or neither`);
      assert(serves || chunk === NONE, `slot ${slot} does not serve and holds chunk ${chunk}`);
    });
    assert(
      taken.every((slot) => this.#chunkIn[slot] !== NONE),
      'a slot is taken and holds nothing',
    );
  }
}
