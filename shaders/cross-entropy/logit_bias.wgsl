// needs: place_in_bias, elem
// gives: logit_of
// Logits with a bias.
@group(0) @binding(7) var<storage, read> bias: array<elem>;  // (N) from bias0

fn logit_of(sum: elem, column: u32) -> elem { return sum + bias[place_in_bias(column)]; }
