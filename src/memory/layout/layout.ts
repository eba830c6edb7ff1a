// The layout of model data: tensors in the order of use, packed into equal chunks, and the search for the chunk size
// that wastes least. A matrix that does not fit is tiled by rows. The tensors of one layout are stored alike, so that it
// counts in elements. Pure arithmetic: no buffer is made here.
//
// Invariant: a tile starts at a multiple of BLOCK_ELEMENTS of its tensor as well as of its chunk, so sums by
// block (gradient norm, decay bits) are the same numbers whatever the chunk size.

import { bytesPerElement, type StoredElement } from '../../kernels/stored.ts';
import { at } from '../../util/at.ts';
import { HoldfastError } from '../../util/errors.ts';

/**
 * Tensors start at multiples of this many elements (1 KiB of float32). It covers WebGPU's offset alignment in every
 * width, and makes each block of 256 elements belong to one tensor, so sums of squares and decay bits go by block.
 */
export const BLOCK_ELEMENTS = 256;

/** Padding that is as good as none, as a share of the data: the search prefers fewer tiles below it. */
export const WASTE_TOLERANCE = 0.001;

/** Chunks are multiples of this, in whatever width their elements are. */
const CHUNK_GRAIN_BYTES = BLOCK_ELEMENTS * bytesPerElement('f32');

/** The bytes of the smallest chunk that has so many. */
export const chunkBytesFor = (bytes: number): number => Math.ceil(bytes / CHUNK_GRAIN_BYTES) * CHUNK_GRAIN_BYTES;

export interface ShapedTensor {
  readonly name: string;
  readonly shape: readonly number[];
  /** @default 'f32' */
  readonly stored?: StoredElement;
  /** It begins a chunk, whose number is a multiple of this. @default it lies behind the tensor before it */
  readonly opensChunk?: number;
  /** The row of it that begins the chunk, a multiple of `rowStep`. @default its first one */
  readonly opensAt?: number;
}

/** Bytes of an element of a tensor. */
const elementBytes = ({ stored = 'f32' }: ShapedTensor): number => bytesPerElement(stored);

/** WebGPU's alignment of what is bound. */
const BINDING_BYTES = 256;

/** Elements of whose multiples a tensor stored so, or a tile of it, starts in its chunk. */
function alignmentOf({ stored = 'f32' }: ShapedTensor): number {
  let elements = BLOCK_ELEMENTS;
  while ((elements * bytesPerElement(stored)) % BINDING_BYTES !== 0) elements *= 2;
  return elements;
}

/** Bytes of all elements of some tensors. */
export const bytesHeld = (tensors: readonly ShapedTensor[]): number =>
  tensors.reduce((sum, tensor) => sum + extentOf(tensor).size * elementBytes(tensor), 0);

/** One that stands for all of a layout in how they are stored. */
const sampleOf = ([tensor = { name: '', shape: [] }]: readonly ShapedTensor[]): ShapedTensor => tensor;

/** Bytes of an element of all tensors of one layout. */
export const elementBytesIn = (tensors: readonly ShapedTensor[]): number => elementBytes(sampleOf(tensors));

/** Rows `row` to `row + rows - 1` of a tensor; a vector is one row. */
export interface Piece {
  readonly tensor: string;
  readonly chunk: number;
  /** Elements from the chunk's start; a multiple of BLOCK_ELEMENTS, or more where that is no place to bind. */
  readonly offset: number;
  readonly row: number;
  readonly rows: number;
  /** Elements of the tensor before this piece, and in it. */
  readonly first: number;
  readonly size: number;
}

export interface TiledLayout {
  /** Elements in every chunk; a multiple of BLOCK_ELEMENTS. */
  readonly chunkElements: number;
  readonly chunks: number;
  /** In the order of the tensors, and of their rows. */
  readonly pieces: ReadonlyMap<string, readonly Piece[]>;
  /** Elements of each chunk up to the end of its last piece; 0 where a tensor that opens a chunk has left one empty. */
  readonly used: readonly number[];
  /** Elements that hold data, and that hold none, over all chunks. */
  readonly held: number;
  readonly padding: number;
  /** Tensors in more than one piece. */
  readonly tiled: number;
}

/** `large`: only a tensor that no chunk can hold. `any`: also one that merely crosses a chunk's end. */
export type Tiling = 'large' | 'any';

