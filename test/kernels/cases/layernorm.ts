// LayerNorm in kernel tests: problems, and how far f32 may stray.

import type { Arrays } from '../../../src/kernels/kernel.ts';
import { layernorm, layernormBackward, layernormGradients } from '../../../src/kernels/layernorm.ts';
import { row } from '../inputs.ts';
import { normBackward, normBackwards, normGradients, norms, sumOverRows } from '../norms.ts';
import { average, byRow, ULP } from '../rounding.ts';

const { abs } = Math;

export const cases = [
  row({
    kernel: layernorm,
    problems: norms,
    bound(
      { width, eps }: { width: number; eps: number },
      { x, weight, bias }: Arrays<'x' | 'weight' | 'bias'>,
      { mean, rstd }: Arrays<'mean' | 'rstd'>,
    ) {
      // Errors of a row: of the mean (absolute), of rstd (relative).
      const rowErrors = (r: number) => {
        const at = r * width;
        const size = average(width, (c) => abs(x[at + c]!));
        const spread = average(width, (c) => abs(x[at + c]! - mean[r]!));
        const variance = average(width, (c) => (x[at + c]! - mean[r]!) ** 2);
        const meanError = (width + 2.5) * ULP * size;
        const varianceError = (width + 5.5) * ULP * variance + 2 * spread * meanError + meanError ** 2;
        return { meanError, rstdError: (0.5 * varianceError) / (variance + eps) + (4.5 + 2.5 + 1) * ULP };
      };
      return {
        y: byRow(width, (r) => {
          const { meanError, rstdError } = rowErrors(r);
          return (c) => {
            const centred = abs(x[r * width + c]! - mean[r]!);
            const product = centred * rstd[r]! * abs(weight[c]!);
            return abs(weight[c]!) * rstd[r]! * meanError + product * (rstdError + 4 * ULP) + ULP * abs(bias[c]!);
          };
        }),
        mean: (r) => rowErrors(r).meanError,
        rstd: (r) => rstd[r]! * rowErrors(r).rstdError,
      };
    },
  }),
  row({
    kernel: layernormBackward,
    problems: normBackwards,
    inputs: ({ rows }, random) => ({ rstd: random.uniforms(rows, 0.5, 2) }),
    bound: normBackward(true),
  }),
  row({
    kernel: layernormGradients,
    problems: normGradients.map((problem) => ({ ...problem, accumulateBias: problem.accumulateWeight })),
    inputs: ({ rows }, random) => ({ rstd: random.uniforms(rows, 0.5, 2) }),
    bound(problem, before: Arrays<'dy' | 'x' | 'weight' | 'mean' | 'rstd' | 'dx' | 'dweight' | 'dbias'>, after) {
      const { width, accumulateWeight, accumulateBias } = problem;
      const { dy, x, mean, rstd, dweight, dbias } = before;
      const ofWeight = (r: number, c: number) => abs(dy[r * width + c]! * (x[r * width + c]! - mean[r]!) * rstd[r]!);
      return {
        ...normBackward(true)(problem, before, after),
        dweight: sumOverRows(problem, accumulateWeight ? dweight : undefined, 3, ofWeight),
        dbias: sumOverRows(problem, accumulateBias ? dbias : undefined, 0, (r, c) => abs(dy[r * width + c]!)),
      };
    },
  }),
];
