// The all-gathers of chunks in a pass, in their order, for what begins them ahead of their turn (run/gathering.ts). Pure.
//
// Invariant: the list is the same on all ranks along the data axis, since all have the same collectives in the same order.

import { at } from '../../util/at.ts';
import { assert } from '../../util/errors.ts';
import type { CollectiveOperation, Operation } from '../compile/operations.ts';
import { spanOf } from './collectives.ts';

/** An all-gather of a chunk along the data axis. */
export interface ChunkGatherOperation extends CollectiveOperation {
  readonly collective: 'all-gather';
  readonly axis: 'data';
  readonly on: { readonly chunk: number };
}

/** A gather of a chunk in its place among the operations of a pass. */
export interface ChunkGather {
  readonly operation: ChunkGatherOperation;
  readonly owner: number;
  readonly bytes: number;
  /** Nothing gives the chunk another value here between the gather before this one, or the beginning of the pass, and this one. */
  readonly isReady: boolean;
}

/** Gathers whose bytes are in memory at once: one that has begun, and one that others take. */
export const GATHERED_AT_ONCE = 2;

export const isChunkGather = (operation: Operation): operation is ChunkGatherOperation =>
  operation.op === 'collective' &&
  operation.collective === 'all-gather' &&
  operation.axis === 'data' &&
  'chunk' in operation.on;

export function chunkGathersIn(operations: readonly Operation[]): ChunkGather[] {
  const gathers: ChunkGather[] = [];
  /** Since the last of them. */
  const changed = new Set<number>();
  for (const operation of operations) {
    if (isChunkGather(operation)) {
      const { on, parts, label } = operation;
      assert(parts.length === 1, `${label}: one rank has all of it`);
      const { owner } = at(parts, 0);
      gathers.push({ operation, owner, bytes: spanOf(operation), isReady: !changed.has(on.chunk) });
      changed.clear();
    }
    for (const { list, piece, access } of operation.uses) if (access !== 'read') changed.add(list.first + piece.chunk);
  }
  return gathers;
}

/** Bytes of host memory for what is gathered in these passes, which run one at a time. */
export const gatheredBytes = (passes: readonly { readonly operations: readonly Operation[] }[]): number =>
  passes.reduce((most, { operations }) => {
    const gathers = chunkGathersIn(operations);
    return Math.max(most, Math.min(GATHERED_AT_ONCE, gathers.length) * largestOf(gathers));
  }, 0);

/** Bytes of the largest; 0 where there is none. */
export const largestOf = (gathers: readonly Pick<ChunkGather, 'bytes'>[]): number =>
  gathers.reduce((most, { bytes }) => Math.max(most, bytes), 0);
