// Sixteen-bit floats, to and from float32: bfloat16 and IEEE binary16, whole arrays at a time. Not the file format around
// them (formats/safetensors.ts).
//
// Invariant: widening is exact, subnormals, infinities and signed zeros included; narrowing rounds to nearest, ties to
// even, and what is past the largest becomes infinite, as in PyTorch. Little-endian machines only.

import { widenedFast } from './widen.ts';

/** Of the format's names, those of half the size of a float32. */
export type HalfDtype = 'F16' | 'BF16';

type Halves = Uint16Array<ArrayBuffer>;
type Floats = Float32Array<ArrayBuffer>;

/** The largest finite value of each. */
export const LARGEST: Readonly<Record<HalfDtype, number>> = { F16: 65504, BF16: (2 - 2 ** -7) * 2 ** 127 };

/**
 * Fills the first elements of `into`. `halves` begins at a multiple of 4 bytes; it may lie at the end of the memory of as many
 * floats, and is no more when it is widened.
 */
export function widen(dtype: HalfDtype, halves: Halves, into: Floats): void {
  const bits = new Uint32Array(into.buffer, into.byteOffset, halves.length);
  if (widenedFast(dtype === 'BF16' ? 'bf16' : 'f16', halves, bits)) return;
  if (dtype === 'BF16') widenBF16(halves, bits);
  else widenF16(halves, bits);
}

/** bfloat16 is the upper half of a float32. Two at a time: one load for both, four times as fast as one by one. */
function widenBF16(halves: Halves, bits: Uint32Array): void {
  const pairs = pairsOf(halves);
  for (let i = 0, at = 0; i < pairs.length; i++, at += 2) {
    const pair = pairs[i] ?? 0;
    bits[at] = pair << 16;
    bits[at + 1] = pair & 0xffff0000;
  }
  if (halves.length % 2 === 1) bits[halves.length - 1] = (halves.at(-1) ?? 0) << 16;
}

let f16: Uint32Array<ArrayBuffer> | undefined;

/** The float32 of every binary16: reading it takes a third of the time of computing it. */
function floatsOfF16(): Uint32Array<ArrayBuffer> {
  if (f16) return f16;
  f16 = new Uint32Array(2 ** 16);
  const floats = new Float32Array(f16.buffer);
  for (let half = 0; half < f16.length; half++) {
    const sign = (half & 0x8000) << 16;
    // 1 sign, 5 exponent (bias 15), 10 fraction bits: put where a float32 has them, the exponent is 112 too small.
    f16[half] = sign | ((half & 0x7fff) << 13);
    if ((half & 0x7c00) === 0x7c00) f16[half] = sign | 0x7f800000 | ((half & 0x3ff) << 13);
    // Exact: a subnormal becomes normal.
    else floats[half] = (floats[half] ?? 0) * 2 ** 112;
  }
  return f16;
}

function widenF16(halves: Halves, bits: Uint32Array): void {
  const floats = floatsOfF16();
  const pairs = pairsOf(halves);
  for (let i = 0, at = 0; i < pairs.length; i++, at += 2) {
    const pair = pairs[i] ?? 0;
    bits[at] = floats[pair & 0xffff] ?? 0;
    bits[at + 1] = floats[pair >>> 16] ?? 0;
  }
  if (halves.length % 2 === 1) bits[halves.length - 1] = floats[halves.at(-1) ?? 0] ?? 0;
}

const pairsOf = ({ buffer, byteOffset, length }: Halves): Uint32Array =>
  new Uint32Array(buffer, byteOffset, Math.floor(length / 2));

/** The binary16 that each block of so many bytes begins with. Whole blocks; what is behind them is left out. */
export function leadingHalves({ buffer, byteOffset, byteLength }: Uint8Array<ArrayBuffer>, blockBytes: number): Floats {
  const view = new DataView(buffer, byteOffset, byteLength);
  const halves = new Uint16Array(Math.floor(byteLength / blockBytes));
  for (const block of halves.keys()) halves[block] = view.getUint16(block * blockBytes, true);
  const floats = new Float32Array(halves.length);
  widen('F16', halves, floats);
  return floats;
}

