// tanh in kernel tests: problems, and how far f32 may stray.

import type { Arrays } from '../../../src/kernels/kernel.ts';
import { tanh, tanhBackward } from '../../../src/kernels/tanh.ts';
import { tanhError } from '../activation-errors.ts';
import { row } from '../inputs.ts';
import { elementwise } from '../problems.ts';
import { TINY, ULP } from '../rounding.ts';

const { abs } = Math;

export const cases = [
  row({
    kernel: tanh,
    problems: elementwise,
    inputs: ({ size }, random) => ({ x: random.normals(size, 3) }),
    // Its argument is given, and not the quotient of which tanhError speaks.
    bound: (_problem, { x }: Arrays<'x'>) => ({ y: (i) => tanhError(x[i]!) + TINY }),
  }),
  row({
    kernel: tanhBackward,
    problems: elementwise,
    inputs: ({ size }, random) => ({ y: random.normals(size, 3).map(Math.tanh) }),
    // A sum and a difference, their product, and its product with dy.
    bound: (_problem, _before, { dx }: Arrays<'dx'>) => ({ dx: (i) => 4 * ULP * abs(dx[i]!) + TINY }),
  }),
];
