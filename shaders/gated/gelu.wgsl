// needs: elem
// needs: gelu, gelu_derivative
// gives: activation, activated
// GeGLU's activation: the tanh GELU.

struct Activated { value: elem, slope: elem }

fn activation(g: elem) -> elem { return gelu(g); }
fn activated(g: elem) -> Activated { return Activated(gelu(g), gelu_derivative(g)); }
