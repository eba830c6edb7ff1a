// Chunks: contiguous ranges, all of one size, that hold the parameters in the order in which computation
// needs them. Every kind of model data (parameters, gradients, both moments) has one list of chunks with
// this same layout, so the optimizer walks them side by side. Pure arithmetic: no buffer is made here.

import { HoldfastError } from '../util/errors.ts';

/**
 * Tensors start at multiples of this many elements (1 KiB). It covers WebGPU's offset alignment, and makes
 * each block of 256 elements belong to one tensor, so sums of squares and decay bits go by block.
 */
export const BLOCK_ELEMENTS = 256;

export interface ChunkPlace {
  readonly chunk: number;
  /** Elements from the chunk's start. */
  readonly offset: number;
}

export interface ChunkLayout {
  /** Elements in every chunk; a multiple of BLOCK_ELEMENTS. */
  readonly chunkElements: number;
  readonly chunks: number;
  readonly places: ReadonlyMap<string, ChunkPlace>;
  /** Elements of each chunk up to the end of its last tensor. */
  readonly used: readonly number[];
  /** Elements that hold no parameter, over all chunks. */
  readonly padding: number;
}

/**
 * Packs tensors in the given order into the fewest equal chunks of at most `maxElements`.
 * Errors: HoldfastError when one tensor alone is larger.
 */
export function layoutChunks(tensors: readonly { name: string; size: number }[], maxElements: number): ChunkLayout {
  const limit = Math.floor(maxElements / BLOCK_ELEMENTS) * BLOCK_ELEMENTS;
  const places = new Map<string, ChunkPlace>();
  const used: number[] = [];
  for (const { name, size } of tensors) {
    const room = Math.ceil(size / BLOCK_ELEMENTS) * BLOCK_ELEMENTS;
    if (room > limit) {
      throw new HoldfastError(
        `parameter ${name} has ${size} elements (${size * 4} bytes), this adapter binds at most ${limit * 4} bytes; use a smaller vocabulary or width`,
      );
    }
    if (used.length === 0 || (used.at(-1) as number) + room > limit) used.push(0);
    const chunk = used.length - 1;
    const offset = used[chunk] as number;
    places.set(name, { chunk, offset });
    used[chunk] = offset + room;
  }
  const chunkElements = Math.max(0, ...used);
  const held = tensors.reduce((sum, { size }) => sum + size, 0);
  return { chunkElements, chunks: used.length, places, used, padding: used.length * chunkElements - held };
}
