// needs: elem
// gives: activation, activated
// SwiGLU's activation: silu(g) = g / (1 + exp(-g)). The clamp keeps exp from overflowing; below -80, silu is nothing
// (|g| * 2e-35).

struct Activated { value: elem, slope: elem }

fn activation(g: elem) -> elem { return g / (1.0 + exp(-clamp(g, elem(-80.0), elem(80.0)))); }

// With s = 1 / (1 + exp(-g)): silu' = s * (1 + g * (1 - s)), and 1 - s = exp(-g) * s.
fn activated(g: elem) -> Activated {
  let e = exp(-clamp(g, elem(-80.0), elem(80.0)));
  let s = 1.0 / (1.0 + e);
  return Activated(g * s, s + s * (g * (e * s)));
}
