// Values as the bytes of a GGUF tensor, a piece at a time: F32 as they are, F16 and BF16 rounded to nearest even, Q8_0 in
// blocks. Pieces may end anywhere; blocks are put together across them.
//
// Invariant: what a type has no place for is refused, never written as infinite. Little-endian machines only.

import { HoldfastError } from '../../util/errors.ts';
import { findNonFinite, LARGEST } from '../../util/floats.ts';
import { narrowQ8, Q8_BLOCK, Q8_STEPS, scalesOfQ8 } from '../../util/q8.ts';
import { wholeBlocks } from '../../util/tensor-source.ts';
import { narrowed, type ValuePlace } from '../safetensors.ts';
import type { TensorType } from './tensor-types.ts';

type Floats = Float32Array<ArrayBuffer>;
type Bytes = Uint8Array<ArrayBuffer>;

/** Errors: HoldfastError naming the tensor and the first value that is too large. */
export async function* encoded(
  type: TensorType,
  pieces: AsyncIterable<Floats>,
  { path, name }: { readonly path: string; readonly name: string },
): AsyncGenerator<Bytes, void> {
  let first = 0;
  for await (const piece of type === 'Q8_0' ? wholeBlocks(pieces, Q8_BLOCK.elements) : pieces) {
    const place = { path, name, first };
    if (type === 'F32') yield bytesOf(piece);
    else if (type === 'Q8_0') yield quantized(piece, place);
    else yield bytesOf(narrowed(type, piece, place));
    first += piece.length;
  }
}

function quantized(floats: Floats, place: ValuePlace): Bytes {
  const bytes = narrowQ8(floats);
  refuseLargeScales(bytes, floats, place);
  return bytes;
}

function refuseLargeScales(bytes: Bytes, floats: Floats, { path, name, first }: ValuePlace): void {
  const block = findNonFinite(scalesOfQ8(bytes));
  if (block < 0) return;
  const most = Q8_STEPS * LARGEST.F16;
  const at = floats.findIndex((value, i) => i >= block * Q8_BLOCK.elements && Math.abs(value) > most);
  throw new HoldfastError(
    `${path}: ${name} has ${floats[at]} at element ${first + at}, past the largest of Q8_0, ${most}; save it as BF16 or F32`,
  );
}

const bytesOf = ({ buffer, byteOffset, byteLength }: Floats | Uint16Array<ArrayBuffer>): Bytes =>
  new Uint8Array(buffer, byteOffset, byteLength);
