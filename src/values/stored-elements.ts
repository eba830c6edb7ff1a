// Elements as model data stores them: float32, sixteen bits, or blocks of scales and eight to four bits, with the way from
// each of them, and to those that are made here. How a shader reads them is in kernels/stored.ts.
//
// Invariant: what was widened is narrowed to the same values again.

import { areFinite, findNonFinite, LARGEST, narrowFloats, widen } from './floats.ts';
import {
  Q4_K_BLOCK,
  Q5_BLOCK,
  Q5_K_BLOCK,
  Q6_K_BLOCK,
  scalesOfQ4K,
  scalesOfQ5,
  scalesOfQ5K,
  scalesOfQ6K,
  widenQ4K,
  widenQ5,
  widenQ5K,
  widenQ6K,
} from './ggml-blocks.ts';
import { NF4_BLOCK, narrowNF4, scalesOfNF4, widenNF4 } from './nf4.ts';
import { narrowQ4, Q4_BLOCK, Q4_STEPS, scalesOfQ4, widenQ4 } from './q4.ts';
import { narrowQ8, Q8_BLOCK, Q8_STEPS, scalesOfQ8, widenQ8 } from './q8.ts';

type Floats = Float32Array<ArrayBuffer>;
type Bytes = Uint8Array<ArrayBuffer>;

/** Those that values can be put into: what comes in one piece, in elements and in bytes. */
const MADE_BLOCKS = {
  f32: { elements: 1, bytes: 4 },
  bf16: { elements: 1, bytes: 2 },
  f16: { elements: 1, bytes: 2 },
  q8_0: Q8_BLOCK,
  q4_0: Q4_BLOCK,
  nf4: NF4_BLOCK,
} as const;

/** How an element of model data is stored: what comes in one piece, in elements and in bytes. Some are only read from files. */
export const STORED_BLOCKS = {
  ...MADE_BLOCKS,
  q5_0: Q5_BLOCK,
  q4_k: Q4_K_BLOCK,
  q5_k: Q5_K_BLOCK,
  q6_k: Q6_K_BLOCK,
} as const;

/** How values can be stored that are not stored so already. */
export type MadeElement = keyof typeof MADE_BLOCKS;

/** Their names. */
export const MADE_ELEMENTS = Object.keys(MADE_BLOCKS) as readonly MadeElement[];

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

/** Whether values can be stored so. */
export const isMade = (element: StoredElement): element is MadeElement => Object.hasOwn(MADE_BLOCKS, element);

/** Bytes of an element, or its share of a block's. */
export const bytesPerElement = (element: ChunkElement): number =>
  CHUNK_BLOCKS[element].bytes / CHUNK_BLOCKS[element].elements;

/** Bytes of so many elements as a binding takes them: whole blocks and whole words. */
export function storedBytes(element: ChunkElement, count: number): number {
  const { elements, bytes } = CHUNK_BLOCKS[element];
  return Math.ceil((Math.ceil(count / elements) * bytes) / 4) * 4;
}

/** From an element. */
interface Decoder {
  /**
   * Of whole blocks, from a multiple of 4 bytes of their memory on; of `count` elements, where there are more bytes. `into`:
   * memory for whole blocks.
   */
  widen(bytes: Bytes, count: number, into?: Floats): Floats;
  /** Whether all of its values are finite. Of whole blocks, from a multiple of 4 bytes on. */
  isFinite(bytes: Bytes): boolean;
}

/** From an element, and to it. */
interface Codec extends Decoder {
  /** The largest size that it has a place for. */
  readonly most: number;
  /** Of whole blocks. What is too large becomes infinite, or has a scale that is. */
  narrow(floats: Floats): Bytes;
}

const halves = (dtype: 'BF16' | 'F16'): Codec => ({
  most: LARGEST[dtype],
  narrow(floats) {
    const narrowed = new Uint16Array(floats.length);
    narrowFloats(dtype, floats, narrowed);
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
const decoder = (widen: (bytes: Bytes, into?: Floats) => Floats, scales: (bytes: Bytes) => Floats): Decoder => ({
  widen: (bytes, count, into) => widen(bytes, into).subarray(0, count),
  isFinite: (bytes) => findNonFinite(scales(bytes)) < 0,
});

type NarrowMade = Exclude<MadeElement, 'f32'>;

/** How to get there, and back. */
const MADE: Readonly<Record<NarrowMade, Codec>> = {
  bf16: halves('BF16'),
  f16: halves('F16'),
  q8_0: { most: Q8_STEPS * LARGEST.F16, narrow: narrowQ8, ...decoder(widenQ8, scalesOfQ8) },
  q4_0: { most: Q4_STEPS * LARGEST.F16, narrow: narrowQ4, ...decoder(widenQ4, scalesOfQ4) },
  nf4: { most: LARGEST.BF16, narrow: narrowNF4, ...decoder(widenNF4, scalesOfNF4) },
};

/** How to get there, where there is a way, and back. */
export const CODECS: Readonly<Record<NarrowMade, Codec> & Record<NarrowElement, Decoder>> = {
  ...MADE,
  q5_0: decoder(widenQ5, scalesOfQ5),
  q4_k: decoder(widenQ4K, scalesOfQ4K),
  q5_k: decoder(widenQ5K, scalesOfQ5K),
  q6_k: decoder(widenQ6K, scalesOfQ6K),
};
