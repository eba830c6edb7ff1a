// Sums of the bits of floats, and of each times its place, in AssemblyScript: src/values/value-sum.ts's. Not TypeScript:
// config/assembly.ts compiles it to a WebAssembly module.
//
// Whole vectors: what lies behind the last float, up to its vector's end, is zero. Sums are modulo 2^64; two are written at
// `sums`.

/** Of float32. */
export function f32(floats: usize, count: usize, sums: usize): void {
  const vectors: u64 = (count + 3) >> 2;
  const end: usize = floats + <usize>(vectors << 4);
  // A lane's sum, and the sum of all that it was: each of its values as often as there are vectors from it on.
  let a01 = i64x2.splat(0);
  let a23 = i64x2.splat(0);
  let b01 = i64x2.splat(0);
  let b23 = i64x2.splat(0);
  for (; floats < end; floats += 16) {
    const four = v128.load(floats);
    a01 = i64x2.add(a01, i64x2.extend_low_i32x4_u(four));
    a23 = i64x2.add(a23, i64x2.extend_high_i32x4_u(four));
    b01 = i64x2.add(b01, a01);
    b23 = i64x2.add(b23, a23);
  }
  v128.store(sums, i64x2.splat(0));
  addLanes(sums, a01, b01, vectors, 0, 4);
  addLanes(sums, a23, b23, vectors, 2, 4);
}

/** Of bfloat16: of the upper halves, as numbers of 16 bits. */
export function bf16(halves: usize, count: usize, sums: usize): void {
  const vectors: u64 = (count + 7) >> 3;
  const end: usize = halves + <usize>(vectors << 4);
  let a01 = i64x2.splat(0);
  let a23 = i64x2.splat(0);
  let a45 = i64x2.splat(0);
  let a67 = i64x2.splat(0);
  let b01 = i64x2.splat(0);
  let b23 = i64x2.splat(0);
  let b45 = i64x2.splat(0);
  let b67 = i64x2.splat(0);
  for (; halves < end; halves += 16) {
    const eight = v128.load(halves);
    const low = i32x4.extend_low_i16x8_u(eight);
    const high = i32x4.extend_high_i16x8_u(eight);
    a01 = i64x2.add(a01, i64x2.extend_low_i32x4_u(low));
    a23 = i64x2.add(a23, i64x2.extend_high_i32x4_u(low));
    a45 = i64x2.add(a45, i64x2.extend_low_i32x4_u(high));
    a67 = i64x2.add(a67, i64x2.extend_high_i32x4_u(high));
    b01 = i64x2.add(b01, a01);
    b23 = i64x2.add(b23, a23);
    b45 = i64x2.add(b45, a45);
    b67 = i64x2.add(b67, a67);
  }
  v128.store(sums, i64x2.splat(0));
  addLanes(sums, a01, b01, vectors, 0, 8);
  addLanes(sums, a23, b23, vectors, 2, 8);
  addLanes(sums, a45, b45, vectors, 4, 8);
  addLanes(sums, a67, b67, vectors, 6, 8);
}

/** Of lanes `first` and `first + 1` of vectors of so many. */
// @ts-ignore: a decorator of AssemblyScript
@inline
function addLanes(sums: usize, a: v128, b: v128, vectors: u64, first: u64, lanes: u64): void {
  addLane(sums, i64x2.extract_lane(a, 0), i64x2.extract_lane(b, 0), vectors, first, lanes);
  addLane(sums, i64x2.extract_lane(a, 1), i64x2.extract_lane(b, 1), vectors, first + 1, lanes);
}

/** Element k of a lane is `k * lanes + lane` of all, and was counted `vectors - k` times in `b`. */
function addLane(sums: usize, a: u64, b: u64, vectors: u64, lane: u64, lanes: u64): void {
  store<u64>(sums, load<u64>(sums) + a);
  store<u64>(sums, load<u64>(sums, 8) + lanes * (vectors * a - b) + lane * a, 8);
}
