// AdamW over values in host memory, in AssemblyScript: shaders/adamw/adamw.wgsl's arithmetic in its order, four elements at
// a time, every operation rounded to f32. Not TypeScript: config/assembly.ts compiles it to a WebAssembly module.
//
// Elements do not depend on each other: how a range is cut into calls changes no bit.

/** How parameters are kept, as types: which of the code below is theirs is decided when it is compiled. Gradients go with them. */
type Floats = f32;
/** Halves of float32, the upper ones bfloat16 (src/values/split-floats.ts); gradients in bfloat16. */
type Halves = u16;
/** Float32 beside a copy in binary16; gradients in binary16. */
type WithCopy = i16;
/** How moments are kept: as Floats, or in bfloat16, rounded by chance: shaders/adamw/moments_bf16.wgsl. */
type Rounded = u16;

/**
 * `count` elements at these addresses, kept in one of WAYS (src/kernels/host-adamw.ts): of all but the first a multiple of 4.
 * `beside`: the lower halves, or the copy. New values go to the addresses of the same names, which may be those of the old ones.
 * `decays`: whether weight decay is theirs. For moments that are rounded: the words of the step's key, the number of the first
 * element among all that train, and below which size moments become zero.
 */
export function adamw(
  way: i32,
  parameter: usize,
  beside: usize,
  m: usize,
  v: usize,
  gradient: usize,
  newParameter: usize,
  newBeside: usize,
  newM: usize,
  newV: usize,
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
  const whole: usize = (count & ~3) << 2;
  const decay: f32 = learningRate * weightDecay;
  switch (way) {
    case 0:
      updateFours<Floats, Floats>(
        parameter, beside, m, v, gradient, newParameter, newBeside, newM, newV, whole, decays, learningRate, rest1, rest2, epsilon,
        decay, coefficient, correction1, correction2, keyFirst, keyLast, element, least,
      );
      break;
    case 1:
      updateFours<Floats, Rounded>(
        parameter, beside, m, v, gradient, newParameter, newBeside, newM, newV, whole, decays, learningRate, rest1, rest2, epsilon,
        decay, coefficient, correction1, correction2, keyFirst, keyLast, element, least,
      );
      return;
    case 2:
      updateFours<Halves, Floats>(
        parameter, beside, m, v, gradient, newParameter, newBeside, newM, newV, whole, decays, learningRate, rest1, rest2, epsilon,
        decay, coefficient, correction1, correction2, keyFirst, keyLast, element, least,
      );
      return;
    case 3:
      updateFours<Halves, Rounded>(
        parameter, beside, m, v, gradient, newParameter, newBeside, newM, newV, whole, decays, learningRate, rest1, rest2, epsilon,
        decay, coefficient, correction1, correction2, keyFirst, keyLast, element, least,
      );
      return;
    case 4:
      updateFours<WithCopy, Floats>(
        parameter, beside, m, v, gradient, newParameter, newBeside, newM, newV, whole, decays, learningRate, rest1, rest2, epsilon,
        decay, coefficient, correction1, correction2, keyFirst, keyLast, element, least,
      );
      return;
    case 5:
      updateFours<WithCopy, Rounded>(
        parameter, beside, m, v, gradient, newParameter, newBeside, newM, newV, whole, decays, learningRate, rest1, rest2, epsilon,
        decay, coefficient, correction1, correction2, keyFirst, keyLast, element, least,
      );
      return;
    default:
      unreachable();
  }
  const end: usize = count << 2;
  for (let at: usize = whole; at < end; at += 4) {
    const g: f32 = load<f32>(gradient + at) * coefficient;
    const mOld = load<f32>(m + at);
    const vOld = load<f32>(v + at);
    const first: f32 = mOld + rest1 * (g - mOld);
    const second: f32 = vOld + rest2 * (g * g - vOld);
    store<f32>(newM + at, first);
    store<f32>(newV + at, second);
    const value = load<f32>(parameter + at);
    const decayed: f32 = decays ? decay * value : 0;
    const denominator: f32 = sqrt<f32>(second / correction2) + epsilon;
    const step: f32 = denominator > 0 ? (learningRate * (first / correction1)) / denominator : 0;
    store<f32>(newParameter + at, value - (decayed + step));
  }
}

