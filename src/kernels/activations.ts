// The table of activations that a product with a bias ends in, and whose slope the product of the backward pass ends in: epilogues
// of matmul. One that an epilogue cannot carry has the gradient as a kernel of its own.

import backwardShader from '../../shaders/activation/backward.wgsl?raw';
import forwardShader from '../../shaders/activation/forward.wgsl?raw';
import geluMath from '../../shaders/activation/gelu.wgsl?raw';
import geluErfMath from '../../shaders/activation/gelu_erf.wgsl?raw';
import { type Arrays, elementRows, type Kernel, read, update, write } from './kernel.ts';
import { elementwise } from './variants.ts';

export interface ElementwiseProblem {
  size: number;
}

const SLOPE = Math.sqrt(2 / Math.PI);
const CUBIC = 0.044715;

/** 0.5 x (1 + tanh(sqrt(2 / pi) (x + 0.044715 x^3))) in float64. */
function geluOf(x: number): number {
  return 0.5 * x * (1 + Math.tanh(SLOPE * (x + CUBIC * x ** 3)));
}

/** The derivative of `geluOf`. */
function geluDerivativeOf(x: number): number {
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

/** An activation, and its derivative. */
interface Formula {
  /** WGSL in which the two are the functions `activation` and `activation_derivative`. */
  readonly text: string;
  /** In float64. */
  value(x: number): number;
  slope(x: number): number;
}

/** x (size) -> y (size). */
const forward = (name: string, { text, value }: Formula): Kernel<ElementwiseProblem> => ({
  name,
  operands: ({ size }) => ({ x: read(size), y: write(size) }),
  affectsSpeed: { size: true },
  variants: elementwise(forwardShader + text),
  rows: elementRows('x', 'y'),
  flops: ({ size }) => size * 8,
  reference({ size }, { x, y }: Arrays<'x' | 'y'>) {
    for (let i = 0; i < size; i++) y[i] = value(x[i]!);
  },
});

/** x (size) -> dx (size), which holds the gradient of y and becomes that of x. */
const backward = (name: string, { text, slope }: Formula): Kernel<ElementwiseProblem> => ({
  name,
  operands: ({ size }) => ({ x: read(size), dx: update(size) }),
  affectsSpeed: { size: true },
  variants: elementwise(backwardShader + text),
  rows: elementRows('x', 'dx'),
  flops: ({ size }) => size * 16,
  reference({ size }, { x, dx }: Arrays<'x' | 'dx'>) {
    for (let i = 0; i < size; i++) dx[i] = dx[i]! * slope(x[i]!);
  },
});

/** A row of the table. */
export interface Activation extends Formula {
  /** The activation by itself. */
  readonly forward: Kernel<ElementwiseProblem>;
  /** The gradient by itself. */
  readonly backward: Kernel<ElementwiseProblem>;
}

const activation = (name: string, formula: Formula): Activation => ({
  ...formula,
  forward: forward(name, formula),
  backward: backward(`${name}Backward`, formula),
});

export const ACTIVATIONS = {
  /** By tanh: "gelu_new", GPT-2's. */
  gelu: activation('gelu', { text: geluMath, value: geluOf, slope: geluDerivativeOf }),
  /** By erf: "gelu", BERT's. */
  geluErf: activation('geluErf', {
    text: geluErfMath,
    value: (x) => x * normalBelow(x),
    slope: (x) => normalBelow(x) + (x * Math.exp((-x * x) / 2)) / Math.sqrt(2 * Math.PI),
  }),
};

/** Its name in the table. */
export type ActivationName = keyof typeof ACTIVATIONS;

/** Their names, in the order of the table. */
export const ACTIVATION_NAMES = Object.keys(ACTIVATIONS) as ActivationName[];
