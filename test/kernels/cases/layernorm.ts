// LayerNorm in kernel tests: problems, and how far f32 may stray.

import type { Arrays } from '../../../src/kernels/kernel.ts';
import { layernorm, layernormBackward, layernormParameterGrad, ROW_BLOCK } from '../../../src/kernels/layernorm.ts';
import { row } from '../inputs.ts';
import { normBackward, normBackwards, norms, parameterGrads } from '../norms.ts';
import { average, byRow, ULP } from '../rounding.ts';

const { abs, min } = Math;

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
    kernel: layernormParameterGrad,
    problems: parameterGrads,
    inputs: ({ rows }, random) => ({ rstd: random.uniforms(rows, 0.5, 2) }),
    bound({ rows, width }, { dy, x, mean, rstd }: Arrays<'dy' | 'x' | 'mean' | 'rstd'>) {
      return {
        partials: (i) => {
          const block = Math.floor(i / (2 * width));
          const c = i % width;
          const isBias = i % (2 * width) >= width;
          let sum = 0;
          for (let r = block * ROW_BLOCK; r < min(rows, (block + 1) * ROW_BLOCK); r++) {
            const term = isBias ? 1 : (x[r * width + c]! - mean[r]!) * rstd[r]!;
            sum += abs(dy[r * width + c]! * term);
          }
          return (min(rows, ROW_BLOCK) + 3) * ULP * sum;
        },
      };
    },
  }),
];
