// Width of the weights that nothing trains, in memory: as their files have them, or in a width that was asked for, to
// which they are rounded first. Kernels compute in f32 either way, and widening is exact: the width of a base changes
// no bit of a run unless it rounds.

import { linearsOf } from '../../nn/lora.ts';
import type { Model } from '../../nn/model.ts';
import { assert, HoldfastError } from '../../util/errors.ts';
import { findNonFinite } from '../../values/floats.ts';
import {
  CODECS,
  isMade,
  isNarrow,
  MADE_ELEMENTS,
  type MadeElement,
  STORED_BLOCKS,
  type StoredElement,
} from '../../values/stored-elements.ts';
import { type PackedTensor, type TensorSource, wholeBlocks, widenedPieces } from '../../values/tensor-source.ts';

/** Widths that can be asked for. */
export const BASE_DTYPES = MADE_ELEMENTS;

/** Asked for, these are for linears alone, as QLoRA has them: embeddings, the head and norms need more. */
const OF_LINEARS: readonly MadeElement[] = ['q4_0', 'nf4'];

/**
 * How the parameters of a base are stored where `dtype` is asked for; without one, and where it is not for them, as they
 * are in its files.
 */
export function baseStorage(
  model: Model,
  files: ReadonlyMap<string, StoredElement>,
  dtype: MadeElement | undefined,
): (name: string) => StoredElement {
  const shapes = new Map(model.parameters.map(({ name, shape }) => [name, shape]));
  const ofLinears = dtype !== undefined && OF_LINEARS.includes(dtype);
  const linears = new Set(ofLinears ? linearsOf(model).map(({ weight }) => weight) : []);
  return (name) => {
    const [found, shape] = [files.get(name), shapes.get(name)];
    if (found === undefined || shape === undefined) return 'f32';
    const isFor = dtype !== undefined && hasBlocks(shape, dtype) && (!ofLinears || linears.has(name));
    return isFor ? dtype : found;
  };
}

/** What is no matrix comes in no blocks. ggml's lie in one row each, bitsandbytes' go on from row to row. */
function hasBlocks(shape: readonly number[], dtype: MadeElement): boolean {
  const { elements } = STORED_BLOCKS[dtype];
  const run = dtype === 'nf4' ? shape.reduce((a, b) => a * b, 1) : (shape.at(-1) ?? 0);
  return elements === 1 || (shape.length > 1 && run % elements === 0);
}

/**
 * The weights as they are once they have been stored so. `from`: for messages. Errors, as they are read: HoldfastError for
 * one that is too large.
 */
export function roundedWeights(
  weights: TensorSource,
  storedAs: (name: string) => StoredElement,
  from: string,
): TensorSource {
  const packed = (name: string): PackedTensor | undefined => {
    const element = storedAs(name);
    if (!isNarrow(element)) return undefined;
    const given = weights.packed?.(name);
    if (given?.element === element) return given;
    return {
      element,
      async *read() {
        assert(isMade(element), `${name} is stored as ${element}, which is not made of values`);
        for await (const piece of wholeBlocks(weights.read(name), STORED_BLOCKS[element].elements))
          yield rounded(piece, element, name, from);
      },
    };
  };
  return {
    names: weights.names,
    read(name) {
      const stored = packed(name);
      return stored ? widenedPieces(stored) : weights.read(name);
    },
    packed,
    reader(name, element) {
      const reader = weights.reader?.(name, element);
      const stored = storedAs(name);
      return stored === 'f32' || reader?.stored === stored ? reader : undefined;
    },
  };
}

function rounded(
  piece: Float32Array<ArrayBuffer>,
  element: Exclude<MadeElement, 'f32'>,
  name: string,
  from: string,
): Uint8Array<ArrayBuffer> {
  const codec = CODECS[element];
  const { most } = codec;
  const bytes = codec.narrow(piece);
  if (codec.isFinite(bytes)) return bytes;
  // What lies half a step past the largest is still rounded to it.
  const first = findNonFinite(codec.widen(bytes, piece.length));
  const largest = piece.subarray(Math.max(0, first)).find((value) => Math.abs(value) > most);
  throw new HoldfastError(
    `${from}: ${name} has ${largest}, past the largest ${element}, ${most}; leave its weights as they are in the files (auto), or take ${element === 'bf16' ? 'f32' : 'bf16 or f32'}`,
  );
}
