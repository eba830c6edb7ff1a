// Cross-entropy over a vocabulary that comes in tiles, so that no more than one tile of logits need exist.
// Forward: crossEntropyTile on each tile in turn (the online softmax: running maximum and sum), then
// crossEntropyLoss. Backward: the product that makes a tile of logits again ends in their gradients (matmul-epilogues.ts); capped
// ones are turned into them by crossEntropyBackward.

import backwardShader from '../../shaders/cross-entropy/backward.wgsl?raw';
import hitsShader from '../../shaders/cross-entropy/hits.wgsl?raw';
import lossShader from '../../shaders/cross-entropy/loss.wgsl?raw';
import lossGradient from '../../shaders/cross-entropy/loss_gradient.wgsl?raw';
import tileShader from '../../shaders/cross-entropy/tile.wgsl?raw';
import { type Arrays, type Kernel, type RowCut, read, update, write } from './kernel.ts';
import { lanesOf, perElem, perItem, perRow } from './variants.ts';

export interface CrossEntropyTileProblem {
  rows: number;
  /** Columns of this tile: the vocabulary's first..first + tile - 1. */
  tile: number;
  first: number;
  /** The first tile of a pass starts the statistics, the others continue them. */
  begin: boolean;
  /** Logits are there for the rows from this one on; targets and statistics for those before it, too. @default 0 */
  firstRow?: number;
  /** Of a part, the rows of the whole: a row is summed in the order that it has there. @default it is the whole */
  ofRows?: number;
}

/** Of logits alone: the rest is there for the rows before, too. */
function cutLogits<P extends { rows: number; tile: number; firstRow?: number }>(
  p: P,
  rows: number,
): RowCut<P> | undefined {
  if (p.rows !== rows) return undefined;
  const { firstRow = 0 } = p;
  const part = (first: number, count: number): P => ({
    ...{ ...p, rows: count },
    ...(first > 0 && { firstRow: firstRow + first }),
  });
  return { unit: 1, strides: { logits: p.tile }, firstRow, part };
}

/** logits (rows, tile), targets (firstRow + rows) -> maximum, sum, picked (firstRow + rows). */
export const crossEntropyTile: Kernel<CrossEntropyTileProblem> = {
  name: 'crossEntropyTile',
  operands: ({ rows, tile, begin, firstRow = 0 }) => {
    const all = firstRow + rows;
    const statistic = begin && firstRow === 0 ? write(all) : update(all);
    return {
      logits: read(rows * tile),
      targets: read(all, 'i32'),
      maximum: statistic,
      sum: statistic,
      picked: statistic,
    };
  },
  affectsSpeed: { rows: true, tile: true, first: false, begin: false, firstRow: false, ofRows: false },
  variants: perRow(
    tileShader,
    ({ tile }) => tile,
    // Parts begin at multiples of four rows: where the whole is loaded by fours, they are, too.
    ({ rows, tile, ofRows = rows }) => lanesOf(ofRows * tile),
    ({ begin, firstRow = 0, ofRows: _, ...problem }) => ({ ...problem, begin: Number(begin), firstRow }),
  ),
  rows(problem, rows) {
    const cut = cutLogits(problem, rows);
    return cut && { ...cut, part: (first, count) => ({ ofRows: rows, ...cut.part(first, count) }) };
  },
  flops: ({ rows, tile }) => rows * tile * 4,
  reference(
    { rows, tile, first, begin, firstRow = 0 },
    { logits, targets, maximum, sum, picked }: Arrays<'logits' | 'targets' | 'maximum' | 'sum' | 'picked'>,
  ) {
    for (let r = firstRow; r < firstRow + rows; r++) {
      const row = logits.subarray((r - firstRow) * tile, (r - firstRow + 1) * tile);
      const old = begin ? -Infinity : maximum[r]!;
      const top = row.reduce((a, b) => Math.max(a, b), old);
      const carried = begin ? 0 : sum[r]! * Math.exp(old - top);
      maximum[r] = top;
      sum[r] = row.reduce((total, logit) => total + Math.exp(logit - top), carried);
      const c = targets[r]! - first;
      if (c >= 0 && c < tile) picked[r] = row[c]!;
      else if (begin) picked[r] = 0;
    }
  },
};

export interface CrossEntropyLossProblem {
  rows: number;
  ignoreIndex: number;
}

