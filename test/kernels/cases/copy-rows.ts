// Copies of rows in kernel tests: problems, and how far f32 may stray.

import { copyRows } from '../../../src/kernels/copy-rows.ts';
import type { Arrays } from '../../../src/kernels/kernel.ts';
import { row } from '../inputs.ts';
import { ULP } from '../rounding.ts';

const { abs } = Math;

export const cases = [
  row({
    kernel: copyRows,
    problems: [
      { batch: 1, rows: 1, width: 1, xRows: 1, xFirst: 0, yRows: 1, yFirst: 0 },
      // Behind a row in front, that row for all, and back.
      { batch: 3, rows: 16, width: 5, xRows: 16, xFirst: 0, yRows: 17, yFirst: 1, partial: true },
      { batch: 3, rows: 1, width: 12, xRows: 0, xFirst: 0, yRows: 17, yFirst: 0, partial: true },
      { batch: 5, rows: 37, width: 36, xRows: 38, xFirst: 1, yRows: 37, yFirst: 0 },
      { batch: 3, rows: 1, width: 37, xRows: 17, xFirst: 0, yRows: 1, yFirst: 0, accumulate: true },
    ],
    bound: (_problem, _before, { y }: Arrays<'y'>) => ({ y: (i) => ULP * abs(y[i]!) }),
  }),
];
