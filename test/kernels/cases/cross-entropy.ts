// Cross-entropy in kernel tests: problems, and how far f32 may stray.

import {
  crossEntropyBackward,
  crossEntropyHits,
  crossEntropyLoss,
  crossEntropyTile,
} from '../../../src/kernels/cross-entropy.ts';
import type { Arrays } from '../../../src/kernels/kernel.ts';
import { IGNORE, row, targets } from '../inputs.ts';
import { exact, expUlps, TINY, ULP } from '../rounding.ts';

const { abs, exp, log } = Math;

export const cases = [
  row({
    kernel: crossEntropyTile,
    problems: [
      { rows: 1, tile: 1, first: 0, begin: true },
      { rows: 3, tile: 5, first: 0, begin: true },
      { rows: 37, tile: 129, first: 65, begin: false },
      { rows: 65, tile: 65, first: 130, begin: true },
      // Four floats at a time, within rows and across their ends.
      { rows: 37, tile: 132, first: 65, begin: false },
      { rows: 36, tile: 65, first: 0, begin: true },
      { rows: 12, tile: 3, first: 3, begin: false },
      // Rows in the middle of more.
      { rows: 37, tile: 33, first: 65, begin: false, firstRow: 129 },
      { rows: 12, tile: 36, first: 0, begin: true, firstRow: 5 },
    ],
    inputs: ({ rows, tile, first, firstRow = 0 }, random) => ({
      logits: random.normals(rows * tile, 4),
      targets: targets(random, firstRow + rows, first + tile + 3),
      sum: random.uniforms(firstRow + rows, 1, 9),
    }),
    bound(
      { tile, begin, firstRow = 0 },
      before: Arrays<'logits' | 'sum' | 'maximum'>,
      { maximum, sum }: Arrays<'maximum' | 'sum'>,
    ) {
      return {
        maximum: exact,
        picked: exact,
        sum: (r) => {
          if (r < firstRow) return 0;
          // The argument is a difference, rounded once.
          const term = (d: number) => exp(d) * expUlps(d, 1);
          let bound = (tile + 1) * sum[r]!;
          for (let c = 0; c < tile; c++) bound += term(before.logits[(r - firstRow) * tile + c]! - maximum[r]!);
          if (!begin) bound += before.sum[r]! * (term(before.maximum[r]! - maximum[r]!) + 1);
          return bound * ULP + TINY;
        },
      };
    },
  }),
  row({
    kernel: crossEntropyLoss,
    problems: [1, 37, 129].map((rows) => ({ rows, ignoreIndex: IGNORE })),
    inputs: ({ rows }, random) => ({
      sum: random.uniforms(rows, 1, 9),
      targets: targets(random, rows, 5),
    }),
    bound(_problem, { maximum, sum, picked, targets }: Arrays<'maximum' | 'sum' | 'picked' | 'targets'>, _after) {
      const logError = (r: number) => (sum[r]! <= 2 ? 2 ** -21 : 3 * ULP * log(sum[r]!));
      return {
        loss: (r) => (targets[r]! < 0 ? 0 : logError(r) + ULP * (2 * abs(maximum[r]! - picked[r]!) + log(sum[r]!))),
        lse: (i) => (i % 2 === 0 ? 0 : logError((i - 1) / 2)),
      };
    },
  }),
  row({
    kernel: crossEntropyHits,
    problems: [1, 37, 129].map((rows) => ({ rows, ignoreIndex: IGNORE })),
    // Some of the targets are the highest.
    inputs({ rows }, random) {
      const maximum = random.normals(rows);
      const picked = maximum.map((value) => (random.uniform() < 0.5 ? value : value - 1));
      return { maximum, picked, targets: targets(random, rows, 5) };
    },
    bound: () => ({ hits: exact }),
  }),
  row({
    kernel: crossEntropyBackward,
    problems: [
      { rows: 1, tile: 1, first: 0, ignoreIndex: IGNORE, softcap: 9 },
      { rows: 3, tile: 5, first: 5, ignoreIndex: IGNORE, softcap: 9 },
      { rows: 37, tile: 129, first: 65, ignoreIndex: IGNORE, softcap: 9 },
      { rows: 65, tile: 199, first: 0, ignoreIndex: IGNORE, softcap: 9 },
      { rows: 37, tile: 132, first: 65, ignoreIndex: IGNORE, softcap: 9 },
      { rows: 36, tile: 65, first: 0, ignoreIndex: IGNORE, softcap: 9 },
      { rows: 12, tile: 1, first: 1, ignoreIndex: IGNORE, softcap: 9 },
      { rows: 37, tile: 33, first: 65, ignoreIndex: IGNORE, softcap: 9 },
      { rows: 12, tile: 36, first: 0, ignoreIndex: IGNORE, softcap: 30 },
      { rows: 37, tile: 33, first: 65, ignoreIndex: IGNORE, softcap: 9, firstRow: 129 },
      { rows: 12, tile: 36, first: 0, ignoreIndex: IGNORE, softcap: 30, firstRow: 5 },
    ],
    inputs: ({ rows, tile, first, firstRow = 0 }, random) => ({
      logits: random.normals(rows * tile, 2),
      lse: Float32Array.from({ length: 2 * (firstRow + rows) }, (_, i) => (i % 2 === 0 ? 4 : 3) + random.uniform()),
      targets: targets(random, firstRow + rows, first + tile + 3),
      scale: new Float32Array([0.125]),
    }),
    bound(
      { tile, first, softcap, firstRow = 0 },
      { lse, logits, scale, targets }: Arrays<'lse' | 'logits' | 'scale' | 'targets'>,
      after: Arrays<'logits'>,
    ) {
      return {
        logits: (i) => {
          const r = firstRow + Math.floor(i / tile);
          if (targets[r]! < 0) return 0;
          const shifted = logits[i]! - lse[2 * r]!;
          const z = shifted - lse[2 * r + 1]!;
          const probabilityError = exp(z) * (expUlps(z, 1) + abs(shifted));
          // The slope is (1 - t) (1 + t), with two roundings in t and three of its own; then one more product.
          const t = abs(logits[i]! / softcap);
          const slope = 1 - t * t;
          const wanted = targets[r] === first + (i % tile) ? 1 : 0;
          const gradient = abs(exp(z) - wanted);
          const error = probabilityError * slope + gradient * (4 * t * t + 3 * slope);
          return (abs(scale[0]!) * error + 3 * abs(after.logits[i]!)) * ULP + TINY;
        },
      };
    },
  }),
];
