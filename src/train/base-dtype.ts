// How the weights that nothing trains lie in memory: as their files have them, or in a width that was asked for, to which
// they are rounded first. Kernels compute in f32 either way, and widening is exact: the width of a base changes no bit of a
// run unless it rounds.

import { isNarrow, type NarrowElement, STORED_BLOCKS, type StoredElement } from '../kernels/stored.ts';
import type { Parameter } from '../nn/model.ts';
import { HoldfastError } from '../util/errors.ts';
import { findNonFinite, LARGEST, narrow, widen } from '../util/floats.ts';
import { narrowQ8, Q8_STEPS, wholeBlocks, widenQ8 } from '../util/q8.ts';
import type { TensorSource } from '../util/tensor-source.ts';

/** Widths that can be asked for. */
export const BASE_DTYPES = Object.keys(STORED_BLOCKS) as readonly StoredElement[];

/**
 * How the parameters of a base are stored where `dtype` is asked for; without one, and where rows do not come in its
 * blocks, as they are in its files.
 */
export function baseStorage(
  parameters: readonly Pick<Parameter, 'name' | 'shape'>[],
  files: ReadonlyMap<string, StoredElement>,
  dtype: StoredElement | undefined,
): (name: string) => StoredElement {
  const shapes = new Map(parameters.map(({ name, shape }) => [name, shape]));
  return (name) => {
    const [found, shape] = [files.get(name), shapes.get(name)];
    if (found === undefined || shape === undefined) return 'f32';
    return dtype !== undefined && hasBlocks(shape, dtype) ? dtype : found;
  };
}

/** As in GGUF files, what is no matrix comes in no blocks. */
function hasBlocks(shape: readonly number[], dtype: StoredElement): boolean {
  const { elements } = STORED_BLOCKS[dtype];
  return elements === 1 || (shape.length > 1 && (shape.at(-1) ?? 0) % elements === 0);
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
  return {
    names: weights.names,
    async *read(name) {
      const element = storedAs(name);
      const pieces = weights.read(name);
      for await (const piece of element === 'q8_0' ? wholeBlocks(pieces) : pieces) {
        yield isNarrow(element) ? rounded(piece, element, name, from) : piece;
      }
    },
  };
}

const MOST: Readonly<Record<NarrowElement, number>> = {
  bf16: LARGEST.BF16,
  f16: LARGEST.F16,
  q8_0: Q8_STEPS * LARGEST.F16,
};

function rounded(
  piece: Float32Array<ArrayBuffer>,
  element: NarrowElement,
  name: string,
  from: string,
): Float32Array<ArrayBuffer> {
  const wide = element === 'q8_0' ? widenQ8(narrowQ8(piece)) : roundedHalves(piece, element);
  const place = findNonFinite(wide);
  if (place >= 0) {
    const largest = piece.subarray(place).find((value) => Math.abs(value) > MOST[element]);
    throw new HoldfastError(
      `${from}: ${name} has ${largest}, past the largest ${element}, ${MOST[element]}; leave its weights as they are in the files (auto), or take ${element === 'bf16' ? 'f32' : 'bf16 or f32'}`,
    );
  }
  return wide;
}

function roundedHalves(piece: Float32Array<ArrayBuffer>, element: 'bf16' | 'f16'): Float32Array<ArrayBuffer> {
  const dtype = element === 'bf16' ? 'BF16' : 'F16';
  const halves = new Uint16Array(piece.length);
  const wide = new Float32Array(piece.length);
  narrow(dtype, piece, halves);
  widen(dtype, halves, wide);
  return wide;
}