interface Extent {
  name: string;
  size: number;
  rows: number;
  /** The fewest rows that a tile may have, and their elements. */
  unitRows: number;
  unit: number;
  alignment: number;
  /** See ShapedTensor; 0 where it opens none. */
  opensChunk: number;
  opensAt: number;
}

/**
 * Kernels work on blocks of 16 rows of a matrix, with loads of four elements at a time. A tile that is cut elsewhere
 * costs part of a block more. Off the fours it is loaded one by one, by another text, in which a GPU's compiler may round
 * otherwise: so it is cut only where a chunk has no four rows.
 */
const GRAINS = [16, 4] as const;
type Grain = (typeof GRAINS)[number];
/** What such tiles cost a step, and a tile more, as shares of the data: padding up to as much is better than they are. */
export const OFF_FOURS_COST = 0.05;
const OFF_BLOCKS_COST = 0.01;
export const PIECE_COST = 0.0001;

/** What a search for a layout weighs against each other, as shares of the data. */
export interface LayoutCosts {
  /** What a tile more costs. */
  readonly piece: number;
  /** Padding that is as good as none. */
  readonly padding: number;
}

const LEAST_MEMORY: LayoutCosts = { piece: PIECE_COST, padding: WASTE_TOLERANCE };

/** Packs tensors in the given order. Errors: HoldfastError when one row of one tensor is larger than a chunk. */
export function packTensors(
  tensors: readonly ShapedTensor[],
  chunkElements: number,
  tiling: Tiling,
  grain: Grain = 4,
): TiledLayout {
  const extents = tensors.map(extentOf);
  const pieces = new Map<string, Piece[]>();
  const ends: number[] = [];
  const alignment = alignmentOf(sampleOf(tensors));
  const limit = Math.floor(chunkElements / alignment) * alignment;
  const tooLarge = pack(extents, limit, tiling, grain, ({ name, size, rows }, chunk, offset, row, count) => {
    const width = size / rows;
    const piece = { tensor: name, chunk, offset, row, rows: count, first: row * width, size: count * width };
    const list = pieces.get(name);
    if (list) list.push(piece);
    else pieces.set(name, [piece]);
    while (ends.length <= chunk) ends.push(0);
    ends[chunk] = offset + roundUp(piece.size, alignment);
    return true;
  });
  if (tooLarge) {
    const bytes = elementBytesIn(tensors);
    throw new HoldfastError(
      `a chunk of ${limit * bytes} bytes cannot hold ${tooLarge.name}: ` +
        `chunks need ${tooLarge.unit * bytes} bytes at least, or use a smaller width`,
    );
  }
  const held = extents.reduce((sum, { size }) => sum + size, 0);
  const elements = ends.reduce((a, b) => Math.max(a, b), 0);
  const tiled = [...pieces.values()].filter(({ length }) => length > 1).length;
  const padding = ends.length * elements - held;
  return { chunkElements: elements, chunks: ends.length, pieces, used: ends, held, padding, tiled };
}

/** Elements of the smallest chunk in which these tensors can lie. */
export function leastChunkElements(tensors: readonly ShapedTensor[]): number {
  return tensors.reduce((most, tensor) => Math.max(most, extentOf(tensor).unit), BLOCK_ELEMENTS);
}

/** Bytes of the smallest chunk in which these tensors can lie, each in the chunks of its width. */
export function leastChunkBytes(tensors: readonly ShapedTensor[]): number {
  const units = tensors.map((tensor) => chunkBytesFor(extentOf(tensor).unit * elementBytes(tensor)));
  return units.reduce((most, unit) => Math.max(most, unit), CHUNK_GRAIN_BYTES);
}

/** Slots that a budget should be good for: what an operator pins is then a small part of it. */
const SLOTS_WANTED = 12;
/** More chunks of a kind than this cost planning and transfers; a small budget has to do with fewer slots. */
const CHUNKS_WANTED = 128;
const LEAST_SLOTS = 8;
/** Below this size, and past this number of a kind, chunks cost by the piece and not by the byte. */
const LEAST_CHUNK_BYTES = 64 * 1024;
const MOST_CHUNKS = 2048;

/**
 * Chunk sizes that suit a budget for model data: small enough for many slots, large enough for few transfers,
 * within `limitBytes`, what the adapter binds as one buffer.
 */
