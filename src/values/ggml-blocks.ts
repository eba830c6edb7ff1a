// Blocks of ggml's that are read here and not made: Q5_0, five bits with a scale, as Q4_0; and of the K-quants Q4_K, Q5_K and Q6_K,
// 256 values with scales of 32 or 16 of them, which are whole numbers with a scale of their own. Most published GGUF files
// mix Q4_K and Q6_K, with Q5_0 and Q8_0 for matrices whose rows are no multiples of 256.
//
// Invariant: every product is a float32. So is a value of Q5_0 and Q6_K; those of Q4_K and Q5_K are differences of two products,
// rounded once, whether a shader subtracts them or puts the subtraction and a product into one instruction.

import { leadingHalves, widen } from './floats.ts';

type Floats = Float32Array<ArrayBuffer>;
type Bytes = Uint8Array<ArrayBuffer>;

/** A binary16, the fifth bits of all values in their order, then the lower four as Q4_0 has them, from -16. */
export const Q5_BLOCK = { elements: 32, bytes: 22 } as const;
/** The binary16 scales of scales and of what is subtracted, 12 bytes of both, then four bits of each value. */
export const Q4_K_BLOCK = { elements: 256, bytes: 144 } as const;
/** As Q4_K_BLOCK, with 32 bytes of fifth bits before the four. */
export const Q5_K_BLOCK = { elements: 256, bytes: 176 } as const;
/** 128 bytes of lower four bits, 64 of upper two, 16 signed scales, and their binary16 scale. */
export const Q6_K_BLOCK = { elements: 256, bytes: 210 } as const;

/** Where the scale of scales of Q6_K is. */
const Q6_K_SCALE = 208;

/** The scales of whole blocks. */
export const scalesOfQ5 = (bytes: Bytes): Floats => leadingHalves(bytes, Q5_BLOCK.bytes);

/** Of each of whole blocks the scale of its scales, then those of what is subtracted. */
function pairsOfScales({ buffer, byteOffset, byteLength }: Bytes, blockBytes: number): Floats {
  const view = new DataView(buffer, byteOffset, byteLength);
  const blocks = Math.floor(byteLength / blockBytes);
  const halves = new Uint16Array(2 * blocks);
  for (let i = 0; i < halves.length; i++) halves[i] = view.getUint16((i >> 1) * blockBytes + 2 * (i & 1), true);
  const floats = new Float32Array(halves.length);
  widen('F16', halves, floats);
  return floats;
}

/** The scales of scales of whole blocks, and those of what is subtracted. */
export const scalesOfQ4K = (bytes: Bytes): Floats => pairsOfScales(bytes, Q4_K_BLOCK.bytes);
/** As `scalesOfQ4K`. */
export const scalesOfQ5K = (bytes: Bytes): Floats => pairsOfScales(bytes, Q5_K_BLOCK.bytes);

/** The scales of scales of whole blocks. */
export function scalesOfQ6K({ buffer, byteOffset, byteLength }: Bytes): Floats {
  const view = new DataView(buffer, byteOffset, byteLength);
  const halves = new Uint16Array(Math.floor(byteLength / Q6_K_BLOCK.bytes));
  for (const block of halves.keys()) halves[block] = view.getUint16(block * Q6_K_BLOCK.bytes + Q6_K_SCALE, true);
  const floats = new Float32Array(halves.length);
  widen('F16', halves, floats);
  return floats;
}

/** The values of whole blocks, in `into` if it is given; what is behind them is left out. */
export function widenQ5(bytes: Bytes, into?: Floats): Floats {
  const { elements, bytes: blockBytes } = Q5_BLOCK;
  const scales = scalesOfQ5(bytes);
  const floats = into ?? new Float32Array(scales.length * elements);
  const half = elements / 2;
  for (const [block, scale] of scales.entries()) {
    const [from, first] = [block * blockBytes + 2, block * elements];
    for (let i = 0; i < half; i++) {
      const pair = bytes[from + 4 + i] ?? 0;
      const fifth = (at: number) => (((bytes[from + (at >> 3)] ?? 0) >> (at & 7)) & 1) << 4;
      floats[first + i] = scale * (((pair & 15) | fifth(i)) - 16);
      floats[first + i + half] = scale * (((pair >> 4) | fifth(i + half)) - 16);
    }
  }
  return floats;
}

/** Of Q4_K and Q5_K: eight scales and eight that are subtracted, of six bits, in twelve bytes from `at` on. */
function sixBits(bytes: Bytes, at: number, group: number): readonly [scale: number, less: number] {
  const byte = (i: number) => bytes[at + i] ?? 0;
  if (group < 4) return [byte(group) & 63, byte(group + 4) & 63];
  const low = byte(group + 4);
  return [(low & 15) | ((byte(group - 4) >> 6) << 4), (low >> 4) | ((byte(group) >> 6) << 4)];
}

function widenGroups(
  bytes: Bytes,
  { elements, bytes: blockBytes }: { readonly elements: number; readonly bytes: number },
  fifths: boolean,
  into?: Floats,
): Floats {
  const scales = pairsOfScales(bytes, blockBytes);
  const blocks = scales.length / 2;
  const floats = into ?? new Float32Array(blocks * elements);
  for (let block = 0; block < blocks; block++) {
    const from = block * blockBytes;
    const fours = from + blockBytes - elements / 2;
    for (let group = 0; group < 8; group++) {
      const [scale, less] = sixBits(bytes, from + 4, group);
      const step = (scales[2 * block] ?? 0) * scale;
      const base = (scales[2 * block + 1] ?? 0) * less;
      const [first, at, shift] = [block * elements + 32 * group, fours + 32 * (group >> 1), 4 * (group & 1)];
      for (let i = 0; i < 32; i++) {
        const fifth = fifths ? (((bytes[from + 16 + i] ?? 0) >> group) & 1) << 4 : 0;
        floats[first + i] = step * ((((bytes[at + i] ?? 0) >> shift) & 15) | fifth) - base;
      }
    }
  }
  return floats;
}

/** As `widenQ5`. */
export const widenQ4K = (bytes: Bytes, into?: Floats): Floats => widenGroups(bytes, Q4_K_BLOCK, false, into);
/** As `widenQ5`. */
export const widenQ5K = (bytes: Bytes, into?: Floats): Floats => widenGroups(bytes, Q5_K_BLOCK, true, into);

/** As `widenQ5`. */
export function widenQ6K(bytes: Bytes, into?: Floats): Floats {
  const { elements, bytes: blockBytes } = Q6_K_BLOCK;
  const scales = scalesOfQ6K(bytes);
  const floats = into ?? new Float32Array(scales.length * elements);
  const signed = new Int8Array(bytes.buffer, bytes.byteOffset, bytes.byteLength);
  for (const [block, scale] of scales.entries()) {
    const from = block * blockBytes;
    for (let group = 0; group < 16; group++) {
      const step = scale * (signed[from + 192 + group] ?? 0);
      // 128 values share 64 bytes of lower and 32 of upper bits.
      const [half, part, first] = [group >> 3, (group >> 1) & 3, 16 * (group & 1)];
      const low = from + 64 * half + 32 * (part & 1) + first;
      const high = from + 128 + 32 * half + first;
      const [lowShift, highShift] = [4 * (part >> 1), 2 * part];
      for (let i = 0; i < 16; i++) {
        const value = (((bytes[low + i] ?? 0) >> lowShift) & 15) | ((((bytes[high + i] ?? 0) >> highShift) & 3) << 4);
        floats[block * elements + 16 * group + i] = step * (value - 32);
      }
    }
  }
  return floats;
}
