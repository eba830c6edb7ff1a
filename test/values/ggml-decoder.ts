// ggml's blocks as its reference decoders have them (dequantize_row_* of ggml-quants.c), one value after the other, with no code of
// the library's; and blocks of random bits, whose scales are such that values are about as large as weights.

import { Random } from '../../src/util/random.ts';

export const GGML_BLOCKS = {
  q5_0: { elements: 32, bytes: 22, scales: [0] },
  q4_k: { elements: 256, bytes: 144, scales: [0, 2] },
  q5_k: { elements: 256, bytes: 176, scales: [0, 2] },
  q6_k: { elements: 256, bytes: 210, scales: [208] },
} as const;

export type GGMLElement = keyof typeof GGML_BLOCKS;
export const GGML_ELEMENTS = Object.keys(GGML_BLOCKS) as GGMLElement[];

/** A binary16 by its definition. */
function half(bits: number): number {
  const [sign, exponent, fraction] = [bits >> 15 ? -1 : 1, (bits >> 10) & 31, bits & 1023];
  return sign * (exponent === 0 ? fraction * 2 ** -24 : (1 + fraction / 1024) * 2 ** (exponent - 15));
}

/** Of 2^-12 to 2^-7 of either sign; of one block in nine a subnormal or 0. */
export function randomBlocks(element: GGMLElement, count: number, seed: number): Uint8Array<ArrayBuffer> {
  const random = new Random(seed, `blocks of ${element}`);
  const { bytes: size, scales } = GGML_BLOCKS[element];
  const bytes = Uint8Array.from({ length: count * size }, () => random.below(256));
  const view = new DataView(bytes.buffer);
  for (let block = 0; block < count; block++) {
    for (const at of scales) {
      const exponent = block % 9 === 8 ? 0 : 3 + random.below(5);
      const fraction = block % 18 === 17 ? 0 : random.below(1024);
      view.setUint16(block * size + at, (random.below(2) << 15) | (exponent << 10) | fraction, true);
    }
  }
  return bytes;
}

/** `get_scale_min_k4`. */
function scaleAndMin(j: number, q: Uint8Array): [number, number] {
  if (j < 4) return [q[j]! & 63, q[j + 4]! & 63];
  return [(q[j + 4]! & 0xf) | ((q[j - 4]! >> 6) << 4), (q[j + 4]! >> 4) | ((q[j]! >> 6) << 4)];
}

/** The values of whole blocks. */
export function decoded(element: GGMLElement, bytes: Uint8Array<ArrayBuffer>): Float32Array<ArrayBuffer> {
  const { elements, bytes: size } = GGML_BLOCKS[element];
  const values = new Float32Array((bytes.length / size) * elements);
  for (let block = 0; block * size < bytes.length; block++) {
    const b = bytes.slice(block * size, (block + 1) * size);
    const y = values.subarray(block * elements, (block + 1) * elements);
    const f16 = (at: number) => half(b[at]! | (b[at + 1]! << 8));
    if (element === 'q5_0') {
      const d = f16(0);
      const qh = new DataView(b.buffer).getUint32(2, true);
      for (let j = 0; j < 16; j++) {
        const [xh0, xh1] = [((qh >>> j) << 4) & 0x10, (qh >>> (j + 12)) & 0x10];
        y[j] = (((b[6 + j]! & 0x0f) | xh0) - 16) * d;
        y[j + 16] = (((b[6 + j]! >> 4) | xh1) - 16) * d;
      }
    } else if (element === 'q6_k') {
      const [ql, qh, sc] = [b.subarray(0, 128), b.subarray(128, 192), new Int8Array(b.buffer, 192, 16)];
      const d = f16(208);
      for (let n = 0; n < 2; n++) {
        for (let l = 0; l < 32; l++) {
          const is = 8 * n + Math.floor(l / 16);
          const [low, next, high] = [ql[64 * n + l]!, ql[64 * n + l + 32]!, qh[32 * n + l]!];
          const q1 = ((low & 0xf) | (((high >> 0) & 3) << 4)) - 32;
          const q2 = ((next & 0xf) | (((high >> 2) & 3) << 4)) - 32;
          const q3 = ((low >> 4) | (((high >> 4) & 3) << 4)) - 32;
          const q4 = ((next >> 4) | (((high >> 6) & 3) << 4)) - 32;
          y[128 * n + l] = d * sc[is]! * q1;
          y[128 * n + l + 32] = d * sc[is + 2]! * q2;
          y[128 * n + l + 64] = d * sc[is + 4]! * q3;
          y[128 * n + l + 96] = d * sc[is + 6]! * q4;
        }
      }
    } else {
      const [d, min] = [f16(0), f16(2)];
      const scales = b.subarray(4, 16);
      const fifths = element === 'q5_k' ? b.subarray(16, 48) : new Uint8Array(32);
      const fours = b.subarray(size - 128);
      let at = 0;
      for (let j = 0, is = 0, u1 = 1, u2 = 2; j < 4; j++, is += 2, u1 <<= 2, u2 <<= 2) {
        const q = fours.subarray(32 * j, 32 * j + 32);
        const [sc1, m1] = scaleAndMin(is, scales);
        const [sc2, m2] = scaleAndMin(is + 1, scales);
        for (let l = 0; l < 32; l++) y[at++] = d * sc1 * ((q[l]! & 0xf) + (fifths[l]! & u1 ? 16 : 0)) - min * m1;
        for (let l = 0; l < 32; l++) y[at++] = d * sc2 * ((q[l]! >> 4) + (fifths[l]! & u2 ? 16 : 0)) - min * m2;
      }
    }
  }
  return values;
}