export function chunkRange(
  tensors: readonly ShapedTensor[],
  budgetBytes: number,
  limitBytes: number,
): { minBytes: number; maxBytes: number } {
  const held = bytesHeld(tensors);
  const wanted = Math.max(budgetBytes / SLOTS_WANTED, Math.min(budgetBytes / LEAST_SLOTS, held / CHUNKS_WANTED));
  const least = Math.max(LEAST_CHUNK_BYTES, held / MOST_CHUNKS, leastChunkBytes(tensors));
  const maxBytes = Math.min(limitBytes, Math.max(wanted, least));
  return { minBytes: maxBytes * 0.6, maxBytes };
}

/**
 * The layout that costs least, in padding and in tiles, with chunks of at most `maxBytes` (the adapter's binding and
 * buffer limits, a share of the budget) and, where the tensors allow it, at least `minBytes`; one whose padding is as good
 * as none if there is any. Errors: HoldfastError when no such chunk can hold them.
 */
export function searchLayout(
  tensors: readonly ShapedTensor[],
  limits: { minBytes: number; maxBytes: number },
  costs: LayoutCosts = LEAST_MEMORY,
): TiledLayout {
  const extents = tensors.map(extentOf);
  const held = extents.reduce((sum, { size }) => sum + size, 0);
  const bytes = elementBytesIn(tensors);
  const alignment = alignmentOf(sampleOf(tensors));
  const maxBytes = Math.floor(limits.maxBytes / CHUNK_GRAIN_BYTES) * CHUNK_GRAIN_BYTES;
  const most = Math.floor(maxBytes / bytes / alignment) * alignment;
  const least = Math.min(most, Math.max(leastChunkElements(tensors), roundUp(limits.minBytes / bytes, alignment)));
  let best = { elements: most, tiling: 'any' as Tiling, grain: 16 as Grain, isGood: false, cost: Infinity };
  const sizes = candidates(extents, least, most, alignment);
  const [pieceCost, mostPadding] = [costs.piece * held, costs.padding * held];
  for (const tiling of ['large', 'any'] as const) {
    for (const grain of GRAINS) {
      for (const elements of sizes) {
        let chunks = 0;
        let largest = 0;
        let tiles = 0;
        // Elements that chunks before the last one hold, and that this one does; tensors that are yet to come.
        let before = 0;
        let inLast = 0;
        let left = extents.length;
        const { isGood: isToBeGood, cost: most } = best;
        const ended = pack(extents, elements, tiling, grain, ({ size, rows }, chunk, offset, row, rowCount) => {
          const inPiece = (rowCount * size) / rows;
          const end = offset + roundUp(inPiece, alignment);
          if (end > largest) largest = end;
          if (chunk >= chunks) {
            before += inLast;
            inLast = 0;
            chunks = chunk + 1;
          }
          inLast += inPiece;
          if (row === 0) left--;
          tiles += pieceCost;
          if (rowCount < rows) tiles += inPiece * cutCost(row, rowCount, rows);
          // Both only get more: what already is no better than the best is given up.
          const padding = (chunks - 1) * largest - before;
          const isWorse = padding + tiles + left * pieceCost > (1 + ROUNDING) * most;
          return !(isWorse && (isToBeGood || padding > mostPadding));
        });
        if (ended) continue;
        const padding = chunks * largest - held;
        const isGood = padding <= mostPadding;
        const cost = padding + tiles;
        if (isGood === best.isGood ? cost < best.cost : isGood) {
          best = { elements, tiling, grain, isGood, cost };
        }
      }
    }
  }
  return packTensors(tensors, best.elements, best.tiling, best.grain);
}

/** Where a tile begins and ends, if that is not where its tensor does. */
function cutCost(row: number, count: number, rows: number): number {
  const isCutAt = (multiple: number) => row % multiple === 0 && (row + count === rows || count % multiple === 0);
  return isCutAt(16) ? 0 : isCutAt(4) ? OFF_BLOCKS_COST : OFF_FOURS_COST;
}

