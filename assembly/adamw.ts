// AdamW over values in host memory, in AssemblyScript: shaders/adamw/adamw.wgsl's arithmetic in its order, four elements at
// a time, every operation rounded to f32. Not TypeScript: config/assembly.ts compiles it to a WebAssembly module.
//
// Elements do not depend on each other: how a range is cut into calls changes no bit.

/** `count` elements at these addresses. `decays`: whether weight decay is theirs. */
export function adamw(
  parameter: usize,
  m: usize,
  v: usize,
  gradient: usize,
  count: usize,
  decays: bool,
  learningRate: f32,
  rest1: f32,
  rest2: f32,
  epsilon: f32,
  weightDecay: f32,
  coefficient: f32,
  correction1: f32,
  correction2: f32,
): void {
  const whole: usize = (count & ~3) << 2;
  const decay: f32 = learningRate * weightDecay;
  updateFours<f32>(
    parameter, m, v, gradient, whole, decays, learningRate, rest1, rest2, epsilon, decay, coefficient, correction1, correction2,
    0, 0, 0, 0,
  );
  const end: usize = count << 2;
  for (let at: usize = whole; at < end; at += 4) {
    const g: f32 = load<f32>(gradient + at) * coefficient;
    const mOld = load<f32>(m + at);
    const vOld = load<f32>(v + at);
    const first: f32 = mOld + rest1 * (g - mOld);
    const second: f32 = vOld + rest2 * (g * g - vOld);
    store<f32>(m + at, first);
    store<f32>(v + at, second);
    const value = load<f32>(parameter + at);
    const decayed: f32 = decays ? decay * value : 0;
    const denominator: f32 = sqrt<f32>(second / correction2) + epsilon;
    const step: f32 = denominator > 0 ? (learningRate * (first / correction1)) / denominator : 0;
    store<f32>(parameter + at, value - (decayed + step));
  }
}

/**
 * The same with moments in bf16, rounded by chance: shaders/adamw/moments_bf16.wgsl. `count`: a multiple of 4; `element`: the
 * number of the first among all that train. Moments nearer to zero than `least` become zero.
 */
export function adamwNarrow(
  parameter: usize,
  m: usize,
  v: usize,
  gradient: usize,
  count: usize,
  decays: bool,
  learningRate: f32,
  rest1: f32,
  rest2: f32,
  epsilon: f32,
  weightDecay: f32,
  coefficient: f32,
  correction1: f32,
  correction2: f32,
  keyFirst: u32,
  keyLast: u32,
  element: u32,
  least: f32,
): void {
  const decay: f32 = learningRate * weightDecay;
  updateFours<u16>(
    parameter, m, v, gradient, count << 2, decays, learningRate, rest1, rest2, epsilon, decay, coefficient, correction1,
    correction2, keyFirst, keyLast, element, least,
  );
}

/** The elements of whole vectors, up to `end` bytes of the parameter. `Moment`: f32, or u16 for bf16. */
// @ts-ignore: decorator
@inline
function updateFours<Moment>(
  parameter: usize,
  m: usize,
  v: usize,
  gradient: usize,
  end: usize,
  decays: bool,
  learningRate: f32,
  rest1: f32,
  rest2: f32,
  epsilon: f32,
  decay: f32,
  coefficient: f32,
  correction1: f32,
  correction2: f32,
  keyFirst: u32,
  keyLast: u32,
  element: u32,
  least: f32,
): void {
  const lr4 = f32x4.splat(learningRate);
  const rest14 = f32x4.splat(rest1);
  const rest24 = f32x4.splat(rest2);
  const epsilon4 = f32x4.splat(epsilon);
  const decay4 = f32x4.splat(decay);
  const coefficient4 = f32x4.splat(coefficient);
  const correction14 = f32x4.splat(correction1);
  const correction24 = f32x4.splat(correction2);
  const decayMask = i32x4.splat(decays ? -1 : 0);
  const start = splitmix32(i32x4.splat(keyFirst));
  const keyLast4 = i32x4.splat(keyLast);
  const least4 = f32x4.splat(least);
  let elements = i32x4.add(i32x4.splat(element), i32x4(0, 1, 2, 3));
  for (let at: usize = 0; at < end; at += 16) {
    const g = f32x4.mul(v128.load(gradient + at), coefficient4);
    const first = towards(moments<Moment>(m, at), g, rest14);
    const second = towards(moments<Moment>(v, at), f32x4.mul(g, g), rest24);
    if (sizeof<Moment>() == 2) {
      const chance = splitmix32(v128.xor(splitmix32(v128.xor(start, elements)), keyLast4));
      storeRounded(m + (at >> 1), swept(first, least4), v128.and(chance, i32x4.splat(0xffff)));
      storeRounded(v + (at >> 1), swept(second, least4), i32x4.shr_u(chance, 16));
      elements = i32x4.add(elements, i32x4.splat(4));
    } else {
      v128.store(m + at, first);
      v128.store(v + at, second);
    }
    const root = f32x4.sqrt(f32x4.div(second, correction24));
    const rate = f32x4.mul(lr4, f32x4.div(first, correction14));
    const denominator = f32x4.add(root, epsilon4);
    const value = v128.load(parameter + at);
    const decayed = v128.and(f32x4.mul(decay4, value), decayMask);
    const step = v128.and(f32x4.div(rate, denominator), f32x4.gt(denominator, f32x4.splat(0)));
    v128.store(parameter + at, f32x4.sub(value, f32x4.add(decayed, step)));
  }
}

