// gives: scaled, unscaled
// Gradients are rounded as they are: the width has the exponents of float32.

fn scaled(x: vec4f) -> vec4f { return x; }
fn unscaled(x: vec4f) -> vec4f { return x; }
