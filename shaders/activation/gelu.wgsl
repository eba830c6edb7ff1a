// needs: elem
// gives: activation, activation_derivative
// The tanh GELU ("gelu_new") and its derivative, for backward.wgsl, gated/gelu.wgsl and the epilogues of matmul.
// 0.5 x (1 + tanh u) = x / (1 + exp(-2u)): exp keeps its relative accuracy where 1 + tanh(u) cancels, and
// WGSL bounds tanh by an absolute error only. Past |x| = 9.5 the quotient is 1 or below 1e-32, and the clamp
// keeps exp(2|u|) < 2e33 from overflowing.

// 2u = 2 sqrt(2/pi) (x + 0.044715 x^3)
const GELU_LINEAR = 1.5957691216057308;
const GELU_CUBIC = 0.07135481282553155;

fn activation(x: elem) -> elem {
  let t = clamp(x, elem(-9.5), elem(9.5));
  return x / (1.0 + exp(-t * (GELU_LINEAR + GELU_CUBIC * t * t)));
}

fn activation_derivative(x: elem) -> elem {
  let t = clamp(x, elem(-9.5), elem(9.5));
  let e = exp(-t * (GELU_LINEAR + GELU_CUBIC * t * t));
  let s = 1.0 / (1.0 + e);
  // 1 - s = e * s, free of cancellation; x * d(2u)/dx with the clamped x: outside, s * (1 - s) is nothing.
  return s + t * (GELU_LINEAR + 3.0 * GELU_CUBIC * t * t) * (e * s) * s;
}
