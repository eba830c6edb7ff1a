// Sums of columns in kernel tests: problems, and how far f32 may stray.

import { addRows, columnSum } from '../../../src/kernels/column-sum.ts';
import type { Arrays } from '../../../src/kernels/kernel.ts';
import { row } from '../inputs.ts';
import { ULP } from '../rounding.ts';

const { abs, min } = Math;

export const cases = [
  row({
    kernel: columnSum,
    problems: [
      { rows: 1, width: 1, stride: 1, offset: 0, rowsPerBlock: 1, accumulate: false },
      { rows: 3, width: 5, stride: 11, offset: 4, rowsPerBlock: 2, accumulate: true },
      { rows: 129, width: 37, stride: 37, offset: 0, rowsPerBlock: 32, accumulate: false },
      { rows: 1001, width: 1, stride: 1, offset: 0, rowsPerBlock: 1001, accumulate: false },
      { rows: 65, width: 129, stride: 387, offset: 258, rowsPerBlock: 65, accumulate: true },
      { rows: 131, width: 36, stride: 84, offset: 40, rowsPerBlock: 33, accumulate: true },
      // Behind others, which stay.
      { rows: 37, width: 5, stride: 5, offset: 0, rowsPerBlock: 37, accumulate: false, into: 9 },
      { rows: 19, width: 12, stride: 12, offset: 0, rowsPerBlock: 7, accumulate: true, into: 8 },
    ],
    bound({ rows, width, stride, offset, rowsPerBlock, accumulate, into = 0 }, { x, y }: Arrays<'x' | 'y'>) {
      // Four running sums, two more levels, the old value.
      const roundings = Math.ceil(min(rows, rowsPerBlock) / 4) + 3 + 2 + 1;
      const bound = (block: number, column: number, old: number) => {
        let sum = accumulate ? abs(old) : 0;
        for (let r = block * rowsPerBlock; r < min(rows, (block + 1) * rowsPerBlock); r++) {
          sum += abs(x[offset + r * stride + column]!);
        }
        return roundings * ULP * sum;
      };
      return {
        y: (i) => (i < into ? 0 : bound(Math.floor((i - into) / width), (i - into) % width, y[i]!)),
      };
    },
  }),
  row({
    kernel: addRows,
    problems: [
      { rows: 1, width: 1, accumulate: false },
      { rows: 37, width: 5, accumulate: true },
      { rows: 65, width: 268, accumulate: true },
      { rows: 300, width: 36, accumulate: false },
    ],
    bound({ rows, width, accumulate }, { x, y }: Arrays<'x' | 'y'>) {
      return {
        y: (c) => {
          let sum = accumulate ? abs(y[c]!) : 0;
          for (let r = 0; r < rows; r++) sum += abs(x[r * width + c]!);
          return rows * ULP * sum;
        },
      };
    },
  }),
];
