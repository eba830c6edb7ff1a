// ZeRO 3: parameters that only their owners keep, gathered for use and given back. In the forward pass of a micro-batch, and
// again in its backward pass, a chunk is there from its first use to its last. Pure.
//
// Invariant: between two such uses a chunk has a value on its owner alone. The order of gathers follows the order of uses,
// which is the same on all ranks that treat activations alike (train/run/ranks.ts has them compared).

import type { Phase } from '../../graph/program.ts';
import type { ChunkMap } from '../../memory/layout/chunk-map.ts';
import type { Operation } from '../compile/operations.ts';
import { chunkCollective, indicesOf } from './collectives.ts';
import { onlyOwnerOf, type Sharding } from './sharding.ts';

/** Operations in their order, and where in it each micro-batch begins. */
export interface Ordered {
  readonly operations: readonly Operation[];
  readonly starts: readonly number[];
}

/** Where a chunk is needed in one phase of one micro-batch. */
interface Stay {
  /** By its place in the list of what kernels read as parameters. */
  readonly place: number;
  readonly phase: Phase;
  readonly first: number;
  last: number;
}

export function withGathers({ operations, starts }: Ordered, map: ChunkMap, sharding: Sharding): Ordered {
  if (sharding.stage < 3 || sharding.size === 1) return { operations, starts };
  const stays = staysIn(operations, map);
  const { kind, first: firstChunk } = map.list(map.readKind);
  const gathers = new Map<number, Operation[]>();
  const releases = new Map<number, number[]>();
  for (const { place, phase, first, last } of stays) {
    const isOwn = onlyOwnerOf(firstChunk + place, map, sharding) === sharding.rank;
    const gather = chunkCollective('all-gather', kind, place, isOwn ? 'read' : 'write', map, sharding);
    gathers.set(first, [...(gathers.get(first) ?? []), { ...gather, phase }]);
    if (!isOwn) releases.set(last, [...(releases.get(last) ?? []), ...indicesOf(kind, place, map)]);
  }
  const all: Operation[] = [];
  const begins = new Map<number, number>();
  operations.forEach((operation, i) => {
    begins.set(i, all.length);
    all.push(...(gathers.get(i) ?? []));
    const given = releases.get(i);
    all.push(given ? releasing(operation, given) : operation);
  });
  return { operations: all, starts: starts.map((start) => begins.get(start) ?? all.length) };
}

/** In the order of their first uses. */
function staysIn(operations: readonly Operation[], map: ChunkMap): Stay[] {
  const stays: Stay[] = [];
  const read = map.list(map.readKind);
  let phase: Phase | undefined;
  let now = new Map<number, Stay>();
  operations.forEach((operation, i) => {
    if (operation.phase === 'update') return;
    if (operation.phase !== phase) now = new Map();
    phase = operation.phase;
    for (const { list, piece } of operation.uses) {
      if (list !== read) continue;
      const known = now.get(piece.chunk);
      if (known) known.last = i;
      else {
        const stay = { place: piece.chunk, phase, first: i, last: i };
        now.set(piece.chunk, stay);
        stays.push(stay);
      }
    }
  });
  return stays;
}

/** Operations that several micro-batches share stay shared: what is made ready for one is for all. */
const released = new WeakMap<Operation, Map<string, Operation>>();

export function releasing(operation: Operation, releases: readonly number[]): Operation {
  const known = released.get(operation) ?? new Map<string, Operation>();
  released.set(operation, known);
  const found = known.get(releases.join()) ?? { ...operation, releases };
  known.set(releases.join(), found);
  return found;
}
