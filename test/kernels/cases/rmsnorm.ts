// RMSNorm in kernel tests: problems, and how far f32 may stray.

import type { Arrays } from '../../../src/kernels/kernel.ts';
import { ROW_BLOCK } from '../../../src/kernels/layernorm.ts';
import { type RMSNormProblem, rmsnorm, rmsnormBackward, rmsnormParameterGrad } from '../../../src/kernels/rmsnorm.ts';
import { row } from '../inputs.ts';
import { normBackward, normBackwards, norms, parameterGrads, rstdError } from '../norms.ts';
import { FOLDED_ROWS, inEveryCase } from '../problems.ts';
import { ULP } from '../rounding.ts';

const { abs, min } = Math;

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
    kernel: rmsnormParameterGrad,
    problems: parameterGrads,
    inputs: ({ rows }, random) => ({ rstd: random.uniforms(rows, 0.5, 2) }),
    bound({ rows, width }, { dy, x, rstd }: Arrays<'dy' | 'x' | 'rstd'>) {
      return {
        partials: (i) => {
          const block = Math.floor(i / width);
          const c = i % width;
          let sum = 0;
          for (let r = block * ROW_BLOCK; r < min(rows, (block + 1) * ROW_BLOCK); r++) {
            sum += abs(dy[r * width + c]! * x[r * width + c]! * rstd[r]!);
          }
          return (min(rows, ROW_BLOCK) + 2) * ULP * sum;
        },
      };
    },
  }),
];