/** The elements of whole vectors, up to `end` bytes of float32. */
// @ts-ignore: decorator
@inline
function updateFours<Parameter, Moment>(
  parameter: usize,
  beside: usize,
  m: usize,
  v: usize,
  gradient: usize,
  newParameter: usize,
  newBeside: usize,
  newM: usize,
  newV: usize,
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
  const four4 = i32x4.splat(4);
  let at: usize = 0;
  // An engine does not unroll a loop of this size. In halves there is more to do, and nothing gained.
  if (sizeof<Parameter>() == 4) {
    for (const pairs = end & ~31; at < pairs; at += 32) {
      updateFour<Parameter, Moment>(
        parameter, beside, m, v, gradient, newParameter, newBeside, newM, newV, at, decayMask, lr4, rest14, rest24, epsilon4,
        decay4, coefficient4, correction14, correction24, start, keyLast4, elements, least4,
      );
      if (sizeof<Moment>() == 2) elements = i32x4.add(elements, four4);
      updateFour<Parameter, Moment>(
        parameter, beside, m, v, gradient, newParameter, newBeside, newM, newV, at + 16, decayMask, lr4, rest14, rest24, epsilon4,
        decay4, coefficient4, correction14, correction24, start, keyLast4, elements, least4,
      );
      if (sizeof<Moment>() == 2) elements = i32x4.add(elements, four4);
    }
  }
  for (; at < end; at += 16) {
    updateFour<Parameter, Moment>(
      parameter, beside, m, v, gradient, newParameter, newBeside, newM, newV, at, decayMask, lr4, rest14, rest24, epsilon4,
      decay4, coefficient4, correction14, correction24, start, keyLast4, elements, least4,
    );
    if (sizeof<Moment>() == 2) elements = i32x4.add(elements, four4);
  }
}

/** The four elements that lie `at` bytes behind the first, counted in f32. */
// @ts-ignore: decorator
@inline
function updateFour<Parameter, Moment>(
  parameter: usize,
  beside: usize,
  m: usize,
  v: usize,
  gradient: usize,
  newParameter: usize,
  newBeside: usize,
  newM: usize,
  newV: usize,
  at: usize,
  decayMask: v128,
  learningRate: v128,
  rest1: v128,
  rest2: v128,
  epsilon: v128,
  decay: v128,
  coefficient: v128,
  correction1: v128,
  correction2: v128,
  start: v128,
  keyLast: v128,
  elements: v128,
  least: v128,
): void {
  const g = f32x4.mul(gradients<Parameter>(gradient, at), coefficient);
  const first = towards(moments<Moment>(m, at), g, rest1);
  const second = towards(moments<Moment>(v, at), f32x4.mul(g, g), rest2);
  if (sizeof<Moment>() == 2) {
    const chance = splitmix32(v128.xor(splitmix32(v128.xor(start, elements)), keyLast));
    storeRounded(newM + (at >> 1), swept(first, least), v128.and(chance, i32x4.splat(0xffff)));
    storeRounded(newV + (at >> 1), swept(second, least), i32x4.shr_u(chance, 16));
  } else {
    v128.store(newM + at, first);
    v128.store(newV + at, second);
  }
  const root = f32x4.sqrt(f32x4.div(second, correction2));
  const rate = f32x4.mul(learningRate, f32x4.div(first, correction1));
  const denominator = f32x4.add(root, epsilon);
  const value = parameters<Parameter>(parameter, beside, at);
  const decayed = v128.and(f32x4.mul(decay, value), decayMask);
  const step = v128.and(f32x4.div(rate, denominator), f32x4.gt(denominator, f32x4.splat(0)));
  storeParameters<Parameter>(newParameter, newBeside, at, f32x4.sub(value, f32x4.add(decayed, step)));
}

// Four values each, of those at the element that lies `at` bytes behind the first in f32.

// @ts-ignore: decorator
@inline
function gradients<Parameter>(first: usize, at: usize): v128 {
  if (sizeof<Parameter>() == 4) return v128.load(first + at);
  const four = v128.load_ext<u16>(first + (at >> 1));
  return isSigned<Parameter>() ? fromBinary16(four) : i32x4.shl(four, 16);
}

// @ts-ignore: decorator
@inline
function parameters<Parameter>(first: usize, beside: usize, at: usize): v128 {
  if (sizeof<Parameter>() == 4 || isSigned<Parameter>()) return v128.load(first + at);
  const low = v128.load_ext<u16>(beside + (at >> 1));
  const joined = v128.or(i32x4.shl(v128.load_ext<u16>(first + (at >> 1)), 16), low);
  // What was carried up is taken back.
  return i32x4.sub(joined, i32x4.shl(v128.and(low, i32x4.splat(0x8000)), 1));
}

