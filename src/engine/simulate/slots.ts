// `SimulatedSlots`: which commands the bytes in the slots of the GPU are behind, on the simulated clock; which chunk is in
// which slot is said by the table that the executor goes by too.

import type { SlotChanges } from '../../memory/plan/extra-slots.ts';
import { assert } from '../../util/errors.ts';
import type { SlotTable } from '../compile/slot-table.ts';
import type { Command } from './link.ts';

/** A chunk on the GPU. */
export interface Resident {
  /** What brought it, what used it last, and the copies of it that went down since it changed. */
  load: Command | undefined;
  use: Command | undefined;
  stores: Command[];
  dirty: boolean;
}

/** A slot for a chunk. */
export interface Taken {
  /** Whether the chunk's own bytes are in it. */
  readonly same: boolean;
  /** What used it last. */
  readonly after: readonly (Command | undefined)[];
}

export class SimulatedSlots {
  readonly table: SlotTable;
  /** By chunk. */
  readonly #residents: (Resident | undefined)[];
  /** By slot: what used it last. */
  readonly #usedBy = new Map<number, readonly (Command | undefined)[]>();

  constructor(table: SlotTable, chunks: number) {
    this.table = table;
    this.#residents = Array.from({ length: chunks }, () => undefined);
  }

  /** Of what is on the GPU. */
  get chunks(): number[] {
    return this.table.residents();
  }

  has(chunk: number): boolean {
    return this.#residents[chunk] !== undefined;
  }

  get(chunk: number): Resident {
    const found = this.#residents[chunk];
    assert(found, `chunk ${chunk} is not on the GPU`);
    return found;
  }

  /** A free slot: as `SlotTable.take`. */
  take(chunk: number, leaves: number): Taken {
    const same = this.table.take(chunk, leaves);
    return { same, after: this.#usedBy.get(this.table.of(chunk)) ?? [] };
  }

  /** The chunk is in the slot that was taken for it. */
  place(chunk: number, resident: Partial<Resident>): void {
    const { load, use, stores = [], dirty = false } = resident;
    this.#residents[chunk] = { load, use, stores, dirty };
  }

  release(chunk: number): void {
    this.#usedBy.set(this.table.of(chunk), behind(this.get(chunk)));
    this.#residents[chunk] = undefined;
    this.table.release(chunk);
  }

  /**
   * Extra slots begin and end to serve, as in run/slot-changes.ts; `used` used the activations there last, `copy` copies a chunk
   * from one slot to another. Returns what must be done before activations lie where slots were.
   */
  change(
    { opens, closes }: SlotChanges,
    leaves: (chunk: number) => number,
    used: Command | undefined,
    copy: Copy,
  ): (Command | undefined)[] {
    const { table } = this;
    for (const { slot, until } of opens) {
      table.open(slot, until);
      this.#usedBy.set(table.always + slot, [used]);
    }
    const inside = closes.map((slot) => ({ slot: table.always + slot, chunk: table.close(slot) }));
    return inside.flatMap(({ slot, chunk }) => {
      if (chunk === undefined) return this.#usedBy.get(slot) ?? [];
      const { stores } = this.get(chunk);
      return [this.#move(chunk, leaves(chunk), copy), ...stores];
    });
  }

  /** The chunk gets another slot. Returns the last copy. */
  #move(chunk: number, leaves: number, copy: Copy): Command | undefined {
    const chunkIn = new Map(this.chunks.map((other) => [this.table.of(other), other]));
    let last: Command | undefined;
    for (const { from, to } of this.table.move(chunk, leaves)) {
      const moved = chunkIn.get(from);
      assert(moved !== undefined, 'a chunk is where it is copied from');
      const resident = this.get(moved);
      last = copy([...behind(resident), ...(this.#usedBy.get(to) ?? [])]);
      resident.load = last;
      this.#usedBy.set(from, [last, ...resident.stores]);
    }
    return last;
  }
}

type Copy = (after: readonly (Command | undefined)[]) => Command;

const behind = ({ load, use, stores }: Resident): (Command | undefined)[] => [load, use, ...stores];
