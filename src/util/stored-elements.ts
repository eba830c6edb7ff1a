// Elements as model data stores them: float32, sixteen bits, or blocks of a scale and eight or four bits, with the way to
// each of them and back. How a shader reads them is in kernels/stored.ts.
//
// Invariant: what was widened is narrowed to the same values again.

import { areFinite, findNonFinite, LARGEST, narrow, widen } from './floats.ts';
import { NF4_BLOCK, narrowNF4, scalesOfNF4, widenNF4 } from './nf4.ts';
import { narrowQ4, Q4_BLOCK, Q4_STEPS, scalesOfQ4, widenQ4 } from './q4.ts';
import { narrowQ8, Q8_BLOCK, Q8_STEPS, scalesOfQ8, widenQ8 } from './q8.ts';

type Floats = Float32Array<ArrayBuffer>;
type Bytes = Uint8Array<ArrayBuffer>;

/** How an element of model data is stored: what comes in one piece, in elements and in bytes. */
export const STORED_BLOCKS = {
  f32: { elements: 1, bytes: 4 },
  bf16: { elements: 1, bytes: 2 },
  f16: { elements: 1, bytes: 2 },
  q8_0: Q8_BLOCK,
  q4_0: Q4_BLOCK,
  nf4: NF4_BLOCK,
} as const;

/** How an element of model data is stored. */
export type StoredElement = keyof typeof STORED_BLOCKS;

/**
 * What lies in chunks: also the lower halves of floats, `low16`, which only the optimizer reads, beside the upper ones
 * (split-floats.ts).
 */
export type ChunkElement = StoredElement | 'low16';

const CHUNK_BLOCKS: Readonly<Record<ChunkElement, { readonly elements: number; readonly bytes: number }>> = {
  ...STORED_BLOCKS,
  low16: { elements: 1, bytes: 2 },
};

/** Those that a shader unpacks. */
export type NarrowElement = Exclude<StoredElement, 'f32'>;

export const isNarrow = (element: StoredElement): element is NarrowElement => element !== 'f32';

/** Bytes of an element, or its share of a block's. */
export const bytesPerElement = (element: ChunkElement): number =>
  CHUNK_BLOCKS[element].bytes / CHUNK_BLOCKS[element].elements;

/** Bytes of so many elements as a binding takes them: whole blocks and whole words. */
export function storedBytes(element: ChunkElement, count: number): number {
  const { elements, bytes } = CHUNK_BLOCKS[element];
  return Math.ceil((Math.ceil(count / elements) * bytes) / 4) * 4;
}

interface Codec {
  /** The largest size that it has a place for. */
  readonly most: number;
  /** Of whole blocks. What is too large becomes infinite, or has a scale that is. */
  narrow(floats: Floats): Bytes;
  /**
   * Of whole blocks, from a multiple of 4 bytes of their memory on; of `count` elements, where there are more bytes. `into`:
   * memory for whole blocks.
   */
  widen(bytes: Bytes, count: number, into?: Floats): Floats;
  /** Whether all of its values are finite. Of whole blocks, from a multiple of 4 bytes on. */
  isFinite(bytes: Bytes): boolean;
}

const halves = (dtype: 'BF16' | 'F16'): Codec => ({
  most: LARGEST[dtype],
  narrow(floats) {
    const narrowed = new Uint16Array(floats.length);
    narrow(dtype, floats, narrowed);
    return new Uint8Array(narrowed.buffer);
  },
  widen({ buffer, byteOffset }, count, into = new Float32Array(count)) {
    widen(dtype, new Uint16Array(buffer, byteOffset, count), into);
    return into.subarray(0, count);
  },
  isFinite: ({ buffer, byteOffset, byteLength }) =>
    areFinite(dtype, new Uint16Array(buffer, byteOffset, byteLength / 2)),
});

/** `scales`: of whole blocks. */
const blocks = (
  most: number,
  narrow: Codec['narrow'],
  widen: (bytes: Bytes, into?: Floats) => Floats,
  scales: (bytes: Bytes) => Floats,
): Codec => ({
  ...{ most, narrow },
  widen: (bytes, count, into) => widen(bytes, into).subarray(0, count),
  isFinite: (bytes) => findNonFinite(scales(bytes)) < 0,
});

/** How to get there, and back. */
export const CODECS: Readonly<Record<NarrowElement, Codec>> = {
  bf16: halves('BF16'),
  f16: halves('F16'),
  q8_0: blocks(Q8_STEPS * LARGEST.F16, narrowQ8, widenQ8, scalesOfQ8),
  q4_0: blocks(Q4_STEPS * LARGEST.F16, narrowQ4, widenQ4, scalesOfQ4),
  nf4: blocks(LARGEST.BF16, narrowNF4, widenNF4, scalesOfNF4),
};
