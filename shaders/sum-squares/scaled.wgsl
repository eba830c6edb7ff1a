// needs: SCALE, inverse_scale
// gives: scaled, unscaled
// Gradients are rounded times the scale of the step, a power of two: no product of them is rounded by it. SCALE says where it
// lies: before the step is decided elsewhere than behind.

@group(0) @binding(4) var<storage, read> state: array<f32>; // (SCALER_SIZE, or DECIDED_SIZE)

fn scaled(x: vec4f) -> vec4f { return x * state[SCALE]; }
fn unscaled(x: vec4f) -> vec4f { return x * inverse_scale(state[SCALE]); }
