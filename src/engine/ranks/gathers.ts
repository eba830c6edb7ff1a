// ZeRO 3: parameters that only their owners keep, frozen ones too, gathered for use and given back. In the forward pass of a micro-batch, and
// again in its backward pass, a chunk is there from its first use to its last. Pure.
//
// Invariant: between two such uses a chunk has a value on its owner alone. The order of gathers follows the order of uses,
// which is the same on all ranks that treat activations alike (train/run/ranks.ts has them compared).

import type { Phase } from '../../graph/program.ts';
import type { ChunkMap } from '../../memory/layout/chunk-map.ts';
import { isFrozen } from '../../memory/layout/kinds.ts';
import type { ChunkList } from '../../memory/plan/trace.ts';
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
  readonly list: ChunkList;
  /** By its place in the list. */
  readonly place: number;
  readonly phase: Phase;
  readonly first: number;
  last: number;
}

/** What is given back behind an operation: indices of what trains, and chunks of what is frozen. */
type Given = Required<Pick<Operation, 'releases' | 'givesBack'>>;

export function withGathers({ operations, starts }: Ordered, map: ChunkMap, sharding: Sharding): Ordered {
  if (sharding.stage < 3 || sharding.size === 1) return { operations, starts };
  const gathers = new Map<number, Operation[]>();
  const releases = new Map<number, Given>();
  for (const { list, place, phase, first, last } of staysIn(operations, map)) {
    const { kind } = list;
    const chunk = list.first + place;
    const isOwn = onlyOwnerOf(chunk, map, sharding) === sharding.rank;
    const gather = chunkCollective('all-gather', kind, place, isOwn ? 'read' : 'write', map, sharding);
    gathers.set(first, [...(gathers.get(first) ?? []), { ...gather, phase }]);
    if (isOwn) continue;
    const before = releases.get(last) ?? { releases: [], givesBack: [] };
    const { releases: indices, givesBack } = before;
    releases.set(
      last,
      isFrozen(kind)
        ? { ...before, givesBack: [...givesBack, chunk] }
        : { ...before, releases: [...indices, ...indicesOf(kind, place, map)] },
    );
  }
  const all: Operation[] = [];
  const begins = new Map<number, number>();
  operations.forEach((operation, i) => {
    begins.set(i, all.length);
    all.push(...(gathers.get(i) ?? []));
    const given = releases.get(i);
    all.push(given ? releasing(operation, given.releases, given.givesBack) : operation);
  });
  return { operations: all, starts: starts.map((start) => begins.get(start) ?? all.length) };
}

/** In the order of their first uses. */
function staysIn(operations: readonly Operation[], map: ChunkMap): Stay[] {
  const stays: Stay[] = [];
  let phase: Phase | undefined;
  let now = new Map<number, Stay>();
  operations.forEach((operation, i) => {
    if (operation.phase === 'update') return;
    if (operation.phase !== phase) now = new Map();
    phase = operation.phase;
    for (const { list, piece } of operation.uses) {
      if (list.kind !== map.readKind && !isFrozen(list.kind)) continue;
      const chunk = list.first + piece.chunk;
      const known = now.get(chunk);
      if (known) known.last = i;
      else {
        const stay = { list, place: piece.chunk, phase, first: i, last: i };
        now.set(chunk, stay);
        stays.push(stay);
      }
    }
  });
  return stays;
}

/** Operations that several micro-batches share stay shared: what is made ready for one is for all. */
const released = new WeakMap<Operation, Map<string, Operation>>();

/** `givesBack`: chunks of what is frozen. @default what it gives back already */
export function releasing(
  operation: Operation,
  releases: readonly number[],
  givesBack: readonly number[] = operation.givesBack ?? [],
): Operation {
  const known = released.get(operation) ?? new Map<string, Operation>();
  released.set(operation, known);
  const key = `${releases.join()} ${givesBack.join()}`;
  const found = known.get(key) ?? { ...operation, releases, ...(givesBack.length > 0 && { givesBack }) };
  known.set(key, found);
  return found;
}
