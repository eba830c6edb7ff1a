// Collectives of a step on several ranks: operations put into the update of a step, between one that leaves a value in
// one state across ranks and one that needs it in another (sharding.ts), and the operations on chunks of other owners
// taken out. Pure. The program of a step is the same for any number of ranks.
//
// Invariant: all ranks have the same collectives in the same order, whatever their budgets and their activations.

import type { GridPlace } from '../../graph/grid-place.ts';
import { type Tensor, bytesOf as tensorBytes } from '../../graph/program.ts';
import type { Access } from '../../kernels/kernel.ts';
import type { ChunkMap } from '../../memory/layout/chunk-map.ts';
import { elementBytesOf, gradientKind, indicesIn, isFrozen, type Kind } from '../../memory/layout/kinds.ts';
import { at } from '../../util/at.ts';
import type { CollectiveOperation, Operation } from '../compile/operations.ts';
import type { OwnedPart } from './communicator.ts';
import type { ExchangeAxis, GridPlaces } from './grid.ts';
import { blockParts, chunkPart, ownerOf, type Sharding, type ZeroStage } from './sharding.ts';

/** What a step of several ranks is beside its programs. */
export interface ShardedStep extends Sharding {
  /** One f32 for each block: of gradients that are whole. */
  readonly squares: Tensor;
  /** (1): of this rank's micro-batches. */
  readonly lossSum: Tensor;
}

type Collective = 'reduce-scatter' | 'all-gather';

/** The indices of what trains that a chunk holds, by its place in the list of its kind. */
export function indicesOf(kind: Kind, place: number, { trainable }: ChunkMap): number[] {
  const first = place * indicesIn(kind);
  return Array.from({ length: Math.min(indicesIn(kind), trainable.chunks - first) }, (_, i) => first + i);
}

/** An exchange of a chunk that is in use, by its place in the list of its kind. */
export function chunkCollective(
  collective: Collective,
  kind: Kind,
  place: number,
  access: Access,
  map: ChunkMap,
  sharding: Sharding,
): CollectiveOperation {
  const list = map.list(kind);
  const pieces = isFrozen(kind)
    ? at(map.contents(), list.first + place)
    : indicesOf(kind, place, map).flatMap((index) => map.piecesIn(kind, index));
  return {
    op: 'collective',
    collective,
    axis: 'data',
    on: { chunk: list.first + place },
    parts: [chunkPart(kind, place, map, sharding)],
    label: `${collective} ${kind} chunk ${place}`,
    phase: 'update',
    uses: pieces.map((piece) => ({ list, piece, access })),
  };
}

/**
 * The update of a step as one of the ranks does it. Gradients are added up in f32; where they are complete in sixteen bits, the
 * owner alone rounds the sum, and where all ranks are to have it, they get it so.
 */
export function withCollectives(update: readonly Operation[], map: ChunkMap, step: ShardedStep): Operation[] {
  const { stage, rank, size } = step;
  if (size === 1) return [...update];
  const isOwn = (index: number) => ownerOf(index, map, step) === rank;
  const onChunk = (
    collective: Collective,
    kind: Kind,
    place: number,
    access: Access,
    each: Partial<NonNullable<Operation['each']>> = {},
  ): CollectiveOperation => {
    const index = at(indicesOf(kind, place, map).slice(-1), 0);
    return {
      ...chunkCollective(collective, kind, place, access, map, step),
      each: { index, together: 1, eager: false, completes: [], frees: [], ...each },
    };
  };
  const complete = gradientKind(map.dtype);
  const isRounded = complete !== 'gradient';
  /** Whether an index is the last of those in its chunk of a kind. */
  const endsChunk = (kind: Kind, index: number) =>
    (index + 1) % indicesIn(kind) === 0 || index === map.trainable.chunks - 1;
  const placeOf = (kind: Kind, index: number) => Math.floor(index / indicesIn(kind));
  const onTensor = (collective: Collective, on: Tensor, parts: readonly OwnedPart[]): CollectiveOperation => ({
    ...{ op: 'collective', collective, axis: 'data', on, parts, label: `${collective} ${on.name}` },
    ...{ phase: 'update', uses: [] },
  });
  const lossPart = [{ owner: 0, offset: 0, bytes: tensorBytes(step.lossSum) }];

  const done: Operation[] = [];
  const updates: Operation[] = [];
  let isReduced = false;
  for (const operation of update) {
    const { each } = operation;
    if (!each) {
      // Behind the last operation on gradients: what is decided now is decided for all.
      if (!isReduced) {
        if (stage > 0 || isRounded) done.push(onTensor('all-gather', step.squares, blockParts(map, step)));
        done.push(onTensor('reduce-scatter', step.lossSum, lossPart), onTensor('all-gather', step.lossSum, lossPart));
      }
      isReduced = true;
      done.push(operation);
    } else if (each.completes.includes(complete)) {
      const { index } = each;
      const eager = stage !== 1 && 'written';
      const own = isOwn(index);
      const gathers = stage === 0;
      const keeps = own || (gathers && !isRounded);
      const frees: Kind[] = keeps ? [] : ['gradient'];
      done.push(onChunk('reduce-scatter', 'gradient', index, own ? 'update' : 'read', { eager, frees }));
      if (gathers && !isRounded) done.push(onChunk('all-gather', complete, index, own ? 'read' : 'update', { eager }));
      if (keeps) done.push({ ...operation, each: { ...each, eager } });
      if (gathers && isRounded && endsChunk(complete, index))
        done.push(onChunk('all-gather', complete, placeOf(complete, index), own ? 'read' : 'write'));
    } else if (stage === 0) done.push(operation);
    else updates.push(operation);
  }
  const { readKind } = map;
  // A rank updates its chunks before it waits for those of the others.
  for (let first = 0; first < updates.length; first += size * map.together) {
    const group = updates.slice(first, first + size * map.together);
    const indices = group.map((_, i) => first + i);
    done.push(...group.filter((_, i) => isOwn(first + i)));
    // What others need of parameters that are sharded they gather when they use it.
    if (stage === 3) continue;
    for (const index of indices.filter((index) => endsChunk(readKind, index))) {
      const own = isOwn(index);
      const completes: Kind[] = own ? [] : [readKind];
      done.push(onChunk('all-gather', readKind, placeOf(readKind, index), own ? 'read' : 'write', { completes }));
    }
  }
  return done;
}

