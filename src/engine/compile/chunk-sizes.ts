// The sizes that the chunks of a workload may have, and its chunks of such a size: one fixed list for an adapter, whatever the
// budget. Which of them suits a budget is fit.ts's affair.

import {
  type ChunkMap,
  layoutFor,
  leastBytesWith,
  mapChunks,
  packChunks,
  trainedKindsOf,
} from '../../memory/layout/chunk-map.ts';
import { indicesTogether } from '../../memory/layout/kinds.ts';
import { bytesHeld, type LayoutCosts, leastChunkBytes } from '../../memory/layout/layout.ts';
import { at } from '../../util/at.ts';
import { assert } from '../../util/errors.ts';
import type { AdapterLimits, Workload } from './workload.ts';

/** Larger chunks that move gain nothing: a transfer of this size is as fast as any. */
export const LARGEST_CHUNK = 32 * 2 ** 20;
/** Where nothing moves, larger ones cut fewer tensors, which are fewer dispatches. Any adapter binds as much. */
const LARGEST_RESIDENT_CHUNK = 128 * 2 ** 20;
const LEAST_CHUNK = 16 * 1024;
/** More of them of a kind cost more for dispatches, uniforms and planning than they save. */
const MOST_CHUNKS = 1024;

/** Bytes of the smallest chunk that a model whose parameters have so many bytes is cut into. */
export const leastChunkOf = (bytes: number): number => Math.max(LEAST_CHUNK, bytes / MOST_CHUNKS);

/** Ascending, by powers of two up to the largest that makes sense here. `largest`: @default of chunks that move */
export function chunkSizes(
  { parameters, chunkLimits = {} }: Workload,
  { binding, buffer, leastChunk = 0, mostChunk = Number.POSITIVE_INFINITY }: AdapterLimits,
  largest = LARGEST_CHUNK,
): number[] {
  const { isFixed, mostChunk: given } = chunkLimits;
  if (isFixed && given !== undefined && given === chunkLimits.leastChunk) return [given];
  const ofSize = Math.max(leastChunk, chunkLimits.leastChunk ?? 0, leastChunkOf(bytesHeld(parameters)));
  const least = Math.max(ofSize, leastChunkBytes(parameters));
  const most = Math.min(binding, buffer, Math.max(largest, least));
  const sizes = [most];
  for (let bytes = most / 2; bytes >= least; bytes /= 2) sizes.unshift(bytes);
  const small = sizes.filter((bytes) => bytes <= Math.min(mostChunk, chunkLimits.mostChunk ?? mostChunk));
  return small.length > 0 ? small : sizes.slice(0, 1);
}

const maps = new WeakMap<Workload['parameters'], Map<string, ChunkMap>>();

/** `costs`: of chunks of a given size alone that are no fixed ones. @default those of `mapChunks` */
export function mapOf(
  { parameters, training, chunkLimits }: Workload,
  chunkBytes: number,
  costs?: LayoutCosts,
): ChunkMap {
  // Workloads that differ in their activations alone have the same chunks.
  const known = maps.get(parameters) ?? new Map<string, ChunkMap>();
  maps.set(parameters, known);
  const key = `${chunkBytes} ${training} ${costs?.piece} ${costs?.padding}`;
  const limits = limitsOf(chunkBytes);
  const make = () =>
    chunkLimits?.isFixed
      ? packChunks(parameters, training, chunkBytes, chunkLimits.holds)
      : mapChunks(parameters, training, limits, costs);
  const found = known.get(key);
  if (found) return found;
  const made = make();
  // Of many sizes and costs the same chunks come.
  const map = [...known.values()].find((other) => isAlike(other, made)) ?? made;
  known.set(key, map);
  return map;
}

/** Whether all tensors lie in the same places of as many chunks of the same kinds. */
const isAlike = (a: ChunkMap, b: ChunkMap): boolean =>
  a.chunkBytes === b.chunkBytes &&
  a.count === b.count &&
  a.lists.every(({ kind }, i) => {
    const others = b.layoutOf(kind).pieces;
    return (
      b.lists[i]?.kind === kind &&
      [...a.layoutOf(kind).pieces].every(([name, pieces]) => {
        const there = others.get(name) ?? [];
        return (
          pieces.length === there.length &&
          pieces.every(({ chunk, offset }, n) => there[n]?.chunk === chunk && there[n]?.offset === offset)
        );
      })
    );
  });

