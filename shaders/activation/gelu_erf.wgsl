// needs: elem
// gives: activation, activation_derivative
// The exact GELU, x * P(x) with the normal distribution P(x) = (1 + erf(x / sqrt 2)) / 2, and its derivative, for backward.wgsl
// and the epilogues of matmul. WGSL has no erf. With t = |x| the tail is P(-t) = exp(-t^2 / 2) * R(t), and R is fitted by
// a polynomial of 1 / (1 + 0.2625 t), within 3e-8 of it (a quarter of an ulp) from 0 to 13: so the left side keeps its
// relative accuracy, where 1 + erf cancels. Past |x| = 13 the tail is below 1e-38; the clamp keeps t^2 from overflowing.

const GELU_PACE = 0.2625;
const INVERSE_ROOT_2_PI = 0.3989422804014327;

struct Normal { density: elem, below: elem } // phi(x), P(x)

fn normal(x: elem) -> Normal {
  let t = min(abs(x), elem(13.0));
  let e = exp(-0.5 * t * t);
  let s = 1.0 / (1.0 + GELU_PACE * t);
  let r = s * (0.104753278195858 + s * (0.10408231616020203 + s * (0.1032155379652977 + s * (0.05431506037712097
        + s * (0.15271490812301636 + s * (-0.13855066895484924 + s * (0.23926742374897003 + s * (-0.15099351108074188
        + s * 0.03119564801454544))))))));
  let tail = e * r;
  return Normal(INVERSE_ROOT_2_PI * e, select(tail, 1.0 - tail, x > elem()));
}

fn activation(x: elem) -> elem { return x * normal(x).below; }

fn activation_derivative(x: elem) -> elem {
  let n = normal(x);
  // Past the clamp the density is nothing; the number beside it must not be infinite.
  return n.below + clamp(x, elem(-13.0), elem(13.0)) * n.density;
}