/** Bytes that this rank sends and gets. */
export interface NetworkBytes {
  readonly sent: number;
  readonly received: number;
}

/** Bytes that a rank sends and receives in one operation. */
function bytesOf(operation: CollectiveOperation, { rank, size }: GridPlace) {
  const { collective, parts } = operation;
  let sent = 0;
  let received = 0;
  if (collective === 'send') return { sent: spanOf(operation), received };
  if (collective === 'receive') return { sent, received: spanOf(operation) };
  for (const { owner, bytes } of parts) {
    const isOwn = owner === rank;
    const moved = isOwn ? (size - 1) * bytes : bytes;
    // In one of the halves of an all-reduce it sends what it gets in the other.
    const isSender = isOwn === (collective === 'all-gather');
    if (isSender || collective === 'all-reduce') sent += moved;
    if (!isSender || collective === 'all-reduce') received += moved;
  }
  return { sent, received };
}

/** The exchanges along one axis of the grid. */
export const collectivesIn = (operations: readonly Operation[], axis: ExchangeAxis = 'data'): CollectiveOperation[] =>
  operations.flatMap((operation) => (operation.op === 'collective' && operation.axis === axis ? [operation] : []));

/** In a list of operations, which is that of any rank of an axis: all have the same collectives. */
export function networkBytes(
  operations: readonly Operation[],
  place: GridPlace,
  axis: ExchangeAxis = 'data',
): NetworkBytes {
  const all = collectivesIn(operations, axis).map((operation) => bytesOf(operation, place));
  const sum = (way: keyof NetworkBytes) => all.reduce((bytes, each) => bytes + each[way], 0);
  return { sent: sum('sent'), received: sum('received') };
}

/** Bytes that all ranks of a stage send: the operations are those of each of them, and any of them has these places. */
export function sentInStage(operations: readonly Operation[], places: GridPlaces): number {
  const ranks = places.data.size * places.tensor.size;
  return operations.reduce((bytes, operation) => {
    if (operation.op !== 'collective') return bytes;
    const { axis, collective } = operation;
    const place = places[axis];
    if (axis === 'pipeline' || axis === 'ends') return bytes + ranks * bytesOf(operation, place).sent;
    // In each group along the axis the owner of a part and all others exchange it, or in both halves of an all-reduce.
    const times = (collective === 'all-reduce' ? 2 : 1) * (place.size - 1) * (ranks / place.size);
    return bytes + times * exchangedBytes(operation);
  }, 0);
}

/** What all exchanges of one kind come to in a step. */
export interface Exchanged extends NetworkBytes {
  readonly axis: ExchangeAxis;
  readonly collective: CollectiveOperation['collective'];
  /** What of, and why. */
  readonly of: Kind | 'activations' | 'activation gradients' | 'sums';
  readonly count: number;
}

const TENSORS_OF = { forward: 'activations', backward: 'activation gradients', update: 'sums' } as const;