// @ts-ignore: decorator
@inline
function storeParameters<Parameter>(first: usize, beside: usize, at: usize, value: v128): void {
  if (sizeof<Parameter>() == 4 || isSigned<Parameter>()) {
    v128.store(first + at, value);
    if (sizeof<Parameter>() == 2) storeHalves(beside + (at >> 1), toBinary16(value));
    return;
  }
  storeHalves(first + (at >> 1), i32x4.shr_u(i32x4.add(value, i32x4.splat(0x8000)), 16));
  storeHalves(beside + (at >> 1), v128.and(value, i32x4.splat(0xffff)));
}

/** The lower sixteen bits of each, where the upper ones are zero. */
// @ts-ignore: decorator
@inline
function storeHalves(halves: usize, four: v128): void {
  store<i64>(halves, i64x2.extract_lane(i16x8.narrow_i32x4_u(four, four), 0));
}

/** As assembly/widen.ts. */
// @ts-ignore: decorator
@inline
function fromBinary16(four: v128): v128 {
  const size = v128.and(four, i32x4.splat(0x7fff));
  const sign = i32x4.shl(v128.xor(four, size), 16);
  const rebias = i32x4.splat(112 << 23);
  const special = v128.and(i32x4.gt_s(size, i32x4.splat(0x7bff)), rebias);
  const normal = i32x4.add(i32x4.add(i32x4.shl(size, 13), rebias), special);
  const small = f32x4.mul(f32x4.convert_i32x4_s(size), f32x4.splat(<f32>5.960464477539063e-8));
  return v128.or(sign, v128.bitselect(small, normal, i32x4.lt_s(size, i32x4.splat(0x400))));
}

/** To nearest, ties to even, as narrowFloats of src/values/floats.ts: a NaN stays one, what is past the largest is infinite. */
// @ts-ignore: decorator
@inline
function toBinary16(value: v128): v128 {
  const size = v128.and(value, i32x4.splat(0x7fffffff));
  const sign = v128.and(i32x4.shr_u(value, 16), i32x4.splat(0x8000));
  const odd = v128.and(i32x4.shr_u(size, 13), i32x4.splat(1));
  const normal = i32x4.shr_u(i32x4.add(i32x4.add(size, i32x4.splat(0xc8000fff)), odd), 13);
  // Multiples of 2^-24, which a sum with 1/2 is rounded to.
  const half = f32x4.splat(0.5);
  const small = i32x4.sub(f32x4.add(size, half), half);
  const finite = v128.bitselect(small, normal, i32x4.lt_s(size, i32x4.splat(0x38800000)));
  const infinite = v128.bitselect(i32x4.splat(0x7c00), finite, i32x4.gt_s(size, i32x4.splat(0x477fefff)));
  const fraction = v128.and(i32x4.shr_u(size, 13), i32x4.splat(0x3ff));
  const notANumber = v128.or(i32x4.splat(0x7e00), fraction);
  return v128.or(sign, v128.bitselect(notANumber, infinite, i32x4.gt_s(size, i32x4.splat(0x7f800000))));
}

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
  storeHalves(halves, found);
}

// @ts-ignore: decorator
@inline
function swept(value: v128, least: v128): v128 {
  return v128.andnot(value, f32x4.lt(f32x4.abs(value), least));
}

/** Copies in binary16 of `count` floats, a multiple of 4. */
export function copyNarrowed(floats: usize, copies: usize, count: usize): void {
  const end: usize = floats + (count << 2);
  for (; floats < end; floats += 16, copies += 8) storeHalves(copies, toBinary16(v128.load(floats)));
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
export function traffic(parameter: usize, beside: usize, m: usize, v: usize, gradient: usize, count: usize): void {
  const end: usize = (count & ~3) << 2;
  for (let at: usize = 0; at < end; at += 16) {
    const none = v128.and(v128.load(gradient + at), i32x4.splat(0));
    v128.store(m + at, v128.or(v128.load(m + at), none));
    v128.store(v + at, v128.or(v128.load(v + at), none));
    v128.store(parameter + at, v128.or(v128.load(parameter + at), none));
  }
}
