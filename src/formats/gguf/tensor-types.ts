// The element types of GGUF's tensors that are read here, and those that are written, with what the format says of each: ggml's number for it, how
// many elements share a block, what a block takes. What a block holds is in encode.ts.

import { assert } from '../../util/errors.ts';

/** ggml's facts, what they are called here, and the number of a file whose matrices are of the type (`general.file_type`). */
export const TENSOR_TYPES = {
  F32: { id: 0, element: 'f32', blockElements: 1, blockBytes: 4, fileType: 0 },
  F16: { id: 1, element: 'f16', blockElements: 1, blockBytes: 2, fileType: 1 },
  BF16: { id: 30, element: 'bf16', blockElements: 1, blockBytes: 2, fileType: 32 },
  Q8_0: { id: 8, element: 'q8_0', blockElements: 32, blockBytes: 34, fileType: 7 },
  Q4_0: { id: 2, element: 'q4_0', blockElements: 32, blockBytes: 18, fileType: 2 },
} as const;

/** All types that are read: those that are not in TENSOR_TYPES llama.cpp's tools make by searches of their own. */
export const READ_TYPES = {
  ...TENSOR_TYPES,
  Q5_0: { id: 6, element: 'q5_0', blockElements: 32, blockBytes: 22 },
  Q4_K: { id: 12, element: 'q4_k', blockElements: 256, blockBytes: 144 },
  Q5_K: { id: 13, element: 'q5_k', blockElements: 256, blockBytes: 176 },
  Q6_K: { id: 14, element: 'q6_k', blockElements: 256, blockBytes: 210 },
} as const;

/** The names of all of ggml's, by their numbers: what is not read is refused by name. */
export const GGML_TYPES: readonly (string | undefined)[] = [
  ...['F32', 'F16', 'Q4_0', 'Q4_1', 'Q4_2', 'Q4_3', 'Q5_0', 'Q5_1', 'Q8_0', 'Q8_1', 'Q2_K', 'Q3_K', 'Q4_K', 'Q5_K'],
  ...['Q6_K', 'Q8_K', 'IQ2_XXS', 'IQ2_XS', 'IQ3_XXS', 'IQ1_S', 'IQ4_NL', 'IQ3_S', 'IQ2_S', 'IQ4_XS', 'I8', 'I16'],
  ...['I32', 'I64', 'F64', 'IQ1_M', 'BF16', 'Q4_0_4_4', 'Q4_0_4_8', 'Q4_0_8_8', 'TQ1_0', 'TQ2_0', undefined],
  ...[undefined, undefined, 'MXFP4'],
];

/** What matrices of a GGUF file that is written may be. */
export type TensorType = keyof typeof TENSOR_TYPES;

/** Their names. */
export const TENSOR_TYPE_NAMES = Object.keys(TENSOR_TYPES) as TensorType[];

/** What tensors of a GGUF file that is read may be. */
export type ReadType = keyof typeof READ_TYPES;

/** Their names. */
export const READ_TYPE_NAMES = Object.keys(READ_TYPES) as ReadType[];

/** What so many elements take: whole blocks. */
export function tensorBytes(type: TensorType, elements: number): number {
  const { blockElements, blockBytes } = TENSOR_TYPES[type];
  assert(elements % blockElements === 0, `${elements} elements are no whole blocks of ${type}`);
  return (elements / blockElements) * blockBytes;
}

/**
 * What a tensor is stored as where `type` is asked for. Vectors, norms and positions stay F32, as llama.cpp keeps them: they are
 * small, and added to what is F32. A block lies in one row: where rows are no whole blocks, F16 takes the place of Q8_0 and Q4_0.
 */
export function typeFor(type: TensorType, name: string, shape: readonly number[]): TensorType {
  if (shape.length < 2 || name.endsWith('_norm.weight') || name === 'position_embd.weight') return 'F32';
  return (shape.at(-1) ?? 0) % TENSOR_TYPES[type].blockElements === 0 ? type : 'F16';
}