/** Four moments, of those at the element that lies `at` bytes behind the first in f32. */
// @ts-ignore: decorator
@inline
function moments<Moment>(first: usize, at: usize): v128 {
  if (sizeof<Moment>() == 2) return i32x4.shl(v128.load_ext<u16>(first + (at >> 1)), 16);
  return v128.load(first + at);
}

/** A step from `old` towards `target`. */
// @ts-ignore: decorator
@inline
function towards(old: v128, target: v128, rest: v128): v128 {
  return f32x4.add(old, f32x4.mul(rest, f32x4.sub(target, old)));
}

// @ts-ignore: decorator
@inline
function splitmix32(word: v128): v128 {
  let z = i32x4.add(word, i32x4.splat(0x9e3779b9));
  z = i32x4.mul(v128.xor(z, i32x4.shr_u(z, 16)), i32x4.splat(0x21f0aaad));
  z = i32x4.mul(v128.xor(z, i32x4.shr_u(z, 15)), i32x4.splat(0x735a2d97));
  return v128.xor(z, i32x4.shr_u(z, 15));
}

// @ts-ignore: decorator
@inline
function storeRounded(halves: usize, value: v128, chance: v128): void {
  const size = v128.and(value, i32x4.splat(0x7fffffff));
  const infinite = i32x4.splat(0x7f800000);
  const kept = v128.or(i32x4.shr_u(value, 16), v128.and(i32x4.gt_s(size, infinite), i32x4.splat(0x40)));
  const up = i32x4.shr_u(i32x4.add(value, chance), 16);
  const found = v128.bitselect(kept, up, i32x4.ge_s(size, infinite));
  store<i64>(halves, i64x2.extract_lane(i16x8.narrow_i32x4_u(found, found), 0));
}

// @ts-ignore: decorator
@inline
function swept(value: v128, least: v128): v128 {
  return v128.andnot(value, f32x4.lt(f32x4.abs(value), least));
}

/** Values nearer to zero than `least` become zero; NaN stays. */
export function sweep(values: usize, count: usize, least: f32): void {
  const least4 = f32x4.splat(least);
  const whole: usize = (count & ~3) << 2;
  for (let at: usize = 0; at < whole; at += 16) {
    v128.store(values + at, swept(v128.load(values + at), least4));
  }
  const end: usize = count << 2;
  for (let at: usize = whole; at < end; at += 4) {
    if (abs<f32>(load<f32>(values + at)) < least) store<f32>(values + at, 0);
  }
}

/** The loads and stores of `adamw` alone: what it is measured by. Values stay. */
export function traffic(parameter: usize, m: usize, v: usize, gradient: usize, count: usize): void {
  const end: usize = (count & ~3) << 2;
  for (let at: usize = 0; at < end; at += 16) {
    const none = v128.and(v128.load(gradient + at), i32x4.splat(0));
    v128.store(m + at, v128.or(v128.load(m + at), none));
    v128.store(v + at, v128.or(v128.load(v + at), none));
    v128.store(parameter + at, v128.or(v128.load(parameter + at), none));
  }
}