/** By axis and by what is exchanged, in the order in which it first is. */
export function exchangesIn(operations: readonly Operation[], map: ChunkMap, places: GridPlaces): Exchanged[] {
  const found = new Map<string, Exchanged>();
  for (const operation of operations) {
    if (operation.op !== 'collective') continue;
    const { axis, collective, on, phase } = operation;
    const of = 'chunk' in on ? map.holding(on.chunk).kind : TENSORS_OF[phase];
    const key = `${axis} ${collective} ${of}`;
    const { count, ...before } = found.get(key) ?? { count: 0, sent: 0, received: 0 };
    const { sent, received } = bytesOf(operation, places[axis]);
    const bytes = { sent: before.sent + sent, received: before.received + received };
    found.set(key, { axis, collective, of, count: count + 1, ...bytes });
  }
  return [...found.values()];
}

/** Whether a rank reads what it has of a value for an exchange, and whether it gets something. */
export function roleIn({ collective, parts }: CollectiveOperation, rank: number) {
  if (collective === 'all-reduce') return { gives: true, gets: true };
  if (collective === 'send' || collective === 'receive') {
    return { gives: collective === 'send', gets: collective === 'receive' };
  }
  const isSum = collective === 'reduce-scatter';
  const owns = parts.some(({ owner }) => owner === rank);
  return { gives: isSum || owns, gets: parts.some(({ owner }) => (owner === rank) === isSum) };
}

const exchangedBytes = ({ parts }: CollectiveOperation): number => parts.reduce((sum, { bytes }) => sum + bytes, 0);

/** Bytes of a value up to the end of the last part that is exchanged. */
export const spanOf = ({ parts }: CollectiveOperation): number =>
  parts.reduce((end, part) => Math.max(end, part.offset + part.bytes), 0);

/** Bytes that an exchange brings from the GPU of this rank to its host, and back. */
export function bytesOverLink(operation: CollectiveOperation, rank: number) {
  const { collective, own } = operation;
  const { gives, gets } = roleIn(operation, rank);
  const whole = spanOf(operation);
  const part = own ? tensorBytes(own) : whole;
  return {
    down: gives ? (collective === 'all-gather' ? part : whole) : 0,
    up: gets ? (collective === 'reduce-scatter' ? part : whole) : 0,
  };
}

/** Bytes over the link between host and GPU, each way, of all exchanges among `operations`. */
export function exchangedOverLink(operations: readonly Operation[], places: GridPlaces) {
  const each = operations.flatMap((operation) =>
    operation.op === 'collective' ? [bytesOverLink(operation, places[operation.axis].rank)] : [],
  );
  const sum = (way: 'down' | 'up') => each.reduce((bytes, one) => bytes + one[way], 0);
  return { down: sum('down'), up: sum('up') };
}

/**
 * What every rank sends at least in a step, on average, and gets: (n - 1) / n of the bytes of what trains, for each reduction
 * and each gathering of all of it. Both once are what a ring's all-reduce of the gradients sends: 2 (n - 1) / n; parameters
 * that are sharded are gathered for each micro-batch forward and backward in place of once: 3 (n - 1) / n with one. Sums are
 * of f32; what is computed with in sixteen bits is gathered so, for half the bytes.
 */
export function networkBound(map: ChunkMap, { size, stage }: Pick<Sharding, 'size' | 'stage'>, microBatches: number) {
  const gatherings = stage === 3 ? 2 * microBatches : 1;
  const bytes = elementBytesOf('gradient') + gatherings * elementBytesOf(map.readKind);
  return ((size - 1) * bytes * map.trainable.held) / size;
}

/**
 * As `networkBound`, of a rank in a grid: with what a ring sends of frozen chunks that are gathered, and of what ranks add up and
 * gather that share layers, and what stages hand on, on average of both ways.
 */
export function gridBound(
  operations: readonly Operation[],
  map: ChunkMap,
  places: GridPlaces,
  zero: ZeroStage,
  microBatches: number,
) {
  const { size } = places.tensor;
  const moved = collectivesIn(operations, 'tensor').reduce((sum, operation) => {
    return sum + (operation.collective === 'all-reduce' ? 2 : 1) * exchangedBytes(operation);
  }, 0);
  const ofStages = (['pipeline', 'ends'] as const).map((axis) => networkBytes(operations, places[axis], axis));
  const handedOn = ofStages.reduce((bytes, { sent, received }) => bytes + (sent + received) / 2, 0);
  const copies = places.data.size;
  const frozen = collectivesIn(operations).reduce((sum, operation) => {
    const { on } = operation;
    return sum + ('chunk' in on && isFrozen(map.holding(on.chunk).kind) ? exchangedBytes(operation) : 0);
  }, 0);
  const ofCopies = networkBound(map, { size: copies, stage: zero }, microBatches) + (frozen * (copies - 1)) / copies;
  return ofCopies + (moved * (size - 1)) / size + handedOn;
}
