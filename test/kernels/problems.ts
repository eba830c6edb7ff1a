// Problems that several kernels are tested with, of elementwise kernels, norms and products. Sizes are odd on purpose (1, 37, 65,
// 129, ...); those of attention are in attention-cases.ts.

import type { Epilogue, Layout, MatmulProblem } from '../../src/kernels/matmul.ts';

/**
 * One more than a grid of one row can hold: 65,535 workgroups, of 64 invocations or of one row each. Few
 * kernels get one, for they take seconds; kernels.test.ts folds the grids of all the others by hand.
 */
export const FOLDED_ITEMS = 65_535 * 64 + 1;
export const FOLDED_ROWS = 65_536;

// One multiple of 4 in each list of sizes: four floats are loaded at a time then.
export const elementwise = [1, 37, 65, 129, 260, 4099].map((size) => ({ size }));

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

export const parameterGrads = [
  { rows: 1, width: 1 },
  { rows: 3, width: 5 },
  { rows: 129, width: 37 },
  { rows: 65, width: 65 },
  { rows: 66, width: 268 },
];

/** An odd rest of columns, heads behind others, one head, and four floats at a time. */
export const headRows = [
  { rows: 28, heads: 4, width: 14, stride: 56, offset: 0 },
  { rows: 18, heads: 2, width: 10, stride: 81, offset: 41 },
  { rows: 3, heads: 1, width: 2, stride: 2, offset: 0 },
  { rows: 65 * 3, heads: 3, width: 16, stride: 80, offset: 16 },
  { rows: 2, heads: 2, width: 132, stride: 264, offset: 0 },
];

const layouts: readonly Layout[] = ['NN', 'NT', 'TN'];
const epilogues: readonly Epilogue[] = [
  'scale',
  'softcap',
  'bias',
  'residual',
  'biasResidual',
  'biasGelu',
  'geluGradient',
  'biasGeluErf',
  'geluErfGradient',
];

export const matmuls: readonly MatmulProblem[] = [
  ...layouts.flatMap((layout) => [
    { layout, M: 1, N: 1, K: 1 },
    { layout, M: 3, N: 5, K: 7, accumulate: true },
    { layout, M: 17, N: 33, K: 65 },
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
  // Behind a low-rank update, which the product goes on from.
  ...epilogues.map((epilogue): MatmulProblem => ({ layout: 'NT', M: 17, N: 33, K: 65, accumulate: true, epilogue })),
  { layout: 'NN', M: 20, N: 12, K: 36, accumulate: true, epilogue: 'geluGradient' },
  // Some columns of C, as a row tile of a weight stored transposed gives them.
  ...epilogues.map(
    (epilogue): MatmulProblem => ({
      ...{ layout: 'NT', M: 17, N: 20, K: 12, cStride: 37, cOffset: 9, biasOffset: 9, partial: true },
      ...{ epilogue, scale: 0.3 },
    }),
  ),
];
