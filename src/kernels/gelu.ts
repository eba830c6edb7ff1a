// The tanh GELU ("gelu_new"), forward and backward. shared/gelu_math.wgsl also enters the epilogues of matmul,
// and GeGLU (gated.ts).

import backwardShader from '../../shaders/gelu/backward.wgsl?raw';
import forwardShader from '../../shaders/gelu/forward.wgsl?raw';
import geluMath from '../../shaders/shared/gelu_math.wgsl?raw';
import { type Arrays, type Kernel, read, write } from './kernel.ts';
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

const variants = (shader: string) =>
  perElem<ElementwiseProblem>(
    shader + geluMath,
    ({ size }) => lanesOf(size),
    ({ size }, lanes) => size / lanes,
    ({ size }, lanes) => ({ size: size / lanes }),
  );

/** x (size) -> y (size). */
export const gelu: Kernel<ElementwiseProblem> = {
  name: 'gelu',
  operands: ({ size }) => ({ x: read(size), y: write(size) }),
  affectsSpeed: { size: true },
  variants: variants(forwardShader),
  flops: ({ size }) => size * 8,
  reference({ size }, { x, y }: Arrays<'x' | 'y'>) {
    for (let i = 0; i < size; i++) y[i] = geluOf(x[i]!);
  },
};

/** dy, x (size) -> dx (size). */
export const geluBackward: Kernel<ElementwiseProblem> = {
  name: 'geluBackward',
  operands: ({ size }) => ({ dy: read(size), x: read(size), dx: write(size) }),
  affectsSpeed: { size: true },
  variants: variants(backwardShader),
  flops: ({ size }) => size * 16,
  reference({ size }, { dy, x, dx }: Arrays<'dy' | 'x' | 'dx'>) {
    for (let i = 0; i < size; i++) dx[i] = dy[i]! * geluDerivativeOf(x[i]!);
  },
};
