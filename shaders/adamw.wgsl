// AdamW with decoupled decay, one invocation per element. Nothing changes when state says skip.
// decayMask has one bit per BLOCK elements, from block maskOffset on: bit b % 32 of word b / 32.

struct Params { size: u32, maskOffset: u32 }

@group(0) @binding(0) var<uniform> p: Params;
@group(0) @binding(1) var<storage, read> gradient: array<f32>;        // (size)
@group(0) @binding(2) var<storage, read> hyper: array<f32>;           // (HYPER_SIZE)
@group(0) @binding(3) var<storage, read> state: array<f32>;           // (STATE_SIZE)
@group(0) @binding(4) var<storage, read> decayMask: array<u32>;
@group(0) @binding(5) var<storage, read_write> parameter: array<f32>; // (size)
@group(0) @binding(6) var<storage, read_write> m: array<f32>;         // (size)
@group(0) @binding(7) var<storage, read_write> v: array<f32>;         // (size)

@compute @workgroup_size(WORKGROUP)
fn main(@builtin(workgroup_id) group: vec3u, @builtin(num_workgroups) groups: vec3u,
        @builtin(local_invocation_index) lane: u32) {
  let i = (group.y * groups.x + group.x) * WORKGROUP + lane;
  if (i >= p.size || state[STATE_SKIP] != 0.0) { return; }

  // beta * m + (1 - beta) * g as a step from m towards g: rounding touches only the step, and no beta rounded
  // to f32 drifts. v stays >= 0, since (1 - beta2) <= 1.
  let g = gradient[i] * state[STATE_COEFFICIENT];
  let first = m[i] + hyper[HYPER_ONE_MINUS_BETA1] * (g - m[i]);
  let second = v[i] + hyper[HYPER_ONE_MINUS_BETA2] * (g * g - v[i]);
  m[i] = first;
  v[i] = second;

  // The decay and the Adam step are added first: the parameter is rounded once, and 1 - lr * wd never is.
  let lr = hyper[HYPER_LEARNING_RATE];
  let block = p.maskOffset + i / BLOCK;
  var change = 0.0;
  if (((decayMask[block / 32u] >> (block % 32u)) & 1u) != 0u) {
    change = lr * hyper[HYPER_WEIGHT_DECAY] * parameter[i];
  }
  // Zero only where epsilon is 0 and no gradient ever came: the step is then 0 / 0, and taken as 0.
  let denominator = sqrt(second / state[STATE_CORRECTION2]) + hyper[HYPER_EPSILON];
  if (denominator > 0.0) { change += lr * (first / state[STATE_CORRECTION1]) / denominator; }
  parameter[i] -= change;
}
