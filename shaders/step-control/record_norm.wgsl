// needs: STATE_GRAD_NORM
// The gradient norm of a step that was decided before it was known, for the record, by one invocation.

@group(0) @binding(1) var<storage, read> normSquared: array<f32>; // (1)
@group(0) @binding(2) var<storage, read_write> state: array<f32>; // (STATE_SIZE)

@compute @workgroup_size(1)
fn main() {
  state[STATE_GRAD_NORM] = sqrt(normSquared[0]);
}
