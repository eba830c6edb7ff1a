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
  const decay: f32 = learningRate * weightDecay;
  const lr4 = f32x4.splat(learningRate);
  const rest14 = f32x4.splat(rest1);
  const rest24 = f32x4.splat(rest2);
  const epsilon4 = f32x4.splat(epsilon);
  const decay4 = f32x4.splat(decay);
  const coefficient4 = f32x4.splat(coefficient);
  const correction14 = f32x4.splat(correction1);
  const correction24 = f32x4.splat(correction2);
  const zero4 = f32x4.splat(0);
  const decayMask = i32x4.splat(decays ? -1 : 0);
  const whole: usize = (count & ~3) << 2;
  for (let at: usize = 0; at < whole; at += 16) {
    const g = f32x4.mul(v128.load(gradient + at), coefficient4);
    const mOld = v128.load(m + at);
    const vOld = v128.load(v + at);
    const first = f32x4.add(mOld, f32x4.mul(rest14, f32x4.sub(g, mOld)));
    const second = f32x4.add(vOld, f32x4.mul(rest24, f32x4.sub(f32x4.mul(g, g), vOld)));
    v128.store(m + at, first);
    v128.store(v + at, second);
    const value = v128.load(parameter + at);
    const decayed = v128.and(f32x4.mul(decay4, value), decayMask);
    const denominator = f32x4.add(f32x4.sqrt(f32x4.div(second, correction24)), epsilon4);
    const step = f32x4.div(f32x4.mul(lr4, f32x4.div(first, correction14)), denominator);
    const change = f32x4.add(decayed, v128.and(step, f32x4.gt(denominator, zero4)));
    v128.store(parameter + at, f32x4.sub(value, change));
  }
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

/** Values nearer to zero than `least` become zero; NaN stays. */
export function sweep(values: usize, count: usize, least: f32): void {
  const least4 = f32x4.splat(least);
  const whole: usize = (count & ~3) << 2;
  for (let at: usize = 0; at < whole; at += 16) {
    const value = v128.load(values + at);
    v128.store(values + at, v128.andnot(value, f32x4.lt(f32x4.abs(value), least4)));
  }
  const end: usize = count << 2;
  for (let at: usize = whole; at < end; at += 4) {
    if (abs<f32>(load<f32>(values + at)) < least) store<f32>(values + at, 0);
  }
}
