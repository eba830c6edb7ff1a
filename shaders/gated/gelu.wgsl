// needs: elem
// needs: activation, activation_derivative
// gives: activated
// GeGLU's activation: the tanh GELU.

struct Activated { value: elem, slope: elem }

fn activated(g: elem) -> Activated { return Activated(activation(g), activation_derivative(g)); }
