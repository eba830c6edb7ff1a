// Coins in kernel tests: problems, and how far f32 may stray.

import { type CoinsProblem, throwCoins } from '../../../src/kernels/coins.ts';
import type { Arrays } from '../../../src/kernels/kernel.ts';
import type { Draws } from '../inputs.ts';
import { row } from '../inputs.ts';
import { elementwise } from '../problems.ts';
import { ULP } from '../rounding.ts';

const { abs } = Math;

/** Every third is 0. */
const inputs = ({ size }: CoinsProblem, random: Draws) => ({
  x: random.normals(size).map((value, i) => (i % 3 === 2 ? 0 : value)),
});

export const cases = [
  row({
    kernel: throwCoins,
    problems: elementwise.flatMap(({ size }, stream): CoinsProblem[] => [
      { size, stream, share: 2 ** -8, least: 0 },
      { size, stream: stream ^ 0x9e3779b9, share: 2 ** -11, least: 0.5 },
    ]),
    inputs,
    // A product and a sum. A coin that falls otherwise is off by twice what it moves.
    bound: (_problem, { x }: Arrays<'x'>, { y }: Arrays<'y'>) => ({ y: (i) => 2 * ULP * (abs(x[i]!) + abs(y[i]!)) }),
  }),
];
