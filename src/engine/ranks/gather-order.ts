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
  /** Behind so many gathers of the pass nothing gives the chunk another value here until this one; more than are before it: not before its turn. */
  readonly readyFrom: number;
}

/** Bytes of host memory that values on their way may take at once, beside two of them. */
const MOST_BYTES = 2 ** 28;

/** Values of so many bytes at most that are on their way at once among so many ranks, so that the links of all of them work. */
export const valuesAtOnce = (ranks: number, largest: number): number =>
  Math.max(1, Math.min(ranks, Math.floor(MOST_BYTES / largest)));

/** Gathers of a pass whose bytes are in memory at once: those that have begun, and one that others take. */
export const gatheredAtOnce = (ranks: number, gathers: number, largest: number): number =>
  Math.min(gathers, valuesAtOnce(ranks, largest) + 1);

export const isChunkGather = (operation: Operation): operation is ChunkGatherOperation =>
  operation.op === 'collective' &&
  operation.collective === 'all-gather' &&
  operation.axis === 'data' &&
  'chunk' in operation.on;

export function chunkGathersIn(operations: readonly Operation[]): ChunkGather[] {
  const gathers: ChunkGather[] = [];
  /** By chunk, how many gathers were before its last change. */
  const changedAt = new Map<number, number>();
  for (const operation of operations) {
    if (isChunkGather(operation)) {
      const { on, parts, label } = operation;
      assert(parts.length === 1, `${label}: one rank has all of it`);
      const { owner } = at(parts, 0);
      const changed = changedAt.get(on.chunk);
      gathers.push({ operation, owner, bytes: spanOf(operation), readyFrom: changed === undefined ? 0 : changed + 1 });
    }
    for (const { list, piece, access } of operation.uses)
      if (access !== 'read') changedAt.set(list.first + piece.chunk, gathers.length);
  }
  return gathers;
}

/** Bytes of host memory for what so many ranks gather in these passes, which run one at a time. */
export const gatheredBytes = (
  passes: readonly { readonly operations: readonly Operation[] }[],
  ranks: number,
): number =>
  passes.reduce((most, { operations }) => {
    const gathers = chunkGathersIn(operations);
    const largest = largestOf(gathers);
    return Math.max(most, gatheredAtOnce(ranks, gathers.length, largest) * largest);
  }, 0);

/** Bytes of the largest; 0 where there is none. */
export const largestOf = (gathers: readonly Pick<ChunkGather, 'bytes'>[]): number =>
  gathers.reduce((most, { bytes }) => Math.max(most, bytes), 0);
