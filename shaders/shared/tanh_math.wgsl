// needs: elem
// gives: tanh_of
// tanh, for tanh/ and the capped logits of matmul. WGSL bounds tanh by an absolute error only, so near 0 it is an odd
// polynomial (Cephes, tanhf; below 2^-23 relative), and 1 - 2 / (exp(2|u|) + 1) further out. Past 10 tanh is 1. What is not
// finite stays so: u / |u| is NaN then.

fn tanh_of(u: elem) -> elem {
  let z = u * u;
  let near = u + u * (z * ((((-5.70498872745e-3 * z + 2.06390887954e-2) * z - 5.37397155531e-2) * z + 1.33314422036e-1) * z - 3.33332819422e-1));
  let far = u * ((1.0 - 2.0 / (exp(2.0 * min(abs(u), elem(10.0))) + 1.0)) / abs(u));
  return select(far, near, abs(u) < elem(0.625));
}
