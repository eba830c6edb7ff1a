// Products in kernel tests: problems, and how far f32 may stray.

import { ACTIVATION_NAMES } from '../../../src/kernels/activations.ts';
import type { Arrays } from '../../../src/kernels/kernel.ts';
import { matmul } from '../../../src/kernels/matmul.ts';
import { type Epilogue, epiloguesOf, type Layout, type MatmulProblem } from '../../../src/kernels/matmul-problem.ts';
import { assert } from '../../../src/util/errors.ts';
import { ACTIVATION_ERRORS, tanhError } from '../activation-errors.ts';
import { IGNORE, type Inputs, row, targets } from '../inputs.ts';
import { type Bound, expUlps, TINY, ULP } from '../rounding.ts';

const { abs } = Math;

const LOSSES = ['crossEntropy', 'biasCrossEntropy'] as const;
const isOfLoss = ({ epilogue }: MatmulProblem): boolean => LOSSES.some((name) => name === epilogue);

const layouts: readonly Layout[] = ['NN', 'NT', 'TN'];
const epilogues: readonly Epilogue[] = [
  'scale',
  'softcap',
  'bias',
  'residual',
  'biasResidual',
  ...LOSSES,
  ...ACTIVATION_NAMES.flatMap((name) => Object.values(epiloguesOf(name))),
];

const matmuls: readonly MatmulProblem[] = [
  ...layouts.flatMap((layout) => [
    { layout, M: 17, N: 33, K: 65 },
    { layout, M: 3, N: 5, K: 7, accumulate: true },
    { layout, M: 1, N: 1, K: 1 },
    { layout, M: 51, N: 40, K: 1 },
    // Multiples of 4, then tiles of every variant cut at each edge.
    { layout, M: 64, N: 48, K: 36, accumulate: true },
    { layout, M: 132, N: 196, K: 68 },
  ]),
  // Only K is a multiple of 4.
  { layout: 'NT', M: 17, N: 33, K: 64 },
  // Few rows.
  { layout: 'NT', M: 1, N: 65, K: 64, aOffset: 128 },
  { layout: 'NN', M: 2, N: 132, K: 12, accumulate: true },
  { layout: 'NT', M: 3, N: 9, K: 129 },
  // A column block of a packed y, of which dW and dx read the like; 'in,out' weights, then 'out,in' ones.
  { layout: 'NN', M: 37, N: 20, K: 12, cStride: 60, cOffset: 20, partial: true },
  { layout: 'NN', M: 17, N: 5, K: 7, cStride: 15, cOffset: 10, partial: true },
  { layout: 'TN', M: 12, N: 20, K: 36, bStride: 60, bOffset: 40, accumulate: true },
  { layout: 'TN', M: 7, N: 5, K: 9, bStride: 15, bOffset: 5 },
  { layout: 'NT', M: 37, N: 12, K: 20, aStride: 60, aOffset: 40, accumulate: true },
  { layout: 'TN', M: 20, N: 12, K: 36, aStride: 60, aOffset: 20 },
  { layout: 'NN', M: 9, N: 5, K: 7, aStride: 21, aOffset: 14, accumulate: true },
  // A row tile of a large weight, and of its gradient.
  { layout: 'NN', M: 9, N: 12, K: 7, bOffset: 36, accumulate: true },
  { layout: 'TN', M: 7, N: 12, K: 20, cOffset: 36, accumulate: true, partial: true },
  ...epilogues.map((epilogue): MatmulProblem => ({ layout: 'NN', M: 17, N: 33, K: 65, epilogue, scale: 0.3 })),
  { layout: 'NT', M: 1, N: 36, K: 20, epilogue: 'biasGelu' },
  // Small quotients, and such that tanh is 1.
  { layout: 'NT', M: 17, N: 36, K: 20, epilogue: 'softcap', scale: 30 },
  { layout: 'NN', M: 3, N: 65, K: 64, epilogue: 'softcap', scale: 0.5 },
  // Rows and columns in the middle of more, one float at a time and four; a few rows.
  ...LOSSES.flatMap((epilogue): MatmulProblem[] => [
    { layout: 'NT', M: 37, N: 33, K: 20, epilogue, firstRow: 129, firstLabel: 65, ignoreIndex: IGNORE },
    { layout: 'NT', M: 66, N: 36, K: 20, epilogue, firstRow: 5, firstLabel: 7, ignoreIndex: IGNORE },
    { layout: 'NT', M: 2, N: 68, K: 20, epilogue, firstLabel: 3, ignoreIndex: IGNORE },
  ]),
  // Sums of what a bias was added to, beside the gradient of its weight: blocks of which some are left over, and one that is short.
  { layout: 'TN', M: 36, N: 68, K: 324, totalsOf: 'b', stepsPerBlock: 64 },
  {
    layout: 'TN',
    M: 7,
    N: 5,
    K: 260,
    bStride: 15,
    bOffset: 5,
    totalsOf: 'b',
    stepsPerBlock: 64,
    accumulateTotals: true,
  },
  { layout: 'TN', M: 70, N: 36, K: 512, totalsOf: 'a', stepsPerBlock: 64, accumulate: true },
  { layout: 'TN', M: 7, N: 33, K: 324, aStride: 20, aOffset: 8, totalsOf: 'a', stepsPerBlock: 64, totalsOffset: 5 },
  { layout: 'TN', M: 3, N: 12, K: 320, totalsOf: 'b', stepsPerBlock: 64 },
  // Behind a low-rank update, which the product goes on from.
  ...epilogues.map((epilogue): MatmulProblem => ({ layout: 'NT', M: 17, N: 33, K: 65, accumulate: true, epilogue })),
  { layout: 'NN', M: 20, N: 12, K: 36, accumulate: true, epilogue: 'geluGradient' },
  // Some columns of C, as a row tile of a weight stored transposed gives them: stored one float at a time, and four.
  ...[
    { cStride: 37, cOffset: 9, biasOffset: 9 },
    { cStride: 36, cOffset: 8, biasOffset: 8 },
  ].flatMap((place) =>
    epilogues.map(
      (epilogue): MatmulProblem => ({
        ...{ layout: 'NT', M: 17, N: 20, K: 12, ...place, partial: true },
        ...{ epilogue, scale: 0.3 },
      }),
    ),
  ),
];

