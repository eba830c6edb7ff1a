// Sums and constants in kernel tests: problems, and how far f32 may stray.

import { add, fill } from '../../../src/kernels/add.ts';
import type { Arrays } from '../../../src/kernels/kernel.ts';
import { row } from '../inputs.ts';
import { elementwise, FOLDED_ITEMS } from '../problems.ts';
import { exact, ULP } from '../rounding.ts';

const { abs } = Math;

export const cases = [
  row({
    kernel: add,
    problems: [...elementwise, { size: FOLDED_ITEMS }],
    bound: (_problem, _before, { y }: Arrays<'y'>) => ({ y: (i) => ULP * abs(y[i]!) }),
  }),
  row({
    kernel: fill,
    problems: elementwise.map(({ size }) => ({ size, value: -1.5 })),
    bound: () => ({ y: exact }),
  }),
];
