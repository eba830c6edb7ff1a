// needs: SCALER_GRADIENT_SCALE, inverse_scale
// gives: scaled, unscaled
// Gradients are rounded times the scale of the step, a power of two: no product of them is rounded by it.

@group(0) @binding(4) var<storage, read> state: array<f32>; // (SCALER_SIZE)

fn scaled(x: vec4f) -> vec4f { return x * state[SCALER_GRADIENT_SCALE]; }
fn unscaled(x: vec4f) -> vec4f { return x * inverse_scale(state[SCALER_GRADIENT_SCALE]); }
