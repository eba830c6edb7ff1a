// Errors of tanh and of GELU's two forms in f32, at one argument (rounding.ts).

import type { ActivationName } from '../../src/kernels/activations.ts';
import { CANCELLED, expUlps, TINY, ULP } from './rounding.ts';

const { abs, max, min, exp, sqrt } = Math;

/** Of tanh(u), where u is a quotient, good to 2.5 ulps. */
export function tanhError(u: number): number {
  const t = abs(Math.tanh(u));
  // The polynomial is good to an ulp, its last sum and product round; what it adds to u is at most 0.13 of it, with 6 roundings.
  const near = t * (2.5 + 1 + 2 + 1);
  // e = exp(2|u|); 2 / (e + 1) = 1 - t; then 1 - it, and u / |u|.
  const far = (1 - t * t) * abs(u) * 2.5 + (1 - t) * (expUlps(2 * min(abs(u), 10)) + 3.5) + t * (1 + 2.5 + 1);
  // Close to where the one takes over, it may be either.
  return ULP * (abs(u) < 0.62 ? near : abs(u) > 0.63 ? far : max(near, far));
}

export function sigmoid(x: number): number {
  return 1 / (1 + exp(-x));
}

// The reference's own 1 + tanh(u) cancels to CANCELLED in the left tail.
// s = 1 / (1 + e) with e good to E: s is good to (1 - s) E + 1 + 2.5 ulps, 1 - s = e s to twice that.

function geluError(x: number, y: number): number {
  const { s, ulps } = geluSigmoid(x);
  return abs(y) * ((1 - s) * ulps + 4.5) * ULP + abs(x) * CANCELLED;
}

/** Of the derivative times a number, relative to that number. */
function geluDerivativeError(x: number): number {
  const { s, ulps, slope } = geluSigmoid(x);
  const terms = s * ((1 - s) * ulps + 6) + slope * s * (1 - s) * (3 * ulps + 20);
  return ULP * terms + (1 + slope) * CANCELLED;
}

/** s = sigmoid(2u), the ulps of exp(-2u) (its argument has five roundings), and |x d(2u)/dx|. */
function geluSigmoid(x: number): { s: number; ulps: number; slope: number } {
  const t = max(-9.5, min(9.5, x));
  const a = 2 * sqrt(2 / Math.PI) * (t + 0.044715 * t ** 3);
  return { s: sigmoid(a), ulps: expUlps(a, 5), slope: abs(2 * sqrt(2 / Math.PI) * (t + 3 * 0.044715 * t ** 3)) };
}

/**
 * In ulps of R(t) the polynomial's error: j + 1 products and as many sums make its term |c_j| s^(j+1), with s good to 4.5;
 * 6.5 (j + 1) |c_j| s^(j+1), summed, is nowhere above 73 R(t). The fit is good to a quarter.
 */
const TAIL_POLYNOMIAL = 73.25;

/** The density at x, and the errors of the tail beyond |x| and of the density. */
function normalErrors(x: number): { density: number; tailError: number; densityError: number } {
  const t = min(abs(x), 13);
  const density = exp((-t * t) / 2) / sqrt(2 * Math.PI);
  const ulps = expUlps((t * t) / 2, 2);
  // Mills: the tail is below density / t, and below a half.
  const tail = min(0.5, density / max(t, TINY));
  return { density, tailError: tail * (ulps + TAIL_POLYNOMIAL + 1) * ULP, densityError: density * (ulps + 1) * ULP };
}

function geluErfError(x: number, y: number): number {
  return abs(x) * normalErrors(x).tailError + 2 * ULP * abs(y) + TINY;
}

/** Of the derivative times a number, relative to that number. */
function geluErfDerivativeError(x: number): number {
  const { density, tailError, densityError } = normalErrors(x);
  const t = min(abs(x), 13);
  // 1 - tail, x * density, their sum, and its product with the number.
  return tailError + t * densityError + ULP * (4 + 3 * t * density) + TINY;
}

/** Of each activation: the bounds of its value y at x, and of its slope there; and what its slope is nowhere above. */
export const ACTIVATION_ERRORS: Readonly<
  Record<ActivationName, { value(x: number, y: number): number; slope(x: number): number; steepest: number }>
> = {
  gelu: { value: geluError, slope: geluDerivativeError, steepest: 1.13 },
  geluErf: { value: geluErfError, slope: geluErfDerivativeError, steepest: 1.13 },
};
