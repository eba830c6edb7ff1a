// needs: SCALER_GRADIENT_SCALE, SCALER_GOOD_STEPS, DECIDED_STEP_SCALE, STATE_COEFFICIENT
// needs: LEAST_SCALE, LARGEST_SCALE, GROWTH_STEPS
// needs: state, inverse_scale
// gives: next_scale
// Gradients of this step are multiplied by a power of two, and by as much less when they are used. A step that is skipped halves
// it for the next ones, GROWTH_STEPS in a row that are not double it.

fn next_scale(is_taken: bool) {
  let scale = state[SCALER_GRADIENT_SCALE];
  state[DECIDED_STEP_SCALE] = scale;
  if (!is_taken) {
    state[SCALER_GRADIENT_SCALE] = max(scale * 0.5, f32(LEAST_SCALE));
    state[SCALER_GOOD_STEPS] = 0.0;
    return;
  }
  state[STATE_COEFFICIENT] *= inverse_scale(scale);
  state[SCALER_GOOD_STEPS] += 1.0;
  if (state[SCALER_GOOD_STEPS] >= f32(GROWTH_STEPS)) {
    state[SCALER_GRADIENT_SCALE] = min(scale * 2.0, f32(LARGEST_SCALE));
    state[SCALER_GOOD_STEPS] = 0.0;
  }
}
