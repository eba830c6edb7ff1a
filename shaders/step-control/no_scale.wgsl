// gives: next_scale
// Gradients have no scale.

fn next_scale(is_taken: bool) {}
