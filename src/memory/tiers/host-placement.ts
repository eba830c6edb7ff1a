// `HostPlacement`: which value leaves host memory when a slot is needed, which block a value goes to,
// and what it takes until a slot is ready. Policy and bookkeeping; Backing decides when and for which chunk.
//
// Invariant: only a copy of a value that lies elsewhere too (or zeros) is ever dropped. A value's only copy keeps
// its slot, held, until it is written to a block; if that fails it stays.

import { at } from '../../util/at.ts';
import { assert } from '../../util/errors.ts';
import type { DiskTier } from './disk-tier.ts';
import { type HostTier, NO_OWNER, type Slot } from './host-tier.ts';

export const NOWHERE = -1;

/** Where a chunk's value lies; nowhere if it has none. */
export interface Located {
  readonly id: number;
  /** The slot of host memory that holds it, if one does. */
  slot: Slot | undefined;
  /** The block on disk that holds it, or NOWHERE. */
  block: number;
  /** It is zeros: no slot or block needs to hold it, though a slot may. */
  zero: boolean;
}

/** A held slot; if `leaving` is given, once that chunk's value, its only copy, is written to `block`. */
export interface Claim {
  readonly slot: Slot;
  readonly leaving?: { readonly chunk: Located; readonly block: number };
}

/** Where a new value will lie: in a slot, its own or a claimed one, or in a block. */
export type Target = Claim | { readonly block: number };

/** A value that also lies below its slot, or can be had for nothing. */
export const isClean = ({ block, zero }: Located): boolean => zero || block !== NOWHERE;

export class HostPlacement {
  /** When a chunk is needed next: a larger number is later. */
  nextUse: (chunk: number) => number = () => 0;
  readonly #chunks: readonly Located[];
  readonly #host: HostTier;
  readonly #disk: DiskTier | undefined;

  constructor(chunks: readonly Located[], host: HostTier, disk: DiskTier | undefined) {
    this.#chunks = chunks;
    this.#host = host;
    this.#disk = disk;
  }

