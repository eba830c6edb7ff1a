// Sixteen-bit floats to float32, in AssemblyScript: src/values/floats.ts's bits, eight or four at a time. Not TypeScript:
// config/assembly.ts compiles it to a WebAssembly module.
//
// Whole vectors: up to seven halves behind the last are read, and their floats written.

/** bfloat16 is the upper half of a float32. */
export function bf16(halves: usize, floats: usize, count: usize): void {
  const zeros = i16x8.splat(0);
  const end: usize = halves + (count << 1);
  for (; halves < end; halves += 16, floats += 32) {
    const eight = v128.load(halves);
    v128.store(floats, v128.shuffle<i16>(zeros, eight, 0, 8, 1, 9, 2, 10, 3, 11));
    v128.store(floats, v128.shuffle<i16>(zeros, eight, 4, 12, 5, 13, 6, 14, 7, 15), 16);
  }
}

/** IEEE binary16: 1 sign, 5 exponent (bias 15), 10 fraction bits. */
export function f16(halves: usize, floats: usize, count: usize): void {
  const rebias = i32x4.splat(112 << 23);
  const end: usize = halves + (count << 1);
  for (; halves < end; halves += 8, floats += 16) {
    const four = v128.load_ext<u16>(halves);
    const size = v128.and(four, i32x4.splat(0x7fff));
    const sign = i32x4.shl(v128.xor(four, size), 16);
    // The highest exponent is as far from the highest one of a float32 as the lowest is from its own.
    const special = v128.and(i32x4.gt_s(size, i32x4.splat(0x7bff)), rebias);
    const normal = i32x4.add(i32x4.add(i32x4.shl(size, 13), rebias), special);
    // Multiples of 2^-24, zero among them: exact.
    const small = f32x4.mul(f32x4.convert_i32x4_s(size), f32x4.splat(<f32>5.960464477539063e-8));
    v128.store(floats, v128.or(sign, v128.bitselect(small, normal, i32x4.lt_s(size, i32x4.splat(0x400)))));
  }
}
