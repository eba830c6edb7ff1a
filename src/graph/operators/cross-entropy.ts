// The head and the cross-entropy, fused and tiled over the vocabulary: logits exist one tile at a time, so
// the (B*T, V) matrix never exists whole. Forward keeps the logsumexp of each row; backward makes each tile
// of logits anew and turns it into its gradient in place. The tiling depends on V alone.

import { crossEntropyBackward, crossEntropyLoss, crossEntropyTile } from '../../kernels/cross-entropy.ts';
import { ceilDiv } from '../../kernels/kernel.ts';
import { matmul } from '../../kernels/matmul.ts';
import { at } from '../../util/at.ts';
import type { Graph, Tensor } from '../graph.ts';
import { sumRows } from './sum-rows.ts';

/** The label that takes no part in the loss. */
export const IGNORE_INDEX = -100;

const LEAST_TILES = 2;
const MOST_TILE = 8192;

/** Vocabulary columns a tile: at least 2 tiles, about 128 columns for small vocabularies, at most 8192. */
export function vocabularyTile(vocabulary: number): number {
  const tiles = Math.max(LEAST_TILES, Math.min(8, ceilDiv(vocabulary, 128)), ceilDiv(vocabulary, MOST_TILE));
  return ceilDiv(vocabulary, tiles);
}

/** Where the loss goes, and what its gradient is multiplied by. */
export interface LossOutput {
  /** (1) the sum of the losses of all valid targets; added to when `accumulate`. */
  sum: Tensor;
  accumulate: boolean;
  /** (1) the scale of the gradient: 1 / valid targets of the whole step. Absent: no backward pass. */
  scale?: Tensor;
}

/** What turns hidden states into logits. */
export interface Head {
  /** (V, C) */
  weight: Tensor;
  /** Logits are softcap * tanh(x weight^T / softcap). @default x weight^T */
  softcap?: number | undefined;
}

/** The end of the product that makes logits: nothing, or their cap. */
const finish = ({ softcap }: Head) => (softcap === undefined ? {} : ({ epilogue: 'softcap', scale: softcap } as const));

/** x (..., C), targets (...) i32, IGNORE_INDEX where there is none -> the sum of -log softmax(logits)[target] over the valid targets. */
export function crossEntropyHead(g: Graph, x: Tensor, head: Head, targets: Tensor, output: LossOutput): void {
  const { weight, softcap } = head;
  const [vocabulary, width] = weight.shape as [number, number];
  const rows = x.size / width;
  const tile = vocabularyTile(vocabulary);
  const label = `head ${weight.name}`;
  const scratch = (name: string) => g.activation(`${label} ${name}`, [rows]);
  const statistics = { maximum: scratch('maximum'), sum: scratch('sum'), picked: scratch('picked') };
  const loss = scratch('loss');
  const lse = g.activation(`${label} lse`, [rows, 2]);

  const logitsOf = (first: number): Tensor => {
    const columns = Math.min(tile, vocabulary - first);
    const logits = g.activation(`${label} logits from ${first}`, [rows, columns]);
    const problem = { layout: 'NT', M: rows, N: columns, K: width, bOffset: first * width, ...finish(head) } as const;
    g.emit(matmul, problem, { a: x, b: weight, c: logits }, label);
    return logits;
  };

  for (let first = 0; first < vocabulary; first += tile) {
    const logits = logitsOf(first);
    const problem = { rows, tile: at(logits.shape, 1), first, begin: first === 0 };
    g.emit(crossEntropyTile, problem, { logits, targets, ...statistics }, label);
  }
  g.emit(crossEntropyLoss, { rows, ignoreIndex: IGNORE_INDEX }, { ...statistics, targets, loss, lse }, label);
  sumRows(g, loss, output.sum, { rows, width: 1, accumulate: output.accumulate }, label);

  const { scale } = output;
  if (!scale) return;
  g.onBackwardOfLoss(() => {
    const dweight = weight.wantsGradient ? g.gradientTarget(weight) : undefined;
    for (let first = 0; first < vocabulary; first += tile) {
      const dlogits = logitsOf(first);
      const columns = at(dlogits.shape, 1);
      const cap = softcap === undefined ? {} : { softcap };
      const problem = { rows, tile: columns, first, ignoreIndex: IGNORE_INDEX, ...cap };
      g.emit(crossEntropyBackward, problem, { lse, targets, scale, logits: dlogits }, label);
      if (dweight) {
        // Each tile owns its rows of the gradient: all add to what was there before, or none does.
        const { gradient, accumulate } = dweight;
        const rowsOfTile = { cOffset: first * width, accumulate, partial: first > 0 };
        const problem = { layout: 'TN', M: columns, N: width, K: rows, ...rowsOfTile } as const;
        g.emit(matmul, problem, { a: dlogits, b: x, c: gradient }, label);
      }
      if (x.wantsGradient) {
        const { gradient, accumulate } = g.gradientTarget(x);
        const problem = { layout: 'NN', M: rows, N: width, K: columns, bOffset: first * width, accumulate } as const;
        g.emit(matmul, problem, { a: dlogits, b: weight, c: gradient }, label);
      }
    }
  });
}

/** x (..., C) -> logits of the rows from `firstRow` on, (rows, V): where few rows are wanted. */
export function logits(g: Graph, x: Tensor, head: Head, output: Tensor, firstRow = 0): void {
  const { weight } = head;
  const [vocabulary, width] = weight.shape as [number, number];
  const M = x.size / width - firstRow;
  const problem = { layout: 'NT', M, N: vocabulary, K: width, aOffset: firstRow * width, ...finish(head) } as const;
  g.emit(matmul, problem, { a: x, b: weight, c: output }, `head ${weight.name}`);
}
