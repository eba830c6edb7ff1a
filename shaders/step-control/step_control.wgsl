// needs: HYPER_LOSS_SCALE, STATE_LOSS, STATE_GRAD_NORM, STATE_SKIP, STATE_SKIPPED, STATE_UPDATES
// needs: STATE_CORRECTION1, HYPER_ONE_MINUS_BETA1, STATE_CORRECTION2, HYPER_ONE_MINUS_BETA2, STATE_COEFFICIENT
// needs: HYPER_MAX_NORM
// needs: next_scale
// gives: state
// What one optimizer step must decide before it may touch a weight, by one invocation: is everything finite,
// how far to clip, Adam's bias corrections. They live in buffers so that a replayed step can read them.
// correction_i = 1 - beta_i^t by recurrence: no pow, and a skipped step does not count.

@group(0) @binding(1) var<storage, read> normSquared: array<f32>; // (1)
@group(0) @binding(2) var<storage, read> lossSum: array<f32>;     // (1)
@group(0) @binding(3) var<storage, read> hyper: array<f32>;       // (HYPER_SIZE)
@group(0) @binding(4) var<storage, read_write> state: array<f32>; // (STATE_SIZE)

// By the bits: compilers may assume that no NaN exists and drop a comparison.
fn finite(value: f32) -> bool {
  return (bitcast<u32>(value) & 0x7f800000u) != 0x7f800000u;
}

@compute @workgroup_size(1)
fn main() {
  let loss = lossSum[0] * hyper[HYPER_LOSS_SCALE];
  let norm = sqrt(normSquared[0]);
  state[STATE_LOSS] = loss;
  state[STATE_GRAD_NORM] = norm;
  if (!finite(loss) || !finite(normSquared[0])) {
    state[STATE_SKIP] = 1.0;
    state[STATE_SKIPPED] += 1.0;
    next_scale(false);
    return;
  }
  state[STATE_SKIP] = 0.0;
  state[STATE_UPDATES] += 1.0;
  // c + (1 - beta) * (1 - c) = beta * c + (1 - beta), with beta known by its complement, which is the exact one.
  state[STATE_CORRECTION1] += hyper[HYPER_ONE_MINUS_BETA1] * (1.0 - state[STATE_CORRECTION1]);
  state[STATE_CORRECTION2] += hyper[HYPER_ONE_MINUS_BETA2] * (1.0 - state[STATE_CORRECTION2]);
  state[STATE_COEFFICIENT] = 1.0;
  if (hyper[HYPER_MAX_NORM] > 0.0) {
    state[STATE_COEFFICIENT] = min(1.0, hyper[HYPER_MAX_NORM] / (norm + 1e-6));
  }
  next_scale(true);
}
