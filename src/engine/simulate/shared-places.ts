// Waits of moved activations for memory that others share, and of others for theirs: tensors share memory
// (graph/liveness.ts), so what comes back needs the place that others had, and what is written where an activation
// still leaves waits for its copy. Where nothing is moved there is nothing to say. Knows places, not time: `C` is
// whatever a copy or an operation is.

import type { Placement } from '../../graph/liveness.ts';
import { bytesOf, type Tensor } from '../../graph/program.ts';
import type { ChunkRange } from '../compile/operand-places.ts';

export class SharedPlaces<C> {
  readonly #places = new Map<Tensor, { arena: number; from: number; to: number }>();
  readonly #overlaps = new Map<Tensor, readonly Tensor[]>();
  /** Of each activation in this step: what used it last, the copies that take it away, and those that brought it. */
  readonly #used = new Map<Tensor, C>();
  readonly #leaving = new Map<Tensor, C[]>();
  readonly #arriving = new Map<Tensor, C[]>();

  constructor(placements: readonly Placement[]) {
    for (const { places } of placements) {
      for (const [tensor, { arena, offset }] of places) {
        this.#places.set(tensor, { arena, from: offset, to: offset + bytesOf(tensor) });
      }
    }
  }

  /** A step begins. */
  restart(): void {
    for (const known of [this.#used, this.#leaving, this.#arriving]) known.clear();
  }

  /** What must be done before these are used: copies that bring them, and all that the memory of a new one was used by. */
  ready(operands: readonly (Tensor | ChunkRange)[]): C[] {
    return this.#activations(operands).flatMap((tensor) => {
      const arriving = this.#arriving.get(tensor) ?? [];
      if (this.#used.has(tensor) || arriving.length > 0) return arriving;
      return this.#overlapping(tensor).flatMap((other) => {
        const used = this.#used.get(other);
        return [...(used === undefined ? [] : [used]), ...(this.#leaving.get(other) ?? [])];
      });
    });
  }

  used(operands: readonly (Tensor | ChunkRange)[], by: C): void {
    for (const tensor of this.#activations(operands)) this.#used.set(tensor, by);
  }

  /** What a copy of it is behind. */
  writers(tensor: Tensor): C[] {
    const used = this.#used.get(tensor);
    return used === undefined ? [] : [used];
  }

  leaves(tensor: Tensor, copy: C | undefined): void {
    if (copy !== undefined) this.#leaving.set(tensor, [...(this.#leaving.get(tensor) ?? []), copy]);
  }

  arrives(tensor: Tensor, copy: C): void {
    this.#arriving.set(tensor, [...(this.#arriving.get(tensor) ?? []), copy]);
  }

  #activations(operands: readonly (Tensor | ChunkRange)[]): Tensor[] {
    if (this.#places.size === 0) return [];
    return operands.filter((operand): operand is Tensor => !('chunk' in operand) && this.#places.has(operand));
  }

  #overlapping(tensor: Tensor): readonly Tensor[] {
    const known = this.#overlaps.get(tensor);
    if (known) return known;
    const own = this.#places.get(tensor);
    const found = [...this.#places].flatMap(([other, { arena, from, to }]) =>
      own && other !== tensor && arena === own.arena && from < own.to && own.from < to ? [other] : [],
    );
    this.#overlaps.set(tensor, found);
    return found;
  }
}
