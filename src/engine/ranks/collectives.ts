// Where a step of several ranks exchanges values: operations put into the update of a step, between one that leaves a value
// in one state across ranks and one that needs it in another (sharding.ts), and the operations on chunks of other owners
// taken out. Pure. The program of a step is the same for any number of ranks.
//
// Invariant: all ranks have the same collectives in the same order, whatever their budgets and their activations.

import type { Tensor } from '../../graph/graph.ts';
import type { Access } from '../../kernels/kernel.ts';
import type { ChunkMap } from '../../memory/layout/chunk-map.ts';
import type { Kind } from '../../memory/layout/kinds.ts';
import type { CollectiveOperation, Operation } from '../compile/lower.ts';
import type { OwnedPart } from './communicator.ts';
import type { GridAxis, GridPlace } from './grid.ts';
import { blockParts, chunkPart, ownerOf, type Sharding } from './sharding.ts';

/** What a step of several ranks is beside its programs. */
export interface ShardedStep extends Sharding {
  /** One f32 for each block: of gradients that are whole. */
  readonly squares: Tensor;
  /** (1): of this rank's micro-batches. */
  readonly lossSum: Tensor;
}

type Collective = 'reduce-scatter' | 'all-gather';

/** An exchange of a chunk that is in use, as the index of its kind's list has it. */
export function chunkCollective(
  collective: Collective,
  kind: Kind,
  index: number,
  access: Access,
  map: ChunkMap,
  sharding: Sharding,
): CollectiveOperation {
  const list = map.list(kind);
  return {
    op: 'collective',
    collective,
    axis: 'data',
    on: { chunk: list.first + index },
    parts: [chunkPart(index, map, sharding)],
    label: `${collective} ${kind} chunk ${index}`,
    phase: 'update',
    uses: map.piecesIn(kind, index).map((piece) => ({ list, piece, access })),
  };
}

/** The update of a step as one of the ranks does it. */
export function withCollectives(update: readonly Operation[], map: ChunkMap, step: ShardedStep): Operation[] {
  const { stage, rank, size } = step;
  if (size === 1) return [...update];
  const isOwn = (index: number) => ownerOf(index, step) === rank;
  const onChunk = (
    collective: Collective,
    kind: Kind,
    index: number,
    access: Access,
    each: Partial<NonNullable<Operation['each']>> = {},
  ): CollectiveOperation => ({
    ...chunkCollective(collective, kind, index, access, map, step),
    each: { index, together: 1, eager: false, completes: [], frees: [], ...each },
  });
  const onTensor = (collective: Collective, on: Tensor, parts: readonly OwnedPart[]): CollectiveOperation => ({
    ...{ op: 'collective', collective, axis: 'data', on, parts, label: `${collective} ${on.name}` },
    ...{ phase: 'update', uses: [] },
  });
  const lossPart = [{ owner: 0, offset: 0, bytes: 4 }];

  const done: Operation[] = [];
  const updates: Operation[] = [];
  let isReduced = false;
  for (const operation of update) {
    const { each } = operation;
    if (!each) {
      // Behind the last operation on gradients: what is decided now is decided for all.
      if (!isReduced) {
        if (stage > 0) done.push(onTensor('all-gather', step.squares, blockParts(map, step)));
        done.push(onTensor('reduce-scatter', step.lossSum, lossPart), onTensor('all-gather', step.lossSum, lossPart));
      }
      isReduced = true;
      done.push(operation);
    } else if (each.completes.includes('gradient')) {
      const { index } = each;
      const eager = stage !== 1;
      const keeps = stage === 0 || isOwn(index);
      const frees: Kind[] = keeps ? [] : ['gradient'];
      done.push(onChunk('reduce-scatter', 'gradient', index, isOwn(index) ? 'update' : 'read', { eager, frees }));
      if (stage === 0) done.push(onChunk('all-gather', 'gradient', index, isOwn(index) ? 'read' : 'update', { eager }));
      if (keeps) done.push({ ...operation, each: { ...each, eager } });
    } else if (stage === 0) done.push(operation);
    else updates.push(operation);
  }
  // A rank updates its chunk before it waits for those of the others.
  for (let first = 0; first < updates.length; first += size) {
    const group = updates.slice(first, first + size);
    const indices = group.map((_, i) => first + i);
    done.push(...group.filter((_, i) => isOwn(first + i)));
    // What others need of parameters that are sharded they gather when they use it.
    if (stage === 3) continue;
    for (const index of indices) {
      const completes: Kind[] = isOwn(index) ? [] : ['parameter'];
      done.push(onChunk('all-gather', 'parameter', index, isOwn(index) ? 'read' : 'update', { completes }));
    }
  }
  return done;
}

/** Bytes that this rank sends and gets in a list of operations, along one axis of the grid. */
export function networkBytes(operations: readonly Operation[], { rank, size }: GridPlace, axis: GridAxis = 'data') {
  let sent = 0;
  let received = 0;
  for (const operation of operations) {
    if (operation.op !== 'collective' || operation.axis !== axis) continue;
    const { collective, parts } = operation;
    for (const { owner, bytes } of parts) {
      const isOwn = owner === rank;
      const moved = isOwn ? (size - 1) * bytes : bytes;
      // In one of the halves of an all-reduce it sends what it gets in the other.
      const isSender = isOwn === (collective === 'all-gather');
      if (isSender || collective === 'all-reduce') sent += moved;
      if (!isSender || collective === 'all-reduce') received += moved;
    }
  }
  return { sent, received };
}
