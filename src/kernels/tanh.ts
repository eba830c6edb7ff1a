// tanh, forward and backward: of a classifier's one row a text. Its text in shaders/shared also caps logits in matmul.
// Backward reads what forward gave, y, not x.

import tanhMath from '../../shaders/shared/tanh_math.wgsl?raw';
import backwardShader from '../../shaders/tanh/backward.wgsl?raw';
import forwardShader from '../../shaders/tanh/forward.wgsl?raw';
import type { ElementwiseProblem } from './activations.ts';
import { type Arrays, type Kernel, read, update, write } from './kernel.ts';
import { elementwise } from './variants.ts';

/** x (size) -> y (size). */
export const tanh: Kernel<ElementwiseProblem> = {
  name: 'tanh',
  operands: ({ size }) => ({ x: read(size), y: write(size) }),
  affectsSpeed: { size: true },
  variants: elementwise(forwardShader + tanhMath),
  flops: ({ size }) => size * 8,
  reference({ size }, { x, y }: Arrays<'x' | 'y'>) {
    for (let i = 0; i < size; i++) y[i] = Math.tanh(x[i]!);
  },
};

/** y (size) -> dx (size), which holds the gradient of y and becomes that of x. */
export const tanhBackward: Kernel<ElementwiseProblem> = {
  name: 'tanhBackward',
  operands: ({ size }) => ({ y: read(size), dx: update(size) }),
  affectsSpeed: { size: true },
  variants: elementwise(backwardShader),
  flops: ({ size }) => size * 4,
  reference({ size }, { y, dx }: Arrays<'y' | 'dx'>) {
    for (let i = 0; i < size; i++) dx[i] = dx[i]! * ((1 - y[i]!) * (1 + y[i]!));
  },
};
