// Which rank has what of a model's data (Rajbhandari et al. 2020): every chunk index of what trains has an owner, and a stage
// of ZeRO says of which kinds the owner alone keeps the value. States of a value across ranks: `duplicated`, all ranks have
// it; `partial`, the sum of what they have is meant; `shard`, its owner has it.

import type { ChunkMap } from '../../memory/layout/chunk-map.ts';
import { type Kind, lastingKinds } from '../../memory/layout/kinds.ts';
import { BLOCK_ELEMENTS } from '../../memory/layout/layout.ts';
import { at } from '../../util/at.ts';
import type { OwnedPart } from './communicator.ts';

/** 0: nothing is sharded; 1: moments; 2: gradients, too, as soon as they are complete; 3: parameters, too, but while they are used. */
export const ZERO_STAGES = [0, 1, 2, 3] as const;
export type ZeroStage = (typeof ZERO_STAGES)[number];

/** The place of this process among those that train one model together. */
export interface Sharding {
  readonly rank: number;
  readonly size: number;
  readonly stage: ZeroStage;
}

/** Neighbours have different owners, so that work and bytes of any part of the model are shared evenly. */
export const ownerOf = (index: number, { size }: Pick<Sharding, 'size'>): number => index % size;

/** Between two steps. */
const SHARDED_KINDS: Readonly<Record<ZeroStage, readonly Kind[]>> = {
  0: [],
  1: ['moment1', 'moment2'],
  2: ['moment1', 'moment2'],
  3: lastingKinds('f32'),
};

/** The rank that has a chunk's value between two steps; undefined where all have it. */
export function onlyOwnerOf(chunk: number, map: ChunkMap, sharding: Sharding): number | undefined {
  const { kind, first } = map.holding(chunk);
  return SHARDED_KINDS[sharding.stage].includes(kind) ? ownerOf(chunk - first, sharding) : undefined;
}

/** Whether a chunk is one of those that, by the stage, this rank has in place of all others: its gradient too, once it is complete. */
export function isOwned(chunk: number, map: ChunkMap, sharding: Sharding): boolean {
  const { kind, first } = map.holding(chunk);
  const isSharded = SHARDED_KINDS[sharding.stage].includes(kind) || (kind === 'gradient' && sharding.stage >= 2);
  return isSharded && ownerOf(chunk - first, sharding) === sharding.rank;
}

/** What a step sends of a chunk: padding at its end stays. */
export const chunkPart = (index: number, map: ChunkMap, sharding: Sharding): OwnedPart => ({
  owner: ownerOf(index, sharding),
  offset: 0,
  bytes: 4 * at(map.trainable.used, index),
});

/** Of one f32 for each block of BLOCK_ELEMENTS: those of a chunk belong to its owner. */
export const blockParts = (map: ChunkMap, sharding: Sharding): OwnedPart[] =>
  map.trainable.used.map((used, index) => ({
    owner: ownerOf(index, sharding),
    offset: 4 * at(map.firstBlock, index),
    bytes: 4 * Math.ceil(used / BLOCK_ELEMENTS),
  }));

/** The largest chunk, in bytes, with which every rank has several of so many bytes in all. */
export const mostChunkFor = (bytes: number, { size }: Pick<Sharding, 'size'>): number =>
  bytes / (CHUNKS_PER_RANK * size);

/** So that the rank with most of them has little more than the others. */
const CHUNKS_PER_RANK = 4;
