// How the weights that nothing trains lie in memory: as their files have them, or in a width that was asked for, to which
// they are rounded first. Kernels compute in f32 either way, and widening is exact: the width of a base changes no bit of a
// run unless it rounds.

import { isNarrow, type NarrowElement, STORED_BYTES, type StoredElement } from '../kernels/stored.ts';
import { HoldfastError } from '../util/errors.ts';
import { findNonFinite, LARGEST, narrow, widen } from '../util/floats.ts';
import type { TensorSource } from '../util/tensor-source.ts';

/** Widths that can be asked for. */
export const BASE_DTYPES = Object.keys(STORED_BYTES) as readonly StoredElement[];

/** How a base is stored where `dtype` is asked for; without one as it is in its files. */
export function baseStorage(
  files: ReadonlyMap<string, StoredElement>,
  dtype: StoredElement | undefined,
): (name: string) => StoredElement {
  return (name) => {
    const found = files.get(name);
    return found === undefined ? 'f32' : (dtype ?? found);
  };
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
      for await (const piece of weights.read(name)) {
        yield isNarrow(element) ? rounded(piece, element, name, from) : piece;
      }
    },
  };
}

function rounded(
  piece: Float32Array<ArrayBuffer>,
  element: NarrowElement,
  name: string,
  from: string,
): Float32Array<ArrayBuffer> {
  const dtype = element === 'bf16' ? 'BF16' : 'F16';
  const halves = new Uint16Array(piece.length);
  const wide = new Float32Array(piece.length);
  narrow(dtype, piece, halves);
  widen(dtype, halves, wide);
  const place = findNonFinite(wide);
  if (place >= 0)
    throw new HoldfastError(
      `${from}: ${name} has ${piece[place]}, past the largest ${element}, ${LARGEST[dtype]}; leave its weights as they are in the files (auto), or take ${element === 'f16' ? 'bf16 or f32' : 'f32'}`,
    );
  return wide;
}
