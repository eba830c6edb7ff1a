// RMSNorm of heads in kernel tests: problems, and how far f32 may stray.

import {
  type HeadNormBackwardProblem,
  type HeadNormProblem,
  type HeadRows,
  headNorm,
  headNormBackward,
  headNormParameterGrad,
} from '../../../src/kernels/head-norm.ts';
import type { Arrays } from '../../../src/kernels/kernel.ts';
import { ROW_BLOCK } from '../../../src/kernels/norm-gradients.ts';
import { row } from '../inputs.ts';
import { rstdError } from '../norms.ts';
import { average, ULP } from '../rounding.ts';

const { abs, min } = Math;

/** An odd rest of columns, heads behind others, one head, and four floats at a time. */
const headRows = [
  { rows: 28, heads: 4, width: 14, stride: 56, offset: 0 },
  { rows: 18, heads: 2, width: 10, stride: 81, offset: 41 },
  { rows: 3, heads: 1, width: 2, stride: 2, offset: 0 },
  { rows: 65 * 3, heads: 3, width: 16, stride: 80, offset: 16 },
  { rows: 2, heads: 2, width: 132, stride: 264, offset: 0 },
];

export const cases = [
  row({
    kernel: headNorm,
    problems: headRows.flatMap((heads) => [
      { ...heads, eps: 1e-6 },
      { ...heads, eps: 1e-5, gainOffset: 1 },
    ]),
    bound(p: HeadNormProblem, _before, { x, normal, rstd }: Arrays<'x' | 'normal' | 'rstd'>) {
      const relative = rstdError(p.width);
      const isHead = headColumns(p);
      return {
        x: (i) => (isHead(i) ? abs(x[i]!) * (relative + 3 * ULP) : 0),
        normal: (i) => abs(normal[i]!) * (relative + ULP),
        rstd: (r) => rstd[r]! * relative,
      };
    },
  }),
  row({
    kernel: headNormBackward,
    problems: headRows.flatMap((heads) => [heads, { ...heads, gainOffset: 1 }]),
    inputs: ({ rows }, random) => ({ rstd: random.uniforms(rows, 0.5, 2) }),
    bound(p: HeadNormBackwardProblem, { normal, weight, rstd, dx }: Arrays<'normal' | 'weight' | 'rstd' | 'dx'>) {
      const { heads, width, stride, offset, gainOffset = 0 } = p;
      const isHead = headColumns(p);
      return {
        dx: (i) => {
          if (!isHead(i)) return 0;
          const c = (i - offset) % stride;
          const row = Math.floor((i - offset) / stride) * heads + Math.floor(c / width);
          const first = i - (c % width);
          const g = (j: number) => abs(dx[first + j]! * (weight[j]! + gainOffset));
          const n = (j: number) => abs(normal[row * width + j]!);
          const meanGN = average(width, (j) => g(j) * n(j));
          // As rmsnormBackward: sums of width terms with three roundings each, a division, the last line.
          return (width + 3 + 2.5 + 6) * ULP * rstd[row]! * (g(c % width) + n(c % width) * meanGN);
        },
      };
    },
  }),
  row({
    kernel: headNormParameterGrad,
    problems: headRows,
    bound(p: HeadRows, { dy, normal }: Arrays<'dy' | 'normal'>) {
      const { rows, heads, width, stride, offset } = p;
      return {
        partials: (i) => {
          const block = Math.floor(i / width);
          let sum = 0;
          for (let r = block * ROW_BLOCK; r < min(rows, (block + 1) * ROW_BLOCK); r++) {
            const base = Math.floor(r / heads) * stride + offset + (r % heads) * width;
            sum += abs(dy[base + (i % width)]! * normal[r * width + (i % width)]!);
          }
          return (min(rows, ROW_BLOCK) + 1) * ULP * sum;
        },
      };
    },
  }),
];

/** Whether an element of packed rows belongs to one of the heads. */
function headColumns({ heads, width, stride, offset }: HeadRows): (i: number) => boolean {
  return (i) => i >= offset && (i - offset) % stride < heads * width;
}