/** Sizes worth trying: at which a chunk ends with a tensor, and which divide the whole evenly. Ascending. */
function candidates(extents: readonly Extent[], least: number, most: number, alignment: number): number[] {
  const sizes = new Set<number>([least, most]);
  const ends = [0];
  for (const { size } of extents) ends.push((ends.at(-1) as number) + roundUp(size, alignment));
  const total = ends.at(-1) as number;
  const sums = new Set<number>();
  for (const [i, start] of ends.entries()) {
    for (const end of ends.slice(i + 1)) {
      if (end - start > most) break;
      if (end - start >= least) sums.add(end - start);
    }
  }
  const ordered = [...sums].sort((a, b) => a - b);
  const every = Math.ceil(ordered.length / MOST_SUMS);
  for (const [i, sum] of ordered.entries()) if (i % every === 0) sizes.add(sum);
  const fewest = Math.max(1, Math.ceil(total / most));
  const shares = Math.min(MOST_CHUNKS, total / least) - fewest + 1;
  for (let i = 0; i < Math.min(shares, MOST_SHARES); i++) {
    const n = fewest + Math.floor((i * shares) / Math.min(shares, MOST_SHARES));
    // Tiles end at whole rows and vectors do not break: an even share needs a little slack to come out even.
    for (const slack of SLACKS) {
      const elements = roundUp((total / n) * (1 + slack), alignment);
      if (elements <= most) sizes.add(elements);
    }
  }
  return [...sizes].sort((a, b) => a - b);
}

const MOST_SUMS = 64;
const MOST_SHARES = 48;
/** By which sums of costs may be off, and more. */
const ROUNDING = 1e-9;
const SLACKS = [0, 0.0001, 0.0002, 0.0004, 0.0006, 0.0008];

/** Calls `emit` for each piece until it returns false; returns the tensor at which it ended: that one, or one of which not even one tile fits. */
function pack(
  extents: readonly Extent[],
  limit: number,
  tiling: Tiling,
  grain: Grain,
  emit: (tensor: Extent, chunk: number, offset: number, row: number, rows: number) => boolean,
): Extent | undefined {
  let chunk = 0;
  let end = 0;
  for (const tensor of extents) {
    if (tensor.unit > limit) return tensor;
    const { rows: all, opensChunk, opensAt } = tensor;
    const open = () => {
      chunk = roundUp(chunk + 1, opensChunk);
      end = 0;
    };
    if (opensChunk > 0 && opensAt === 0 && end > 0) open();
    const room = roundUp(tensor.size, tensor.alignment);
    const tile = opensAt > 0 || room > limit || (tiling === 'any' && tensor.unit < room);
    if (end + room > limit && !tile) {
      chunk++;
      end = 0;
    }
    for (let row = 0; row < all; ) {
      if (row > 0 && row === opensAt && end > 0) open();
      const rows = tile ? rowsThatFit(tensor, row, limit - end, limit, grain) : all;
      if (rows === 0) {
        chunk++;
        end = 0;
        continue;
      }
      if (!emit(tensor, chunk, end, row, rows)) return tensor;
      end += roundUp((rows * tensor.size) / tensor.rows, tensor.alignment);
      row += rows;
    }
  }
  return undefined;
}

/** How many rows from `row` on a tile in `room` elements takes; 0 where the next chunk, of `limit`, is better. */
function rowsThatFit(tensor: Extent, row: number, room: number, limit: number, grain: Grain): number {
  const { unitRows, unit, opensAt } = tensor;
  const rows = row < opensAt ? opensAt : tensor.rows;
  const fit = unitRows * Math.floor(room / unit);
  if (row + fit >= rows) return rows - row;
  const most = unitRows * Math.floor(limit / unit);
  for (const multiple of grain === 16 ? GRAINS : [grain]) {
    const step = Math.max(unitRows, multiple);
    const even = fit - ((row + fit) % step);
    if (even > 0) return even;
    if (most >= step) return 0;
  }
  // Not even a whole chunk holds four.
  return fit;
}

function extentOf(tensor: ShapedTensor): Extent {
  const { name, shape } = tensor;
  const size = shape.reduce((a, b) => a * b, 1);
  const rows = shape.length > 1 ? at(shape, 0) : 1;
  const width = size / rows;
  const alignment = alignmentOf(tensor);
  const unitRows = Math.min(rows, alignment / greatestCommonDivisor(width, alignment));
  const { opensChunk = 0, opensAt = 0 } = tensor;
  return { name, size, rows, unitRows, unit: roundUp(unitRows * width, alignment), alignment, opensChunk, opensAt };
}

/** Rows of whose multiples a tensor is best cut; as many as it has where it is not. */
export function rowStep(tensor: ShapedTensor): number {
  const { rows, unitRows } = extentOf(tensor);
  return Math.min(rows, Math.max(unitRows, GRAINS[0]));
}

const roundUp = (number: number, multiple: number): number => Math.ceil(number / multiple) * multiple;

function greatestCommonDivisor(a: number, b: number): number {
  return b === 0 ? a : greatestCommonDivisor(b, a % b);
}
