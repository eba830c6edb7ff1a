// `SharedPlaces`: waits of moved activations for memory that others share, and of others for theirs: tensors share
// memory (graph/liveness.ts), so what comes back needs the place that others had, and what is written where an
// activation still leaves waits for its copy. Where nothing is moved there is nothing to say. Knows places, not time:
// `C` is whatever a copy or an operation is.
//
// Invariant: of operations, and of copies that take away, each ends no sooner than those before it. So the last stands for all.

import type { Placement } from '../../graph/liveness.ts';
import { bytesOf, type Tensor } from '../../graph/program.ts';
import { at } from '../../util/at.ts';
import { isChunkRange } from '../compile/operand-places.ts';
import type { DispatchOperation } from '../compile/operations.ts';

/** Activations of one arena: where each begins and ends in it, in bytes. */
interface Arena {
  readonly tensors: Tensor[];
  readonly from: number[];
  readonly to: number[];
}

/** A command that is the last of its kind so far, and its number among all. */
interface Last<C> {
  readonly command: C;
  readonly turn: number;
}

export class SharedPlaces<C> {
  readonly #arenas: Arena[] = [];
  readonly #places = new Map<Tensor, { readonly arena: Arena; readonly from: number; readonly to: number }>();
  readonly #overlaps = new Map<Tensor, readonly Tensor[]>();
  readonly #activations = new Map<DispatchOperation, readonly Tensor[]>();
  /** Of each activation in this step: what used it last, the copy that takes it away last, and those that brought it. */
  readonly #used = new Map<Tensor, Last<C>>();
  readonly #leaving = new Map<Tensor, Last<C>>();
  readonly #arriving = new Map<Tensor, C[]>();
  #turn = 0;

  constructor(placements: readonly Placement[]) {
    for (const { places } of placements) {
      for (const [tensor, { arena: number, offset: from }] of places) {
        const arena = this.#arenas[number] ?? { tensors: [], from: [], to: [] };
        this.#arenas[number] = arena;
        const to = from + bytesOf(tensor);
        arena.tensors.push(tensor);
        arena.from.push(from);
        arena.to.push(to);
        this.#places.set(tensor, { arena, from, to });
      }
    }
  }

  /** A step begins. */
  restart(): void {
    for (const known of [this.#used, this.#leaving, this.#arriving]) known.clear();
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
      if (arriving || this.#used.has(tensor)) continue;
      for (const other of this.#overlapping(tensor)) {
        used = later(used, this.#used.get(other));
        left = later(left, this.#leaving.get(other));
      }
    }
    if (used) behind.push(used.command);
    if (left) behind.push(left.command);
    return behind;
  }

  used(activations: readonly Tensor[], by: C): void {
    if (activations.length === 0) return;
    const last = { command: by, turn: this.#turn++ };
    for (const tensor of activations) this.#used.set(tensor, last);
  }

  /** What a copy of it is behind. */
  writers(tensor: Tensor): C[] {
    const used = this.#used.get(tensor);
    return used === undefined ? [] : [used.command];
  }

  leaves(tensor: Tensor, copy: C | undefined): void {
    if (copy !== undefined) this.#leaving.set(tensor, { command: copy, turn: this.#turn++ });
  }

  arrives(tensor: Tensor, copy: C): void {
    this.#arriving.set(tensor, [...(this.#arriving.get(tensor) ?? []), copy]);
  }

  #overlapping(tensor: Tensor): readonly Tensor[] {
    const known = this.#overlaps.get(tensor);
    if (known) return known;
    const found: Tensor[] = [];
    const own = this.#places.get(tensor);
    if (own) {
      const { tensors, from, to } = own.arena;
      for (let i = 0; i < tensors.length; i++) {
        if (at(from, i) < own.to && own.from < at(to, i) && tensors[i] !== tensor) found.push(at(tensors, i));
      }
    }
    this.#overlaps.set(tensor, found);
    return found;
  }
}

const NONE: readonly Tensor[] = [];

const later = <C>(a: Last<C> | undefined, b: Last<C> | undefined): Last<C> | undefined =>
  a && (!b || b.turn < a.turn) ? a : b;
