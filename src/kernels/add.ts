// The sum of two tensors of one shape, and the tensor of one value. No broadcasting.

import addShader from '../../shaders/add/add.wgsl?raw';
import fillShader from '../../shaders/add/fill.wgsl?raw';
import type { ElementwiseProblem } from './activations.ts';
import { type Arrays, elementRows, type Kernel, read, write } from './kernel.ts';
import { perItem } from './variants.ts';

/** a, b (size) -> y (size). */
export const add: Kernel<ElementwiseProblem> = {
  name: 'add',
  operands: ({ size }) => ({ a: read(size), b: read(size), y: write(size) }),
  affectsSpeed: { size: true },
  variants: perItem(
    addShader,
    ({ size }) => size,
    (problem) => ({ ...problem }),
  ),
  rows: elementRows('a', 'b', 'y'),
  flops: ({ size }) => size,
  reference({ size }, { a, b, y }: Arrays<'a' | 'b' | 'y'>) {
    for (let i = 0; i < size; i++) y[i] = a[i]! + b[i]!;
  },
};

export interface FillProblem {
  size: number;
  value: number;
}

/** -> y (size). */
export const fill: Kernel<FillProblem> = {
  name: 'fill',
  operands: ({ size }) => ({ y: write(size) }),
  affectsSpeed: { size: true, value: false },
  variants: perItem(
    fillShader,
    ({ size }) => size,
    (problem) => ({ ...problem }),
  ),
  tile: (problem, _operand, { size }) => ({ ...problem, size }),
  flops: () => 0,
  reference({ value }, { y }: Arrays<'y'>) {
    y.fill(value);
  },
};
