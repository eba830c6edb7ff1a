// Copies in f16 of what trains, given up behind their last use in a step before their update: the gradient, once it is rounded,
// takes no more than they did, and AdamW makes them again from the float32 beside them, at the step's end or inside its backward
// pass. Of bf16 there is no copy, only halves of the float32, which hold what nothing else has.
//
// Invariant: an index is released by an operation that uses it, and by none but the last before its update.

import type { ChunkMap } from '../../memory/layout/chunk-map.ts';
import { COPY_KIND } from '../../memory/layout/kinds.ts';
import { releasing } from '../ranks/gathers.ts';
import type { Operation } from './operations.ts';

/** The operations of a step. */
export function withCopiesReleased(operations: readonly Operation[], map: ChunkMap): readonly Operation[] {
  if (!map.trainedKinds.includes(COPY_KIND)) return operations;
  const list = map.list(COPY_KIND);
  const indexOf = new Map(map.trainable.used.flatMap((_, i) => map.piecesIn(COPY_KIND, i).map((piece) => [piece, i])));
  const last = new Map<number, number>();
  operations.forEach(({ phase, each, uses }, i) => {
    if (phase === 'update' || each?.completes.includes(COPY_KIND)) return;
    for (const { list: used, piece } of uses) {
      const index = used === list ? indexOf.get(piece) : undefined;
      if (index !== undefined) last.set(index, i);
    }
  });
  const released = new Map<number, number[]>();
  for (const [index, i] of last) released.set(i, [...(released.get(i) ?? []), index]);
  return operations.map((operation, i) => {
    const given = released.get(i);
    if (!given) return operation;
    // What is gathered for each phase is given up behind each, too.
    const again = operation.releases?.filter((index) => (last.get(index) ?? -1) > i) ?? [];
    return releasing(operation, [...again, ...given]);
  });
}