export const cases = [
  row({
    kernel: matmul,
    problems: matmuls,
    inputs(p, random): Inputs {
      if (!isOfLoss(p)) return {};
      const { M, N, firstRow = 0, firstLabel = 0 } = p;
      const rows = firstRow + M;
      return {
        lse: Float32Array.from({ length: 2 * rows }, (_, i) => (i % 2 === 0 ? 9 : 3) + random.uniform()),
        targets: targets(random, rows, firstLabel + N + 3),
        gradientScale: new Float32Array([0.125]),
      };
    },
    bound(
      p: MatmulProblem,
      before: Arrays<'a' | 'b' | 'c' | 'bias' | 'preactivation' | 'lse' | 'targets' | 'gradientScale' | 'totals'>,
      after: Arrays<'c' | 'preactivation'>,
    ) {
      // The sums, and the sums of absolute values: K products with one rounding each, then K + 1 terms added up.
      const run = (of: (value: number) => number) => {
        const sides = p.totalsOf && { totals: before.totals.map(of) };
        const data = { a: before.a.map(of), b: before.b.map(of), c: before.c.map(of), ...sides };
        matmul.reference({ ...p, epilogue: 'none' }, data);
        return { c: data.c, totals: sides?.totals ?? new Float64Array() };
      };
      const { c: sums } = run((value) => value);
      const { c: sizes, totals: totalSizes } = run(abs);
      const { epilogue = 'none', cStride = p.N, cOffset = 0, biasOffset = 0 } = p;
      const sumError: Bound = (i) => (p.K + 2) * ULP * sizes[i]!;
      const columnOf = (i: number) => (i < cOffset ? -1 : (i - cOffset) % cStride);
      const isInside = (i: number) => columnOf(i) >= 0 && columnOf(i) < p.N;
      const finish = (i: number): number => {
        const last = ULP * abs(after.c[i]!);
        switch (epilogue) {
          case 'none':
            return sumError(i);
          case 'scale':
            return abs(p.scale ?? 1) * sumError(i) + last;
          case 'softcap': {
            const cap = p.scale ?? 1;
            // tanh is nowhere steeper than 1.
            return sumError(i) + cap * tanhError(sums[i]! / cap) + last;
          }
          case 'bias':
          case 'residual':
            return sumError(i) + last;
          case 'biasResidual':
            return sumError(i) + ULP * abs(sums[i]! + before.bias[biasOffset + columnOf(i)]!) + last;
          case 'crossEntropy':
          case 'biasCrossEntropy': {
            const row = (p.firstRow ?? 0) + Math.floor((i - cOffset) / cStride);
            if (before.targets[row] === p.ignoreIndex) return 0;
            const logit = epilogue === 'crossEntropy' ? sums[i]! : sums[i]! + before.bias[biasOffset + columnOf(i)]!;
            const shifted = logit - before.lse[2 * row]!;
            const z = shifted - before.lse[2 * row + 1]!;
            const shift = sumError(i) + ULP * (abs(logit) + abs(shifted));
            const probabilityError = Math.exp(z) * (ULP * expUlps(z, 1) + Math.expm1(shift));
            return abs(before.gradientScale[0]!) * probabilityError + 2 * last + TINY;
          }
          default: {
            const name = ACTIVATION_NAMES.find((each) => Object.values(epiloguesOf(each)).includes(epilogue));
            assert(name, `a bound of ${epilogue}`);
            const { value, slope, steepest } = ACTIVATION_ERRORS[name];
            if (epilogue === epiloguesOf(name).gradient)
              return steepest * sumError(i) + abs(sums[i]!) * slope(before.preactivation[i]!);
            const u = after.preactivation[i]!;
            return steepest * (sumError(i) + ULP * abs(u)) + value(u, after.c[i]!);
          }
        }
      };
      return {
        c: (i) => (isInside(i) ? finish(i) : 0),
        // K terms, and what was there, added up.
        totals: (i) => (i < (p.totalsOffset ?? 0) ? 0 : (p.K + 1) * ULP * totalSizes[i]!),
        preactivation: (i) => (isInside(i) ? sumError(i) + ULP * abs(after.preactivation[i]!) : 0),
      };
    },
  }),
];
