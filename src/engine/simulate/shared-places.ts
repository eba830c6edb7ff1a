// `SharedPlaces`: waits of moved activations for memory that others share, and of others for theirs: tensors share
// memory (graph/liveness.ts), so what comes back needs the place that others had, and what is written where an
// activation still leaves waits for its copy. Where nothing is moved there is nothing to say. Knows places, not time:
// `C` is whatever a copy or an operation is.
//
// Invariant: of operations, and of copies that take away, each ends no sooner than those before it. So the last stands for all.

import { ArenaParts } from '../../graph/arena-parts.ts';
import type { Placement } from '../../graph/liveness.ts';
import { bytesOf, type Tensor } from '../../graph/program.ts';
import { isChunkRange } from '../compile/operand-places.ts';
import type { DispatchOperation } from '../compile/operations.ts';

/** An arena, and of each of its parts in this step: what used it last, and the copy that takes something away from there last. */
interface Arena<C> {
  readonly parts: ArenaParts;
  readonly used: (Last<C> | undefined)[];
  readonly leaving: (Last<C> | undefined)[];
}

/** The parts of an arena that an activation has: from `first` on, before `end`. */
interface Place<C> {
  readonly arena: Arena<C>;
  readonly first: number;
  readonly end: number;
}

/** A command that is the last of its kind so far, and its number among all. */
interface Last<C> {
  readonly command: C;
  readonly turn: number;
}

export class SharedPlaces<C> {
  readonly #arenas: readonly Arena<C>[];
  readonly #places = new Map<Tensor, Place<C>>();
  readonly #activations = new Map<DispatchOperation, readonly Tensor[]>();
  /** Of each activation in this step: what used it last, and the copies that brought it. */
  readonly #used = new Map<Tensor, C>();
  readonly #arriving = new Map<Tensor, C[]>();
  #turn = 0;

  constructor(placements: readonly Placement[]) {
    const ends = new Map<number, number[]>();
    const all = placements.flatMap(({ places }) => [...places]);
    for (const [tensor, { arena, offset }] of all) {
      const known = ends.get(arena) ?? [];
      ends.set(arena, known);
      known.push(offset, offset + bytesOf(tensor));
    }
    const arenas = new Map<number, Arena<C>>();
    for (const [number, bounds] of ends) arenas.set(number, { parts: new ArenaParts(bounds), used: [], leaving: [] });
    this.#arenas = [...arenas.values()];
    for (const [tensor, { arena: number, offset }] of all) {
      const arena = arenas.get(number);
      if (arena) this.#places.set(tensor, { arena, ...arena.parts.within(offset, offset + bytesOf(tensor)) });
    }
  }

  /** A step begins. */
  restart(): void {
    for (const known of [this.#used, this.#arriving]) known.clear();
    for (const { used, leaving } of this.#arenas) {
      used.length = 0;
      leaving.length = 0;
    }
  }

  /** Those that a dispatch uses. */
  usedBy(operation: DispatchOperation): readonly Tensor[] {
    if (this.#places.size === 0) return NONE;
    const known = this.#activations.get(operation);
    if (known) return known;
    const found: Tensor[] = [];
    for (const operand of Object.values(operation.operands)) {
      if (!isChunkRange(operand) && this.#places.has(operand)) found.push(operand);
    }
    this.#activations.set(operation, found);
    return found;
  }

  /** What must be done before these are used: copies that bring them, and what used the memory of a new one last. */
  ready(activations: readonly Tensor[]): C[] {
    const behind: C[] = [];
    let used: Last<C> | undefined;
    let left: Last<C> | undefined;
    for (const tensor of activations) {
      const arriving = this.#arriving.get(tensor);
      if (arriving) behind.push(...arriving);
      const place = this.#places.get(tensor);
      if (arriving || !place || this.#used.has(tensor)) continue;
      for (let part = place.first; part < place.end; part++) {
        used = later(used, place.arena.used[part]);
        left = later(left, place.arena.leaving[part]);
      }
    }
    if (used) behind.push(used.command);
    if (left) behind.push(left.command);
    return behind;
  }

  used(activations: readonly Tensor[], by: C): void {
    if (activations.length === 0) return;
    const last = { command: by, turn: this.#turn++ };
    for (const tensor of activations) {
      this.#used.set(tensor, by);
      const place = this.#places.get(tensor);
      if (place) mark(place.arena.used, place, last);
    }
  }

  /** What a copy of it is behind. */
  writers(tensor: Tensor): C[] {
    const used = this.#used.get(tensor);
    return used === undefined ? [] : [used];
  }

  leaves(tensor: Tensor, copy: C | undefined): void {
    const place = this.#places.get(tensor);
    if (copy !== undefined && place) mark(place.arena.leaving, place, { command: copy, turn: this.#turn++ });
  }

  arrives(tensor: Tensor, copy: C): void {
    this.#arriving.set(tensor, [...(this.#arriving.get(tensor) ?? []), copy]);
  }
}

const NONE: readonly Tensor[] = [];

function mark<C>(parts: (Last<C> | undefined)[], { first, end }: Place<C>, last: Last<C>): void {
  for (let part = first; part < end; part++) parts[part] = last;
}

const later = <C>(a: Last<C> | undefined, b: Last<C> | undefined): Last<C> | undefined =>
  a && (!b || b.turn < a.turn) ? a : b;