/** What chunks in which fewer tensors are cut may have more of padding, as a share of the model data. */
const PADDING_FOR_PIECES = 0.25;
/** How many times as large or as small as others chunks in which fewer tensors are cut may be. */
const MOST_TIMES = 4;
/** Ways to weigh tiles against padding: a tile's kernels may take longer than what the padding moves. */
const FEWER_PIECES: readonly LayoutCosts[] = [0.015, 0.05].map((piece) => ({ piece, padding: PADDING_FOR_PIECES }));

/**
 * Chunks about as large, or as small, in which fewer tensors are cut, for more padding where need be: those with the fewest pieces
 * first, the smallest of them before others.
 */
export function mapsInFewerPieces(workload: Workload, limits: AdapterLimits, than: ChunkMap): ChunkMap[] {
  if (workload.chunkLimits?.isFixed) return [];
  const most = (1 + PADDING_FOR_PIECES) * bytesOf(than);
  const all = chunkSizes(workload, limits)
    .filter((bytes) => MOST_TIMES * bytes >= than.chunkBytes && bytes <= MOST_TIMES * than.chunkBytes)
    .flatMap((bytes) => [undefined, ...FEWER_PIECES].map((costs) => mapOf(workload, bytes, costs)))
    .filter((map) => map.pieceCount < than.pieceCount && bytesOf(map) <= most);
  return [...new Set(all)].sort((a, b) => a.pieceCount - b.pieceCount || a.chunkBytes - b.chunkBytes);
}

const bytesOf = ({ count, chunkBytes }: ChunkMap): number => count * chunkBytes;

const limitsOf = (chunkBytes: number) => ({ minBytes: chunkBytes / 2, maxBytes: chunkBytes });

/** Bytes that the chunks of that size have at least. */
export const leastBytesOf = ({ parameters, training, chunkLimits }: Workload, chunkBytes: number): number =>
  chunkLimits?.isFixed ? 0 : leastBytesWith(parameters, training, limitsOf(chunkBytes));

export const largestChunk = (workload: Workload, limits: AdapterLimits): number =>
  Math.max(...chunkSizes(workload, limits));

/** What larger chunks may cost of gradients that are held longer, as a share of the model data. */
const MOST_HELD_LONGER = 0.05;
/** What larger chunks may cost of padding, as a share of the model data: in smaller ones more weights are cut, and a product is more dispatches. */
const MOST_PADDING = 0.125;

/**
 * Of everything at once: the largest size. But where some parameters are frozen, or stored otherwise, all chunks are as
 * large as the largest part's, and those of the other parts must not be empty for the most part.
 */
export const wholeMap = (workload: Workload, limits: AdapterLimits): ChunkMap =>
  largestMap(workload, chunkSizes(workload, limits));

/**
 * What cutting a tensor costs where nothing moves: each product with it is a dispatch more, and what is cut off is often too small
 * for all of a GPU. Padding of an eightieth is as good as none.
 */
const RESIDENT_COSTS: LayoutCosts = { piece: 0.02, padding: 0.0125 };

/** Chunks of everything at once that never moves. */
export const residentMap = (workload: Workload, limits: AdapterLimits): ChunkMap =>
  largestMap(workload, chunkSizes(workload, limits, LARGEST_RESIDENT_CHUNK), RESIDENT_COSTS);

function largestMap(workload: Workload, sizes: readonly number[], costs?: LayoutCosts): ChunkMap {
  if (!isMixed(workload)) return mapOf(workload, Math.max(...sizes), costs);
  const maps = sizes.map((bytes) => mapOf(workload, bytes, costs));
  return largestWithin(maps, bytesOf, MOST_PADDING, Math.min(...maps.map(bytesOf)));
}

/**
 * Where gradients are used up on the way, fewer bytes of them are held at once in smaller chunks: the largest of those of which
 * about as few are as of the smallest. `heldIn`: chunks of such a map that have values at once.
 */
export function leanMap(workload: Workload, limits: AdapterLimits, heldIn: (map: ChunkMap) => number): ChunkMap {
  const maps = chunkSizes(workload, limits).map((bytes) => mapOf(workload, bytes));
  const size = (map: ChunkMap) => heldIn(map) * map.chunkBytes;
  return largestWithin(maps, size, MOST_HELD_LONGER, size(at(maps, 0)));
}

function largestWithin(
  maps: readonly ChunkMap[],
  size: (map: ChunkMap) => number,
  most: number,
  least: number,
): ChunkMap {
  const found = maps.findLast((map) => size(map) <= (1 + most) * least);
  assert(found, 'there is a chunk size');
  return found;
}

const isMixed = ({ parameters, training }: Workload): boolean =>
  (training && indicesTogether(trainedKindsOf(parameters)) > 1) ||
  new Set(parameters.map((parameter) => layoutFor(parameter, training))).size > 1;
