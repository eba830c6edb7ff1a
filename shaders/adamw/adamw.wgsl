// needs: BLOCK, WORKGROUP, STEPS, STATE_SKIP, STATE_COEFFICIENT, STATE_CORRECTION1, STATE_CORRECTION2
// needs: HYPER_ONE_MINUS_BETA1, HYPER_ONE_MINUS_BETA2, HYPER_EPSILON, HYPER_LEARNING_RATE, HYPER_WEIGHT_DECAY
// needs: elem, LANES, parameter_size, parameter_at, set_parameter, keep_parameter
// needs: moments_size, first_moment, second_moment, set_moments
// needs: decays
// gives: p, hyper, BLOCK_SHIFT
// AdamW with decoupled decay, STEPS elem per invocation. When state says skip, no value changes.

struct Params { size: u32, maskOffset: u32 } // size: in elem; maskOffset: the block of the first of them

@group(0) @binding(0) var<uniform> p: Params;
@group(0) @binding(1) var<storage, read> gradient: array<elem>;        // (size)
@group(0) @binding(2) var<storage, read> hyper: array<f32>;            // (HYPER_SIZE)
@group(0) @binding(3) var<storage, read> state: array<f32>;            // (STATE_SIZE)

const BLOCK_SHIFT = firstTrailingBit(BLOCK / LANES); // BLOCK is a power of two

@compute @workgroup_size(WORKGROUP)
fn main(@builtin(workgroup_id) group: vec3u, @builtin(num_workgroups) groups: vec3u,
        @builtin(local_invocation_index) lane: u32) {
  let begin = (group.y * groups.x + group.x) * (WORKGROUP * STEPS) + lane;
  if (begin >= p.size) { return; }
  let size = min(min(arrayLength(&gradient), parameter_size()), moments_size());
  let end = min(min(p.size, size), begin + WORKGROUP * STEPS);
  if (state[STATE_SKIP] != 0.0) {
    for (var i = begin; i < end; i += WORKGROUP) { keep_parameter(i); }
    return;
  }
  let coefficient = state[STATE_COEFFICIENT];
  let correction1 = state[STATE_CORRECTION1];
  let correction2 = state[STATE_CORRECTION2];
  let rest1 = hyper[HYPER_ONE_MINUS_BETA1];
  let rest2 = hyper[HYPER_ONE_MINUS_BETA2];
  let epsilon = hyper[HYPER_EPSILON];
  let lr = hyper[HYPER_LEARNING_RATE];
  let weight_decay = hyper[HYPER_WEIGHT_DECAY];

  for (var i = begin; i < end; i += WORKGROUP) {
    // beta * m + (1 - beta) * g as a step from m towards g: rounding touches only the step, and no beta rounded
    // to f32 drifts. v stays >= 0, since (1 - beta2) <= 1.
    let g = gradient[i] * coefficient;
    let m_old = first_moment(i);
    let v_old = second_moment(i);
    let first = m_old + rest1 * (g - m_old);
    let second = v_old + rest2 * (g * g - v_old);
    set_moments(i, first, second);

    // The decay and the Adam step are added first: the parameter is rounded once, and 1 - lr * wd never is.
    let value = parameter_at(i);
    var change = elem();
    if (decays(p.maskOffset + (i >> BLOCK_SHIFT))) { change = lr * weight_decay * value; }
    // Zero only where epsilon is 0 and no gradient ever came: the step is then 0 / 0, and taken as 0.
    let denominator = sqrt(second / correction2) + epsilon;
    change += select(elem(), lr * (first / correction1) / denominator, denominator > elem());
    set_parameter(i, value - change);
  }
}
