// Q4_0, ggml's four bits: blocks of 32, each a binary16 scale and 32 whole numbers of -8 to 7, counted from -8, two to a byte:
// value i in the lower half of byte i, value i + 16 in the upper. A value is the product of the two.
//
// Invariant: every product is a float32, so widening is exact, and what was widened is narrowed to the same values again.

import { leadingHalves, narrowFloats } from './floats.ts';

type Floats = Float32Array<ArrayBuffer>;
type Bytes = Uint8Array<ArrayBuffer>;

/** Values in a block, and its bytes: the scale, then the whole numbers. */
export const Q4_BLOCK = { elements: 32, bytes: 18 } as const;

/** The largest size of a whole number, which only a negative one has. */
export const Q4_STEPS = 8;

const HALF = Q4_BLOCK.elements / 2;

/**
 * As ggml's reference has it: of each 32 values the one of the largest size is -8 steps, each other the nearest whole number
 * of them. Whole blocks; a scale that is too large becomes infinite.
 */
export function narrowQ4(floats: Floats): Bytes {
  const { elements, bytes: blockBytes } = Q4_BLOCK;
  const scales = new Float32Array(floats.length / elements);
  for (const block of scales.keys()) {
    let largest = 0;
    for (let i = block * elements; i < (block + 1) * elements; i++) {
      const value = floats[i] ?? 0;
      if (Math.abs(value) > Math.abs(largest)) largest = value;
    }
    scales[block] = largest / -Q4_STEPS;
  }
  const halves = new Uint16Array(scales.length);
  narrowFloats('F16', scales, halves);
  const bytes = new Uint8Array(scales.length * blockBytes);
  const view = new DataView(bytes.buffer);
  for (const [block, scale] of scales.entries()) {
    // One that is too small makes a block of zeros, none of them negative.
    const isZero = ((halves[block] ?? 0) & 0x7fff) === 0;
    if (isZero) halves[block] = 0;
    const inverse = isZero ? 0 : Math.fround(1 / scale);
    const steps = (i: number) =>
      Math.min(15, Math.trunc(Math.fround(Math.fround((floats[block * elements + i] ?? 0) * inverse) + 8.5)));
    view.setUint16(block * blockBytes, halves[block] ?? 0, true);
    for (let i = 0; i < HALF; i++) bytes[block * blockBytes + 2 + i] = steps(i) | (steps(i + HALF) << 4);
  }
  return bytes;
}

/** The scales of whole blocks. */
export const scalesOfQ4 = (bytes: Bytes): Floats => leadingHalves(bytes, Q4_BLOCK.bytes);

/** The values of whole blocks, in `into` if it is given; what is behind them is left out. */
export function widenQ4(bytes: Bytes, into?: Floats): Floats {
  const { elements, bytes: blockBytes } = Q4_BLOCK;
  const scales = scalesOfQ4(bytes);
  const floats = into ?? new Float32Array(scales.length * elements);
  for (const [block, scale] of scales.entries()) {
    const [from, first] = [block * blockBytes + 2, block * elements];
    for (let i = 0; i < HALF; i++) {
      const pair = bytes[from + i] ?? 0;
      floats[first + i] = scale * ((pair & 15) - Q4_STEPS);
      floats[first + i + HALF] = scale * ((pair >> 4) - Q4_STEPS);
    }
  }
  return floats;
}
