// Values as the bytes of a GGUF tensor, a piece at a time: F32 as they are, F16 and BF16 rounded to nearest even, Q8_0 and Q4_0 in
// blocks. Pieces may end anywhere; blocks are put together across them.
//
// Invariant: what a type has no place for is refused, never written as infinite. Little-endian machines only.

import { HoldfastError } from '../../util/errors.ts';
import { CODECS } from '../../values/stored-elements.ts';
import { wholeBlocks } from '../../values/tensor-source.ts';
import { narrowed, type ValuePlace } from '../safetensors.ts';
import { TENSOR_TYPES, type TensorType } from './tensor-types.ts';

type Floats = Float32Array<ArrayBuffer>;
type Bytes = Uint8Array<ArrayBuffer>;

/** Errors: HoldfastError naming the tensor and the first value that is too large. */
export async function* encoded(
  type: TensorType,
  pieces: AsyncIterable<Floats>,
  { path, name }: { readonly path: string; readonly name: string },
): AsyncGenerator<Bytes, void> {
  let first = 0;
  for await (const piece of wholeBlocks(pieces, TENSOR_TYPES[type].blockElements)) {
    const place = { path, name, first };
    if (type === 'F32') yield bytesOf(piece);
    else if (type === 'F16' || type === 'BF16') yield bytesOf(narrowed(type, piece, place));
    else yield quantized(type, piece, place);
    first += piece.length;
  }
}

function quantized(type: 'Q8_0' | 'Q4_0', floats: Floats, { path, name, first }: ValuePlace): Bytes {
  const { narrow, isFinite: isWhole, most } = CODECS[TENSOR_TYPES[type].element];
  const bytes = narrow(floats);
  if (isWhole(bytes)) return bytes;
  const at = floats.findIndex((value) => Math.abs(value) > most);
  throw new HoldfastError(
    `${path}: ${name} has ${floats[at]} at element ${first + at}, past the largest of ${type}, ${most}; save it as BF16 or F32`,
  );
}

const bytesOf = ({ buffer, byteOffset, byteLength }: Floats | Uint16Array<ArrayBuffer>): Bytes =>
  new Uint8Array(buffer, byteOffset, byteLength);
