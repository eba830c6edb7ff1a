// How far f32 arithmetic may lead the kernels of norms from their references (rounding.ts).

import type { HeadNormBackwardProblem, HeadNormProblem, HeadRows } from '../../src/kernels/head-norm.ts';
import type { Arrays } from '../../src/kernels/kernel.ts';
import { ROW_BLOCK } from '../../src/kernels/layernorm.ts';
import { average, type Bounds, byRow, ULP } from './rounding.ts';

const { abs, min } = Math;

interface Rows {
  rows: number;
  width: number;
  accumulate?: boolean;
  gainOffset?: number;
}

/** |g|, mean |g| and mean |g n| |n|: the terms of dx / rstd, with g = dy * weight and n the normalised x. */
const normBackward =
  (centre: boolean): Bounds<Rows> =>
  ({ width, accumulate, gainOffset = 0 }, before: Arrays<'dy' | 'x' | 'weight' | 'mean' | 'rstd' | 'dx'>) => {
    const { dy, x, weight, rstd } = before;
    return {
      dx: byRow(width, (r) => {
        const g = (c: number) => abs(dy[r * width + c]! * (weight[c]! + gainOffset));
        const n = (c: number) => abs((x[r * width + c]! - (centre ? before.mean[r]! : 0)) * rstd[r]!);
        const meanG = centre ? average(width, g) : 0;
        const meanGN = average(width, (c) => g(c) * n(c));
        // Sums of width terms with four roundings each, a division, then the last line's eight operations; the gain.
        const ulps = width + 4 + 2.5 + 8 + (gainOffset === 0 ? 0 : 2);
        return (c) =>
          ulps * ULP * rstd[r]! * (g(c) + meanG + n(c) * meanGN) +
          (accumulate ? ULP * (abs(before.dx[r * width + c]!) + rstd[r]! * (g(c) + meanG + n(c) * meanGN)) : 0);
      }),
    };
  };

/** Bounds of every written operand, by kernel name. */
// biome-ignore lint/suspicious/noExplicitAny: kernels of different problems
export const normBounds: Record<string, Bounds<any>> = {
  layernorm(
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
  layernormBackward: normBackward(true),
  rmsnormBackward: normBackward(false),
  rmsnorm({ width, gainOffset = 0 }: Rows, _before, { y, rstd }: Arrays<'y' | 'rstd'>) {
    const relative = rstdError(width);
    const roundings = gainOffset === 0 ? 2 : 3;
    return { y: (i) => abs(y[i]!) * (relative + roundings * ULP), rstd: (r) => rstd[r]! * relative };
  },
  headNorm(p: HeadNormProblem, _before, { x, normal, rstd }: Arrays<'x' | 'normal' | 'rstd'>) {
    const relative = rstdError(p.width);
    const isHead = headColumns(p);
    return {
      x: (i) => (isHead(i) ? abs(x[i]!) * (relative + 3 * ULP) : 0),
      normal: (i) => abs(normal[i]!) * (relative + ULP),
      rstd: (r) => rstd[r]! * relative,
    };
  },
  headNormBackward(
    p: HeadNormBackwardProblem,
    { normal, weight, rstd, dx }: Arrays<'normal' | 'weight' | 'rstd' | 'dx'>,
  ) {
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
  headNormParameterGrad(p: HeadRows, { dy, normal }: Arrays<'dy' | 'normal'>) {
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
  layernormParameterGrad({ rows, width }: Rows, { dy, x, mean, rstd }: Arrays<'dy' | 'x' | 'mean' | 'rstd'>) {
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
  rmsnormParameterGrad({ rows, width }: Rows, { dy, x, rstd }: Arrays<'dy' | 'x' | 'rstd'>) {
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
};

/** Relative, of 1 / sqrt(mean of squares): width + 1 roundings and a division, halved by the root; then root and division. */
function rstdError(width: number): number {
  return (0.5 * (width + 1 + 2.5 + 1) + 4.5 + 2.5) * ULP;
}

/** Whether an element of packed rows belongs to one of the heads. */
function headColumns({ heads, width, stride, offset }: HeadRows): (i: number) => boolean {
  return (i) => i >= offset && (i - offset) % stride < heads * width;
}
