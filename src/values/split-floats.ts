// Float32 as two halves of sixteen bits: the upper one is the nearest bfloat16, the lower one the rest. Not the rounding of
// files (floats.ts): a value half way between two bfloat16 goes away from zero, not to the even one.
//
// Invariant: the halves together are the float32, bit for bit, whatever it is. With ties to even they could not be: two
// floats, half a step below and half a step above an even bfloat16, would have the same halves. Little-endian machines only.

type Halves = Uint16Array<ArrayBuffer>;
type Floats = Float32Array<ArrayBuffer>;

/** Fills the first elements of `upper`. A carry out of the lower half's first bit rounds up. */
export function upperHalves(floats: Floats, upper: Halves): void {
  const bits = new Uint32Array(floats.buffer, floats.byteOffset, floats.length);
  for (let i = 0; i < bits.length; i++) upper[i] = ((bits[i] ?? 0) + 0x8000) >>> 16;
}

/** Fills the first elements of `lower`. */
export function lowerHalves(floats: Floats, lower: Halves): void {
  const bits = new Uint32Array(floats.buffer, floats.byteOffset, floats.length);
  for (let i = 0; i < bits.length; i++) lower[i] = bits[i] ?? 0;
}

/** Fills the first elements of `into`. */
export function joinHalves(upper: Halves, lower: Halves, into: Floats): void {
  const bits = new Uint32Array(into.buffer, into.byteOffset, upper.length);
  for (let i = 0; i < upper.length; i++) {
    const low = lower[i] ?? 0;
    // What was carried up is taken back.
    bits[i] = (((upper[i] ?? 0) << 16) | low) - ((low & 0x8000) << 1);
  }
}
