// Norms of rows in kernel tests: the problems that they have in common, and what their arithmetic loses (rounding.ts).

import type { Arrays } from '../../src/kernels/kernel.ts';
import { ROW_BLOCK } from '../../src/kernels/norm-gradients.ts';
import { average, type Bounds, byRow, ULP } from './rounding.ts';

const { abs } = Math;

export const norms = [
  { rows: 1, width: 1, eps: 1e-5 },
  { rows: 3, width: 5, eps: 1e-5 },
  { rows: 37, width: 129, eps: 1e-5 },
  { rows: 65, width: 65, eps: 1e-6 },
  { rows: 5, width: 4, eps: 1e-5 },
  { rows: 66, width: 268, eps: 1e-5 },
];

export const normBackwards = norms.flatMap(({ rows, width }) => [
  { rows, width, accumulate: false },
  { rows, width, accumulate: true },
]);

/** Of sums over rows: in the middle of a block, of several, of more than go at a time, and by blocks. */
export const normGradients = [
  { rows: 1, width: 1, accumulate: false, accumulateWeight: false },
  { rows: 3, width: 5, accumulate: true, accumulateWeight: true },
  { rows: 129, width: 37, accumulate: true, accumulateWeight: false },
  { rows: 65, width: 65, accumulate: false, accumulateWeight: true },
  { rows: 66, width: 268, accumulate: true, accumulateWeight: true },
  { rows: 2100, width: 36, accumulate: true, accumulateWeight: false },
  { rows: 96, width: 64, accumulate: false, accumulateWeight: false, byBlock: true },
  { rows: 1100, width: 7, accumulate: true, accumulateWeight: false, byBlock: true },
];

/**
 * Of a sum over rows, of terms of so many roundings each: rows of a block, then the blocks on top of what is there. `sizeOf`: of a
 * term.
 */
export function sumOverRows(
  { rows, width, byBlock }: { rows: number; width: number; byBlock?: boolean },
  before: Float64Array | undefined,
  roundings: number,
  sizeOf: (row: number, column: number) => number,
): (i: number) => number {
  return (i) => {
    const [first, last] = byBlock
      ? [Math.floor(i / width) * ROW_BLOCK, Math.min(rows, (Math.floor(i / width) + 1) * ROW_BLOCK)]
      : [0, rows];
    let sum = 0;
    for (let r = first; r < last; r++) sum += sizeOf(r, i % width);
    const ofBlock = (Math.min(rows, ROW_BLOCK) + roundings) * sum;
    return ULP * (ofBlock + (byBlock ? 0 : Math.ceil(rows / ROW_BLOCK)) * (abs(before?.[i] ?? 0) + sum));
  };
}

interface Rows {
  rows: number;
  width: number;
  accumulate?: boolean;
  gainOffset?: number;
}

/** |g|, mean |g| and mean |g n| |n|: the terms of dx / rstd, with g = dy * weight and n the normalised x. */
export const normBackward =
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

/** Relative, of 1 / sqrt(mean of squares): width + 1 roundings and a division, halved by the root; then root and division. */
export function rstdError(width: number): number {
  return (0.5 * (width + 1 + 2.5 + 1) + 4.5 + 2.5) * ULP;
}
