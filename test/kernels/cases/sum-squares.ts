// Sums of squares in kernel tests: problems, and how far f32 may stray.

import type { Arrays } from '../../../src/kernels/kernel.ts';
import { BLOCK, sumSquares } from '../../../src/kernels/sum-squares.ts';
import { row } from '../inputs.ts';
import { ULP } from '../rounding.ts';

const { min } = Math;

export const cases = [
  row({
    kernel: sumSquares,
    problems: [1, 37, 129, 257, 1000, 256 * 65 + 3].flatMap((size) => [
      { size, first: 0 },
      { size, first: 3 },
    ]),
    bound({ first }, _before, { partials }: Arrays<'partials'>) {
      // The worst case is BLOCK / 8 + 5 ulps = 4.4e-6; errors of either sign leave far less, and a gradient
      // norm needs that: 3e-7 on these fixed inputs.
      return { partials: (i) => (i < first ? 0 : min((BLOCK / 8 + 5) * ULP, 3e-7) * partials[i]!) };
    },
  }),
];