/** maximum, sum, picked, targets (rows) -> loss (rows), lse (rows, 2): the terms maximum and log(sum). */
export const crossEntropyLoss: Kernel<CrossEntropyLossProblem> = {
  name: 'crossEntropyLoss',
  operands: ({ rows }) => ({
    maximum: read(rows),
    sum: read(rows),
    picked: read(rows),
    targets: read(rows, 'i32'),
    loss: write(rows),
    lse: write(rows * 2),
  }),
  affectsSpeed: { rows: true, ignoreIndex: false },
  variants: perItem(
    lossShader,
    ({ rows }) => rows,
    (problem) => ({ ...problem }),
  ),
  flops: ({ rows }) => rows * 3,
  reference(
    { rows, ignoreIndex },
    { maximum, sum, picked, targets, loss, lse }: Arrays<'maximum' | 'sum' | 'picked' | 'targets' | 'loss' | 'lse'>,
  ) {
    for (let r = 0; r < rows; r++) {
      lse[2 * r] = maximum[r]!;
      lse[2 * r + 1] = Math.log(sum[r]!);
      loss[r] = targets[r] === ignoreIndex ? 0 : maximum[r]! + Math.log(sum[r]!) - picked[r]!;
    }
  },
};

/** maximum, picked, targets (rows) -> hits (rows): 1 where no logit is above the target's. */
export const crossEntropyHits: Kernel<CrossEntropyLossProblem> = {
  name: 'crossEntropyHits',
  operands: ({ rows }) => ({ maximum: read(rows), picked: read(rows), targets: read(rows, 'i32'), hits: write(rows) }),
  affectsSpeed: { rows: true, ignoreIndex: false },
  variants: perItem(
    hitsShader,
    ({ rows }) => rows,
    (problem) => ({ ...problem }),
  ),
  flops: () => 0,
  reference(
    { rows, ignoreIndex },
    { maximum, picked, targets, hits }: Arrays<'maximum' | 'picked' | 'targets' | 'hits'>,
  ) {
    for (let r = 0; r < rows; r++) hits[r] = Number(targets[r] !== ignoreIndex && picked[r]! >= maximum[r]!);
  },
};

export interface CrossEntropyBackwardProblem {
  rows: number;
  tile: number;
  first: number;
  ignoreIndex: number;
  /** The logits are softcap * tanh(z / softcap), and what is wanted is the gradient of z. */
  softcap: number;
  /** Logits are there for the rows from this one on; all else for those before it, too. @default 0 */
  firstRow?: number;
}

/** lse (firstRow + rows, 2), targets (firstRow + rows), scale (1) -> logits (rows, tile) become d(scale * sum of losses)/d(logits, uncapped). */
export const crossEntropyBackward: Kernel<CrossEntropyBackwardProblem> = {
  name: 'crossEntropyBackward',
  operands: ({ rows, tile, firstRow = 0 }) => ({
    lse: read((firstRow + rows) * 2),
    targets: read(firstRow + rows, 'i32'),
    scale: read(1),
    logits: update(rows * tile),
  }),
  affectsSpeed: { rows: true, tile: true, first: false, ignoreIndex: false, softcap: false, firstRow: false },
  variants: perElem(
    backwardShader + lossGradient,
    ({ rows, tile }) => lanesOf(rows * tile),
    ({ rows, tile }, lanes) => (rows * tile) / lanes,
    ({ softcap, firstRow = 0, ...problem }) => {
      return { ...problem, inverseCap: 1 / softcap, firstRow };
    },
  ),
  rows: cutLogits,
  flops: ({ rows, tile }) => rows * tile * 4,
  reference(
    { rows, tile, first, ignoreIndex, softcap, firstRow = 0 },
    { lse, targets, scale, logits }: Arrays<'lse' | 'targets' | 'scale' | 'logits'>,
  ) {
    for (let r = firstRow; r < firstRow + rows; r++) {
      for (let c = 0; c < tile; c++) {
        const i = (r - firstRow) * tile + c;
        const probability = Math.exp(logits[i]! - lse[2 * r]! - lse[2 * r + 1]!);
        const wanted = targets[r] === first + c ? 1 : 0;
        logits[i] =
          targets[r] === ignoreIndex ? 0 : (probability - wanted) * scale[0]! * (1 - (logits[i]! / softcap) ** 2);
      }
    }
  },
};
