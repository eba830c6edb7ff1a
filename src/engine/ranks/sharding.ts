// The dealing of a model's data to ranks (Rajbhandari et al. 2020): every chunk index of what trains has an owner, and so has every
// chunk of what is frozen; a stage of ZeRO says of which kinds the owner alone keeps the value. States of a value across ranks: `duplicated`, all ranks have
// it; `partial`, the sum of what they have is meant; `shard`, its owner has it.

import { ELEMENT_TYPES } from '../../kernels/kernel.ts';
import type { ChunkMap } from '../../memory/layout/chunk-map.ts';
import {
  elementBytesOf,
  gradientKind,
  indicesIn,
  isFrozen,
  type Kind,
  lastingKinds,
} from '../../memory/layout/kinds.ts';
import { BLOCK_ELEMENTS } from '../../memory/layout/layout.ts';
import { at } from '../../util/at.ts';
import type { OwnedPart } from './communicator.ts';

/** 0: nothing is sharded; 1: moments; 2: gradients, too, as soon as they are complete; 3: parameters, too, frozen ones among them, but while they are used. */
export const ZERO_STAGES = [0, 1, 2, 3] as const;
/** See ZERO_STAGES. */
export type ZeroStage = (typeof ZERO_STAGES)[number];

/** The place of this process among those that train one model together. */
export interface Sharding {
  readonly rank: number;
  readonly size: number;
  readonly stage: ZeroStage;
}

/**
 * Neighbours have different owners, so that work and bytes of any part of the model are shared evenly; indices that a chunk of a
 * narrow kind holds together have one.
 */
export const ownerOf = (index: number, { together }: Pick<ChunkMap, 'together'>, { size }: Pick<Sharding, 'size'>) =>
  Math.floor(index / together) % size;

/** The owner of a chunk by its place in the list of its kind: of what is frozen, none lies beside another. */
const ownerIn = (kind: Kind, place: number, map: ChunkMap, sharding: Pick<Sharding, 'size'>): number =>
  isFrozen(kind) ? place % sharding.size : ownerOf(place * indicesIn(kind), map, sharding);

/** Whether the owner alone has a kind between two steps: first what the optimizer alone needs, then what kernels read, too. */
function isSharded(kind: Kind, map: ChunkMap, stage: ZeroStage): boolean {
  if (isFrozen(kind)) return stage === 3;
  if (stage === 0 || !lastingKinds(map.dtype, map.momentDtype).includes(kind)) return false;
  return stage === 3 || kind !== map.readKind;
}

/** The rank that has a chunk's value between two steps; undefined where all have it. */
export function onlyOwnerOf(chunk: number, map: ChunkMap, sharding: Sharding): number | undefined {
  const { kind, first } = map.holding(chunk);
  return isSharded(kind, map, sharding.stage) ? ownerIn(kind, chunk - first, map, sharding) : undefined;
}

/**
 * Whether a chunk is one of those that, by the stage, this rank has in place of all others: its gradient too, once it is complete,
 * which it is nowhere else where it is rounded.
 */
export function isOwned(chunk: number, map: ChunkMap, sharding: Sharding): boolean {
  const { kind, first } = map.holding(chunk);
  const { stage, rank } = sharding;
  const ofGradients = kind === 'gradient' ? stage >= 2 : kind === gradientKind(map.dtype) && stage >= 1;
  return (ofGradients || isSharded(kind, map, stage)) && ownerIn(kind, chunk - first, map, sharding) === rank;
}

/** What a step sends of a chunk, by its place in the list of its kind: padding at its end stays. */
export const chunkPart = (kind: Kind, place: number, map: ChunkMap, sharding: Sharding): OwnedPart => ({
  owner: ownerIn(kind, place, map, sharding),
  offset: 0,
  bytes: elementBytesOf(kind) * at(map.layoutOf(kind).used, place),
});

/** The parts of a list with one f32 for each block of BLOCK_ELEMENTS: those of a chunk belong to its owner. */
export const blockParts = (map: ChunkMap, sharding: Sharding): OwnedPart[] =>
  map.trainable.used.map((used, index) => ({
    owner: ownerOf(index, map, sharding),
    offset: ELEMENT_TYPES.f32 * at(map.firstBlock, index),
    bytes: ELEMENT_TYPES.f32 * Math.ceil(used / BLOCK_ELEMENTS),
  }));

/** The largest chunk, in bytes, with which every rank has several of so many bytes in all; `together`: that have one owner. */
export const mostChunkFor = (bytes: number, { size }: Pick<Sharding, 'size'>, together: number): number =>
  bytes / (CHUNKS_PER_RANK * size * together);

/** So that the rank with most of them has little more than the others. */
const CHUNKS_PER_RANK = 4;