/** Whether none of them is infinite or NaN: none has the highest exponent. `halves` begins at a multiple of 4 bytes. */
export function areFinite(dtype: HalfDtype, halves: Halves): boolean {
  const [exponent, least] = dtype === 'BF16' ? [0x7f80, 0x0080] : [0x7c00, 0x0400];
  const [exponents, leasts] = [exponent * 0x10001, least * 0x10001];
  const pairs = pairsOf(halves);
  let special = halves.length % 2 === 1 ? ((halves.at(-1) ?? 0) & exponent) + least : 0;
  let i = 0;
  // It carries into the bit of the sign.
  for (; i + 3 < pairs.length; i += 4) {
    special |=
      (((pairs[i] ?? 0) & exponents) + leasts) |
      (((pairs[i + 1] ?? 0) & exponents) + leasts) |
      (((pairs[i + 2] ?? 0) & exponents) + leasts) |
      (((pairs[i + 3] ?? 0) & exponents) + leasts);
  }
  for (; i < pairs.length; i++) special |= ((pairs[i] ?? 0) & exponents) + leasts;
  return (special & 0x80008000) === 0;
}

/** Fills the first elements of `into`. */
export function narrowFloats(dtype: HalfDtype, floats: Floats, into: Halves): void {
  const bits = new Uint32Array(floats.buffer, floats.byteOffset, floats.length);
  if (dtype === 'BF16') {
    for (let i = 0; i < bits.length; i++) into[i] = narrowBF16(bits[i] ?? 0);
  } else {
    for (let i = 0; i < bits.length; i++) into[i] = narrowF16(bits[i] ?? 0, floats[i] ?? 0);
  }
}

function narrowBF16(bits: number): number {
  // A NaN stays one: its fraction may lie in the lower half alone.
  if ((bits & 0x7fffffff) > 0x7f800000) return (bits >>> 16) | 0x40;
  return (bits + 0x7fff + ((bits >>> 16) & 1)) >>> 16;
}

function narrowF16(bits: number, value: number): number {
  const sign = (bits >>> 16) & 0x8000;
  const size = bits & 0x7fffffff;
  if (size > 0x7f800000) return sign | 0x7e00 | ((size >>> 13) & 0x3ff);
  // 65520, half way between the largest and what would be next.
  if (size >= 0x477ff000) return sign | 0x7c00;
  if (size >= 0x38800000) {
    const moved = size - (112 << 23);
    return sign | ((moved + 0xfff + ((moved >>> 13) & 1)) >>> 13);
  }
  // Multiples of 2^-24. In float64 a sum with 2^52 has no fraction bits left, and is rounded as it should be.
  return sign | (Math.abs(value) * 2 ** 24 + 2 ** 52 - 2 ** 52);
}

/** The place of the first that is infinite or NaN, or -1. */
export function findNonFinite(floats: Floats): number {
  const bits = new Int32Array(floats.buffer, floats.byteOffset, floats.length);
  let special = 0;
  let i = 0;
  for (; i + 3 < bits.length; i += 4) {
    // The highest exponent carries into the sign.
    special |=
      (((bits[i] ?? 0) & 0x7f800000) + 0x00800000) |
      (((bits[i + 1] ?? 0) & 0x7f800000) + 0x00800000) |
      (((bits[i + 2] ?? 0) & 0x7f800000) + 0x00800000) |
      (((bits[i + 3] ?? 0) & 0x7f800000) + 0x00800000);
  }
  for (; i < bits.length; i++) special |= ((bits[i] ?? 0) & 0x7f800000) + 0x00800000;
  return special < 0 ? floats.findIndex((value) => !Number.isFinite(value)) : -1;
}
