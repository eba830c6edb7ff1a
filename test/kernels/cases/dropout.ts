// Dropout in kernel tests: problems, and how far f32 may stray.

import {
  type DropoutInPlaceProblem,
  type DropoutProblem,
  dropout,
  dropoutInPlace,
  KEY_WORDS,
} from '../../../src/kernels/dropout.ts';
import type { Arrays } from '../../../src/kernels/kernel.ts';
import { type Draws, row } from '../inputs.ts';
import { elementwise } from '../problems.ts';
import { ULP } from '../rounding.ts';

const { abs } = Math;

const inputs = (_problem: unknown, random: Draws) => ({
  key: Uint32Array.from(random.integers(KEY_WORDS, 0, 2 ** 31 - 1)),
});

export const cases = [
  row({
    kernel: dropout,
    problems: elementwise.flatMap(({ size }, stream): DropoutProblem[] => [
      { size, rate: 0.3, stream, accumulate: false },
      { size, rate: 0.3, stream, accumulate: true },
      { size, rate: 0, stream, accumulate: false },
      { size, rate: 0.3, stream, accumulate: false, part: { columns: 3, whole: 12, first: 9 } },
    ]),
    inputs,
    // Two roundings of a product whose factor is rounded, and a sum. What goes is the same, or all of it would be off.
    bound: (_problem, { x, y: old }: Arrays<'x' | 'y'>, { y }: Arrays<'y'>) => ({
      y: (i) => 4 * ULP * (abs(x[i]!) + abs(y[i]!) + abs(old[i]!)),
    }),
  }),
  row({
    kernel: dropoutInPlace,
    problems: elementwise.flatMap(({ size }, stream): DropoutInPlaceProblem[] => [
      { size, rate: 0.3, stream },
      { size, rate: 0, stream },
      { size, rate: 0.3, stream, part: { columns: 3, whole: 12, first: 9 } },
    ]),
    inputs,
    bound: (_problem, _before, { x }: Arrays<'x'>) => ({ x: (i) => 3 * ULP * abs(x[i]!) }),
  }),
];
