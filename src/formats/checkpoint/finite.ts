// Weights that training may start from, or that are put into blocks: a source that refuses what is infinite or NaN as it is
// read. A step with such a weight has no loss, and is skipped: nothing would ever be learned, and nothing would say why.

import { HoldfastError } from '../../util/errors.ts';
import { findNonFinite } from '../../util/floats.ts';
import { bytesPerElement, CODECS } from '../../util/stored-elements.ts';
import {
  type PackedTensor,
  type TensorSource,
  watched,
  widenedParts,
  widenedPieces,
} from '../../util/tensor-source.ts';
import type { SavedWeights } from '../checkpoint.ts';

/**
 * The same weights. `needs`: for messages, what needs them to be finite. Errors, as they are read: HoldfastError naming the
 * tensor and the index of the first that is not.
 */
export function finiteWeights(
  { weights, shapes }: Pick<SavedWeights, 'weights' | 'shapes'>,
  from: string,
  needs = 'training',
): TensorSource {
  const check = (name: string, piece: Float32Array<ArrayBuffer>, first: number) => {
    const place = findNonFinite(piece);
    if (place < 0) return;
    const index = indexOf(first + place, shapes.get(name) ?? []).join(', ');
    throw new HoldfastError(
      `${from}: ${name} is ${piece[place]} at [${index}]; ${needs} needs finite weights, get the file again or use another`,
    );
  };
  const checked = (name: string, packed: PackedTensor): PackedTensor =>
    watched(packed, () => {
      const { element } = packed;
      let first = 0;
      return (bytes) => {
        let at = first;
        for (const part of CODECS[element].isFinite(bytes) ? [] : widenedParts(element, bytes)) {
          check(name, part, at);
          at += part.length;
        }
        first += bytes.length / bytesPerElement(element);
      };
    });
  return {
    names: weights.names,
    async *read(name) {
      // Of fewer bytes than their values are.
      const packed = weights.packed?.(name);
      if (packed) {
        yield* widenedPieces(checked(name, packed));
        return;
      }
      let first = 0;
      for await (const piece of weights.read(name)) {
        check(name, piece, first);
        yield piece;
        first += piece.length;
      }
    },
    packed(name) {
      const packed = weights.packed?.(name);
      return packed && checked(name, packed);
    },
  };
}

/** Of the element at a place, row-major: one number a dimension. */
function indexOf(place: number, shape: readonly number[]): number[] {
  const index: number[] = [];
  let rest = place;
  for (const size of [...shape].reverse()) {
    index.unshift(rest % size);
    rest = Math.floor(rest / size);
  }
  return index;
}
