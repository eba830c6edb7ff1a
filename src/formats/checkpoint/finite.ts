// Weights that training may start from, or that are put into blocks: a source that refuses what is infinite or NaN as it is
// read. A step with such a weight has no loss, and is skipped: nothing would ever be learned, and nothing would say why.

import { HoldfastError } from '../../util/errors.ts';
import { findNonFinite } from '../../values/floats.ts';
import { bytesPerElement, CODECS, isNarrow, type StoredElement } from '../../values/stored-elements.ts';
import {
  type PackedTensor,
  type TensorReader,
  type TensorSource,
  watched,
  widenedParts,
  widenedPieces,
} from '../../values/tensor-source.ts';
import type { SavedWeights } from './contents.ts';

/**
 * The weights, checked as they are read. `needs`: for messages, what needs them to be finite. Errors, then: HoldfastError naming the
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
  const checkStored = (name: string, element: StoredElement, bytes: Uint8Array<ArrayBuffer>, first: number) => {
    if (!isNarrow(element)) {
      check(name, new Float32Array(bytes.buffer, bytes.byteOffset, bytes.length / 4), first);
      return;
    }
    let at = first;
    for (const part of CODECS[element].isFinite(bytes) ? [] : widenedParts(element, bytes)) {
      check(name, part, at);
      at += part.length;
    }
  };
  const checked = (name: string, packed: PackedTensor): PackedTensor =>
    watched(packed, () => {
      let first = 0;
      return (bytes) => {
        checkStored(name, packed.element, bytes, first);
        first += bytes.length / bytesPerElement(packed.element);
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
    reader(name, element) {
      const reader = weights.reader?.(name, element);
      if (!reader) return undefined;
      const read: TensorReader['read'] = (first, into, look) =>
        reader.read(first, into, (bytes) => {
          checkStored(name, reader.stored, bytes, first);
          look?.(bytes);
        });
      return { ...reader, read };
    },
  };
}

/** The index of the element at a place, row-major: one number a dimension. */
function indexOf(place: number, shape: readonly number[]): number[] {
  const index: number[] = [];
  let rest = place;
  for (const size of [...shape].reverse()) {
    index.unshift(rest % size);
    rest = Math.floor(rest / size);
  }
  return index;
}