  /** How many values more there is a place for, now; every way to take one uses up exactly one. */
  count(): number {
    let count = this.#host.available + (this.#disk?.available ?? 0);
    for (const { owner, holds, lent } of this.#host.slots) {
      if (owner === NO_OWNER) continue;
      const { zero, block } = at(this.#chunks, owner);
      if (block !== NOWHERE || (zero && holds === 0 && !lent)) count++;
    }
    return count;
  }

  /** When a chunk that has a slot is needed next. Zeros come back at no cost: as good as never. */
  rank({ id, zero }: Located): number {
    return zero ? Number.POSITIVE_INFINITY : this.nextUse(id);
  }

  /** A slot, held: a free one, or the victim's if it may leave. Undefined if there is none, or no block for it. */
  claim(mayLeave: (victim: Located) => boolean, onlyClean = false): Claim | undefined {
    const free = this.#host.take();
    if (free) return { slot: free };
    const chunk = this.#victim(onlyClean);
    const slot = chunk?.slot;
    if (!slot || !mayLeave(chunk)) return undefined;
    if (isClean(chunk)) {
      this.#leave(chunk);
      const freed = this.#host.take();
      assert(freed, 'a clean chunk left its slot');
      return { slot: freed };
    }
    const place = this.claimBlock();
    if (!place) return undefined;
    this.#host.hold(slot);
    return { slot, leaving: { chunk, block: place.block } };
  }

  /** A slot, at the cost of the chunk that is needed last. */
  claimAny(): Claim | undefined {
    return this.claim(() => true) ?? this.claim(() => true, true);
  }

  /** A block: a free one, or that of a chunk which lies in host memory as well, the soonest needed. */
  claimBlock(): { readonly block: number } | undefined {
    const free = this.#disk?.take();
    if (free !== undefined) return { block: free };
    let soonest: Located | undefined;
    for (const { owner } of this.#host.slots) {
      // One that is being read into.
      if (owner === NO_OWNER) continue;
      const chunk = at(this.#chunks, owner);
      if (chunk.block !== NOWHERE && !(soonest && this.rank(soonest) <= this.rank(chunk))) soonest = chunk;
    }
    if (!soonest) return undefined;
    const { block } = soonest;
    soonest.block = NOWHERE;
    return { block };
  }

  giveBack(place: Target): void {
    if ('slot' in place) this.#host.release(place.slot);
    else this.#disk?.free(place.block);
  }

  /** Makes a claimed slot ready to be written: its value goes to disk, everything that was lent it has run. */
  async empty({ slot, leaving }: Claim): Promise<void> {
    if (!leaving) return;
    const { chunk, block } = leaving;
    await this.#copyToBlock(chunk, slot, block, true);
    while (slot.lent) await this.#host.turnEnd();
  }

  /**
   * Begins to write a value that will leave soon, as one of so many, and is nowhere else: then it leaves for nothing. Undefined where
   * there is none, or no free block.
   */
  writeAhead(soon: number): Promise<void> | undefined {
    const chunk = this.#dirtyAmong(soon);
    const slot = chunk?.slot;
    const block = slot && this.#disk?.take();
    if (!chunk || !slot || block === undefined) return undefined;
    this.#host.hold(slot);
    return this.#copyToBlock(chunk, slot, block, false).finally(() => this.#host.release(slot));
  }

  /** Of a slot that is held. `leaves`: in the same turn, since a block of what is in host memory, too, may be taken for another. */
  async #copyToBlock(chunk: Located, slot: Slot, block: number, leaves: boolean): Promise<void> {
    try {
      await this.#disk?.write(block, chunk.id, slot.bytes);
    } catch (error) {
      this.#disk?.free(block);
      throw error;
    }
    // In the meantime it may have got another value, elsewhere: this slot is held.
    if (chunk.slot !== slot) {
      this.#disk?.free(block);
      return;
    }
    assert(chunk.block === NOWHERE, `chunk ${chunk.id} is written twice at once`);
    chunk.block = block;
    if (leaves) this.#leave(chunk);
  }

  /** What lies below its slot too, and is counted on by nothing, leaves it. */
  leaveIfClean(chunk: Located): void {
    if (isClean(chunk) && chunk.slot?.holds === 0) this.#leave(chunk);
  }

  /** The value is dead, wherever it lies. */
  vacate(chunk: Located): void {
    this.#leave(chunk);
    this.freeBlock(chunk);
    chunk.zero = false;
  }

  freeBlock(chunk: Located): void {
    if (chunk.block !== NOWHERE) this.#disk?.free(chunk.block);
    chunk.block = NOWHERE;
  }

  /** The value stays where it lies below, the slot goes. */
  #leave(chunk: Located): void {
    if (chunk.slot) this.#host.disown(chunk.slot);
    chunk.slot = undefined;
  }

  /** The first to leave of those that are nowhere else, if it is among the first `soon` of all. */
  #dirtyAmong(soon: number): Located | undefined {
    const owners = this.#host.slots.flatMap(({ owner, holds }) =>
      owner === NO_OWNER || holds > 0 ? [] : at(this.#chunks, owner),
    );
    const ranked = owners.map((chunk) => ({ chunk, rank: this.rank(chunk) }));
    ranked.sort((a, b) => (a.rank === b.rank ? 0 : b.rank - a.rank));
    return ranked.slice(0, soon).find(({ chunk }) => !isClean(chunk))?.chunk;
  }

  /** The owner that leaves first: furthest next use, of equals a clean one. `onlyClean`: among those alone. */
  #victim(onlyClean: boolean): Located | undefined {
    let best: Located | undefined;
    for (const { owner, holds, lent } of this.#host.slots) {
      if (owner === NO_OWNER || holds > 0 || lent) continue;
      const chunk = at(this.#chunks, owner);
      if (onlyClean && !isClean(chunk)) continue;
      const later = best ? this.rank(chunk) - this.rank(best) : 1;
      // NaN: both are never needed.
      if (!best || later > 0 || (!(later < 0) && isClean(chunk) && !isClean(best))) best = chunk;
    }
    return best;
  }
}
