// RMSNorm in kernel tests: problems, and how far f32 may stray.

import type { Arrays } from '../../../src/kernels/kernel.ts';
import { type RMSNormProblem, rmsnorm, rmsnormBackward, rmsnormGradients } from '../../../src/kernels/rmsnorm.ts';
import { row } from '../inputs.ts';
import { normBackward, normBackwards, normGradients, norms, rstdError, sumOverRows } from '../norms.ts';
import { FOLDED_ROWS, inEveryCase } from '../problems.ts';
import { ULP } from '../rounding.ts';

const { abs } = Math;

export const cases = [
  row({
    kernel: rmsnorm,
    problems: [
      ...norms,
      { rows: 3, width: 5, eps: 1e-6, gainOffset: 1 },
      { rows: 66, width: 268, eps: 1e-6, gainOffset: 1 },
      ...inEveryCase({ rows: FOLDED_ROWS, width: 3, eps: 1e-5 }),
    ],
    bound({ width, gainOffset = 0 }: RMSNormProblem, _before, { y, rstd }: Arrays<'y' | 'rstd'>) {
      const relative = rstdError(width);
      const roundings = gainOffset === 0 ? 2 : 3;
      return { y: (i) => abs(y[i]!) * (relative + roundings * ULP), rstd: (r) => rstd[r]! * relative };
    },
  }),
  row({
    kernel: rmsnormBackward,
    problems: [
      ...normBackwards,
      { rows: 3, width: 5, accumulate: true, gainOffset: 1 },
      { rows: 66, width: 268, accumulate: false, gainOffset: 1 },
    ],
    inputs: ({ rows }, random) => ({ rstd: random.uniforms(rows, 0.5, 2) }),
    bound: normBackward(false),
  }),
  row({
    kernel: rmsnormGradients,
    problems: [...normGradients, { rows: 37, width: 36, accumulate: false, accumulateWeight: false, gainOffset: 1 }],
    inputs: ({ rows }, random) => ({ rstd: random.uniforms(rows, 0.5, 2) }),
    bound(problem, before: Arrays<'dy' | 'x' | 'weight' | 'mean' | 'rstd' | 'dx' | 'dweight'>, after) {
      const { width, accumulateWeight } = problem;
      const { dy, x, rstd, dweight } = before;
      const size = (r: number, c: number) => abs(dy[r * width + c]! * x[r * width + c]! * rstd[r]!);
      return {
        ...normBackward(false)(problem, before, after),
        dweight: sumOverRows(problem, accumulateWeight ? dweight : undefined, 2, size),
      };
    },
  }),
];
