// GELU in its two forms: by tanh ("gelu_new", GPT-2's) and by erf ("gelu", BERT's). Their texts in shaders/shared enter the
// epilogues of matmul, which compute it, and that of tanh GeGLU (gated.ts); the gradient has kernels of its own, too.

import backwardShader from '../../shaders/gelu/backward.wgsl?raw';
import geluErfMath from '../../shaders/shared/gelu_erf_math.wgsl?raw';
import geluMath from '../../shaders/shared/gelu_math.wgsl?raw';
import { type Arrays, elementRows, type Kernel, read, write } from './kernel.ts';
import { lanesOf, perElem } from './variants.ts';

export interface ElementwiseProblem {
  size: number;
}

const SLOPE = Math.sqrt(2 / Math.PI);
const CUBIC = 0.044715;

/** 0.5 x (1 + tanh(sqrt(2 / pi) (x + 0.044715 x^3))) in float64; the fused epilogues' references share it. */
export function geluOf(x: number): number {
  return 0.5 * x * (1 + Math.tanh(SLOPE * (x + CUBIC * x ** 3)));
}

/** The derivative of `geluOf`. */
export function geluDerivativeOf(x: number): number {
  const t = Math.tanh(SLOPE * (x + CUBIC * x ** 3));
  return 0.5 * (1 + t + x * (1 - t * t) * SLOPE * (1 + 3 * CUBIC * x ** 2));
}

/** Terms of the series, and of the continued fraction: both have converged in float64 where they meet. */
const TERMS = 120;
const MEET = 1.5;

/** The normal distribution's share below x: (1 + erf(x / sqrt 2)) / 2 in float64, within 1e-14 of itself. */
function normalBelow(x: number): number {
  const t = Math.abs(x);
  const density = Math.exp((-t * t) / 2) / Math.sqrt(2 * Math.PI);
  let tail: number;
  if (t < MEET) {
    // Its half and phi(t) (t + t^3 / 3 + t^5 / (3 * 5) + ...): every term is positive.
    let sum = 0;
    for (let n = 1, term = t; n < TERMS; n++, term *= (t * t) / (2 * n - 1)) sum += term;
    tail = 0.5 - density * sum;
  } else {
    // phi(t) / (t + 1 / (t + 2 / (t + 3 / ...))), Laplace's.
    let fraction = t;
    for (let n = TERMS; n > 0; n--) fraction = t + n / fraction;
    tail = density / fraction;
  }
  return x > 0 ? 1 - tail : tail;
}

/** What GELU is computed by. */
export type GeluForm = 'tanh' | 'erf';

interface Gelu {
  /** Gives gelu and gelu_derivative. */
  readonly text: string;
  value(x: number): number;
  slope(x: number): number;
}

/** GELU by its forms: as a text, and in float64. */
export const GELU_FORMS: Readonly<Record<GeluForm, Gelu>> = {
  tanh: { text: geluMath, value: geluOf, slope: geluDerivativeOf },
  erf: {
    text: geluErfMath,
    value: (x) => x * normalBelow(x),
    slope: (x) => normalBelow(x) + (x * Math.exp((-x * x) / 2)) / Math.sqrt(2 * Math.PI),
  },
};

const variants = ({ text }: Gelu) =>
  perElem<ElementwiseProblem>(
    backwardShader + text,
    ({ size }) => lanesOf(size),
    ({ size }, lanes) => size / lanes,
    ({ size }, lanes) => ({ size: size / lanes }),
  );

/** dy, x (size) -> dx (size). */
const backward = (name: string, form: Gelu): Kernel<ElementwiseProblem> => ({
  name,
  operands: ({ size }) => ({ dy: read(size), x: read(size), dx: write(size) }),
  affectsSpeed: { size: true },
  variants: variants(form),
  rows: elementRows('dy', 'x', 'dx'),
  flops: ({ size }) => size * 16,
  reference({ size }, { dy, x, dx }: Arrays<'dy' | 'x' | 'dx'>) {
    for (let i = 0; i < size; i++) dx[i] = dy[i]! * form.slope(x[i]!);
  },
});

export const geluBackward = backward('geluBackward', GELU_FORMS.tanh);
export const geluErfBackward = backward('geluErfBackward', GELU_FORMS.erf);
