// Values as the bytes of a GGUF tensor, a piece at a time: F32 as they are, F16 and BF16 rounded to nearest even, Q8_0 in
// blocks. Pieces may end anywhere; blocks are put together across them.
//
// Invariant: what a type has no place for is refused, never written as infinite. Little-endian machines only.

import { HoldfastError } from '../../util/errors.ts';
import { findNonFinite, LARGEST, narrow, widen } from '../../util/floats.ts';
import { narrowed, type ValuePlace } from '../safetensors.ts';
import { TENSOR_TYPES, type TensorType } from './tensor-types.ts';

type Floats = Float32Array<ArrayBuffer>;
type Bytes = Uint8Array<ArrayBuffer>;

const { blockElements: BLOCK, blockBytes: BLOCK_BYTES } = TENSOR_TYPES.Q8_0;

/** The largest whole number of a block, times its scale, is the block's largest value. */
const STEPS = 127;

/** Errors: HoldfastError naming the tensor and the first value that is too large. */
export async function* encoded(
  type: TensorType,
  pieces: AsyncIterable<Floats>,
  { path, name }: { readonly path: string; readonly name: string },
): AsyncGenerator<Bytes, void> {
  let first = 0;
  for await (const piece of type === 'Q8_0' ? wholeBlocks(pieces) : pieces) {
    const place = { path, name, first };
    if (type === 'F32') yield bytesOf(piece);
    else if (type === 'Q8_0') yield quantized(piece, place);
    else yield bytesOf(narrowed(type, piece, place));
    first += piece.length;
  }
}

/** The same values in pieces of whole blocks. */
async function* wholeBlocks(pieces: AsyncIterable<Floats>): AsyncGenerator<Floats, void> {
  let rest: Floats = new Float32Array();
  for await (const piece of pieces) {
    let all = piece;
    if (rest.length > 0) {
      all = new Float32Array(rest.length + piece.length);
      all.set(rest);
      all.set(piece, rest.length);
    }
    const whole = all.length - (all.length % BLOCK);
    if (whole > 0) yield all.subarray(0, whole);
    rest = all.slice(whole);
  }
}

/**
 * Q8_0, as ggml's reference has it: of each 32 values the largest size / 127 as a binary16, and each value times its inverse (in
 * float32, of the scale before it is rounded) as the nearest whole number, halves away from 0.
 */
function quantized(floats: Floats, place: ValuePlace): Bytes {
  const blocks = floats.length / BLOCK;
  const scales = new Float32Array(blocks);
  for (let block = 0; block < blocks; block++) {
    let largest = 0;
    for (let i = block * BLOCK; i < (block + 1) * BLOCK; i++) largest = Math.max(largest, Math.abs(floats[i] ?? 0));
    scales[block] = largest / STEPS;
  }
  const halves = new Uint16Array(blocks);
  narrow('F16', scales, halves);
  refuseLargeScales(halves, floats, place);
  const bytes = new Uint8Array(blocks * BLOCK_BYTES);
  const view = new DataView(bytes.buffer);
  for (let block = 0, at = 0; block < blocks; block++) {
    const scale = scales[block] ?? 0;
    const inverse = scale === 0 ? 0 : Math.fround(1 / scale);
    view.setUint16(at, halves[block] ?? 0, true);
    at += 2;
    for (let i = block * BLOCK; i < (block + 1) * BLOCK; i++) {
      const steps = Math.fround((floats[i] ?? 0) * inverse);
      view.setInt8(at++, Math.sign(steps) * Math.floor(Math.abs(steps) + 0.5));
    }
  }
  return bytes;
}

function refuseLargeScales(halves: Uint16Array<ArrayBuffer>, floats: Floats, { path, name, first }: ValuePlace): void {
  const wide = new Float32Array(halves.length);
  widen('F16', halves, wide);
  const block = findNonFinite(wide);
  if (block < 0) return;
  const most = STEPS * LARGEST.F16;
  const at = floats.findIndex((value, i) => i >= block * BLOCK && Math.abs(value) > most);
  throw new HoldfastError(
    `${path}: ${name} has ${floats[at]} at element ${first + at}, past the largest of Q8_0, ${most}; save it as BF16 or F32`,
  );
}

const bytesOf = ({ buffer, byteOffset, byteLength }: Floats | Uint16Array<ArrayBuffer>): Bytes =>
  new Uint8Array(buffer, byteOffset, byteLength);
