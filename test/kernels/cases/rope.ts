// Rotary embeddings in kernel tests: problems, and how far f32 may stray.

import type { Arrays } from '../../../src/kernels/kernel.ts';
import { rope, ropeTable } from '../../../src/kernels/rope.ts';
import { row } from '../inputs.ts';
import { ULP } from '../rounding.ts';

const { abs } = Math;

export const cases = [
  row({
    kernel: rope,
    problems: [
      { rows: 1, seq: 1, heads: 1, headSize: 2, stride: 2, offset: 0, positions: 3, inverse: false },
      { rows: 15, seq: 5, heads: 3, headSize: 6, stride: 25, offset: 3, positions: 37, inverse: false },
      { rows: 65, seq: 65, heads: 2, headSize: 10, stride: 20, offset: 0, positions: 129, inverse: true },
      { rows: 15, seq: 5, heads: 3, headSize: 8, stride: 60, offset: 28, positions: 37, inverse: true },
      // Positions 2..38 of a table of 33: the last five read its last row.
      { rows: 37, seq: 37, heads: 1, headSize: 4, stride: 4, offset: 0, positions: 33, inverse: false },
    ],
    inputs: ({ positions, headSize }) => ({
      table: ropeTable(positions, headSize, 10_000),
      position: new Uint32Array([2]),
    }),
    bound({ heads, headSize, stride, offset }, { x }: Arrays<'x'>) {
      return {
        x: (i) => {
          const c = (i % stride) - offset;
          if (c < 0 || c >= heads * headSize) return 0;
          const half = headSize / 2;
          const partner = c % headSize < half ? i + half : i - half;
          return 2 * ULP * (abs(x[i]!) + abs(x[partner]!));
        },
      };
    },
  }),
];
