// `SimulatedSlots`: which chunk is in which slot of the GPU on the simulated clock, and which commands its bytes are behind, by
// the rules of run/slots.ts: a chunk comes back to its last slot where that is free.

import { assert } from '../../util/errors.ts';
import type { Command } from './link.ts';

/** A chunk on the GPU. */
export interface Resident {
  readonly slot: number;
  /** What brought it, what used it last, and the copies of it that went down since it changed. */
  load: Command | undefined;
  use: Command | undefined;
  stores: Command[];
  dirty: boolean;
}

/** A slot for a chunk. */
export interface Taken {
  readonly slot: number;
  /** Whether the chunk's own bytes are in it. */
  readonly same: boolean;
  /** What used it last. */
  readonly after: readonly (Command | undefined)[];
}

export class SimulatedSlots {
  readonly #residents = new Map<number, Resident>();
  readonly #free: number[] = [];
  readonly #lastSlot = new Map<number, number>();
  /** By slot: whose bytes are in it, and what used it last. */
  readonly #bytesOf = new Map<number, number>();
  readonly #usedBy = new Map<number, readonly (Command | undefined)[]>();

  constructor(count: number) {
    for (let slot = count - 1; slot >= 0; slot--) this.#free.push(slot);
  }

  /** Of what is on the GPU. */
  get chunks(): number[] {
    return [...this.#residents.keys()];
  }

  has(chunk: number): boolean {
    return this.#residents.has(chunk);
  }

  get(chunk: number): Resident {
    const found = this.#residents.get(chunk);
    assert(found, `chunk ${chunk} is not on the GPU`);
    return found;
  }

  /** A free slot: the chunk's last one if that is. */
  take(chunk: number): Taken {
    const before = this.#free.lastIndexOf(this.#lastSlot.get(chunk) ?? -1);
    const [slot] = this.#free.splice(before >= 0 ? before : this.#free.length - 1, 1);
    assert(slot !== undefined, `no slot is free for chunk ${chunk}`);
    const same = this.#bytesOf.get(slot) === chunk;
    this.#lastSlot.set(chunk, slot);
    this.#bytesOf.set(slot, chunk);
    return { slot, same, after: this.#usedBy.get(slot) ?? [] };
  }

  /** The chunk is in a slot that was taken for it. */
  place(chunk: number, resident: Pick<Resident, 'slot'> & Partial<Resident>): void {
    this.#residents.set(chunk, { load: undefined, use: undefined, stores: [], dirty: false, ...resident });
  }

  release(chunk: number): void {
    const { slot, load, use, stores } = this.get(chunk);
    this.#residents.delete(chunk);
    this.#usedBy.set(slot, [load, use, ...stores]);
    this.#free.push(slot);
  }
}
