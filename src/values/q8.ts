// Q8_0, ggml's way of storing weights: blocks of 32, each a binary16 scale and 32 signed bytes, a value being their product.
// Not the files around it (formats/gguf).
//
// Invariant: every product is a float32, so widening is exact, and what was widened is narrowed to the same values again.

import { leadingHalves, narrowFloats } from './floats.ts';

type Floats = Float32Array<ArrayBuffer>;

/** Values in a block, and its bytes: the scale, then the values in their order. */
export const Q8_BLOCK = { elements: 32, bytes: 34 } as const;

/** The largest whole number of a block, times its scale, is the block's largest value. */
export const Q8_STEPS = 127;

/**
 * As ggml's reference has it: of each 32 values the largest size / 127 as a binary16, and each value times its inverse (in
 * float32, of the scale before it is rounded) as the nearest whole number, halves away from 0. Whole blocks; a scale that
 * is too large becomes infinite.
 */
export function narrowQ8(floats: Floats): Uint8Array<ArrayBuffer> {
  const { elements, bytes: blockBytes } = Q8_BLOCK;
  const blocks = floats.length / elements;
  const scales = new Float32Array(blocks);
  for (let block = 0; block < blocks; block++) {
    let largest = 0;
    for (let i = block * elements; i < (block + 1) * elements; i++)
      largest = Math.max(largest, Math.abs(floats[i] ?? 0));
    scales[block] = largest / Q8_STEPS;
  }
  const halves = new Uint16Array(blocks);
  narrowFloats('F16', scales, halves);
  const bytes = new Uint8Array(blocks * blockBytes);
  const view = new DataView(bytes.buffer);
  for (let block = 0, at = 0; block < blocks; block++) {
    const scale = scales[block] ?? 0;
    const inverse = scale === 0 ? 0 : Math.fround(1 / scale);
    view.setUint16(at, halves[block] ?? 0, true);
    at += 2;
    for (let i = block * elements; i < (block + 1) * elements; i++) {
      const steps = Math.fround((floats[i] ?? 0) * inverse);
      view.setInt8(at++, Math.sign(steps) * Math.floor(Math.abs(steps) + 0.5));
    }
  }
  return bytes;
}

/** The scales of whole blocks. */
export const scalesOfQ8 = (bytes: Uint8Array<ArrayBuffer>): Floats => leadingHalves(bytes, Q8_BLOCK.bytes);

/** The values of whole blocks, in `into` if it is given; what is behind them is left out. */
export function widenQ8(bytes: Uint8Array<ArrayBuffer>, into?: Floats): Floats {
  const { elements, bytes: blockBytes } = Q8_BLOCK;
  const scales = scalesOfQ8(bytes);
  const floats = into ?? new Float32Array(scales.length * elements);
  const steps = new Int8Array(bytes.buffer, bytes.byteOffset, bytes.byteLength);
  for (const [block, scale] of scales.entries()) {
    const [at, first] = [block * blockBytes + 2, block * elements];
    // A scale that became 0 has steps of both signs.
    if (scale === 0) floats.fill(0, first, first + elements);
    else for (let i = 0; i < elements; i++) floats[first + i] = scale * (steps[at + i] ?? 0);
  }
  return floats;
}
