// The head and the cross-entropy, fused and tiled over the vocabulary, and over rows where there are many: logits exist one
// tile at a time, so the (B*T, V) matrix never exists whole. Forward keeps the logsumexp of each row; backward makes each
// tile of logits anew, by a product that ends in their gradient. The tiling depends on V and B*T alone: a row's softmax is its
// own, and the weight's gradient adds up over the rows in their order, so that the bits are those of all rows at once.

import { fill } from '../../kernels/add.ts';
import { copyRows } from '../../kernels/copy-rows.ts';
import {
  crossEntropyBackward,
  crossEntropyHits,
  crossEntropyLoss,
  crossEntropyTile,
} from '../../kernels/cross-entropy.ts';
import { matmul } from '../../kernels/matmul.ts';
import type { MatmulProblem } from '../../kernels/matmul-problem.ts';
import { assert, HoldfastError } from '../../util/errors.ts';
import type { Graph } from '../graph.ts';
import type { Tensor, TensorSplit } from '../program.ts';
import { MOST_LOGIT_TILES, mostRows, rowTile, vocabularyTile } from './head-tiles.ts';
import { sumRows } from './sum-rows.ts';
import { checkWhole, columnsInput } from './tensor-parallel.ts';

/** The label that takes no part in the loss. */
export const IGNORE_INDEX = -100;

/** Where the loss goes, and what its gradient is multiplied by. */
export interface LossOutput {
  /** (1) the sum of the losses of all valid targets; added to when `accumulate`. */
  sum: Tensor;
  accumulate: boolean;
  /** (1) the number of valid targets whose logit is the highest; added to when `accumulate`. Absent: they are not counted. */
  hits?: Tensor | undefined;
  /** (rows) of each target, 1 where it is valid and its logit is the highest, else 0. Absent: not told. */
  hitsOfRows?: Tensor | undefined;
  /** (1) the scale of the gradient: 1 / valid targets of the whole step. Absent: no backward pass. */
  scale?: Tensor;
}

/** What turns hidden states into logits. */
export interface Head {
  /** (V, C) */
  weight: Tensor;
  /** (V): added to the product. @default nothing is */
  bias?: Tensor | undefined;
  /** Logits are softcap * tanh(x weight^T / softcap), without a bias. @default x weight^T */
  softcap?: number | undefined;
}

/** How a product that makes logits ends. */
type End = Pick<MatmulProblem, 'epilogue' | 'scale' | 'biasOffset' | 'firstRow' | 'firstLabel' | 'ignoreIndex'>;

/** The end of the product that makes logits, of the columns from `first` on: nothing, their bias, or their cap. */
function finish({ bias, softcap }: Head, first: number): End {
  assert(!bias || softcap === undefined, 'a head with a bias has no cap');
  if (bias) return { epilogue: 'bias', ...(first > 0 && { biasOffset: first }) };
  return softcap === undefined ? {} : { epilogue: 'softcap', scale: softcap };
}

/**
 * hidden (..., C), targets (...) i32, IGNORE_INDEX where there is none -> the sum of -log softmax(logits)[target] over the valid
 * targets. Errors: HoldfastError for more rows than MOST_LOGIT_TILES tiles of logits have.
 */
export function crossEntropyHead(g: Graph, hidden: Tensor, head: Head, targets: Tensor, output: LossOutput): void {
  const { weight, bias, softcap } = head;
  const x = columnsInput(g, hidden, weight);
  const { split } = weight;
  // Of those here: each of several ranks may have a part of the vocabulary.
  const [held, width] = weight.shape as [number, number];
  const vocabulary = held - (split?.unused ?? 0);
  const start = split ? split.rank * held : 0;
  const rows = x.size / width;
  checkWhole(x, weight.name);
  if (rows > mostRows(held))
    throw new HoldfastError(
      `a batch of ${rows} tokens: over a vocabulary of ${vocabulary} its logits have more than ${MOST_LOGIT_TILES} tiles, each of ` +
        `them several operators; use at most ${mostRows(held)} tokens at once`,
    );
  const tile = vocabularyTile(held);
  const most = rowTile(rows, tile);
  const label = `head ${weight.name}`;
  const scratch = (name: string) => g.activation(`${label} ${name}`, [rows]);
  const statistics = { maximum: scratch('maximum'), sum: scratch('sum'), picked: scratch('picked') };
  const loss = scratch('loss');
  const lse = g.activation(`${label} lse`, [rows, 2]);

  /** Each tile in turn. */
  const eachTile = (use: (tile: LogitsTile) => void) => {
    for (let first = 0; first < vocabulary; first += tile) {
      g.layer(`${label} from ${first}`, () => eachRowTile(first, use));
    }
  };
  const eachRowTile = (first: number, use: (tile: LogitsTile) => void) => {
    const columns = Math.min(tile, vocabulary - first);
    for (let firstRow = 0; firstRow < rows; firstRow += most) {
      const M = Math.min(most, rows - firstRow);
      use({ rows: M, tile: columns, first, ...(firstRow > 0 && { firstRow }) });
    }
  };
  /** The product that makes a tile of logits, and its end. */
  const product = (part: LogitsTile, end: End, operands: Readonly<Record<string, Tensor>> = {}): Tensor => {
    const { rows: M, tile: columns, first, firstRow = 0 } = part;
    const of = `from ${first}${firstRow > 0 ? `, row ${firstRow}` : ''}`;
    const made = g.activation(`${label} logits ${of}`, [M, columns]);
    const offsets = { bOffset: first * width, ...(firstRow > 0 && { aOffset: firstRow * width }) };
    const problem = { layout: 'NT', M, N: columns, K: width, ...offsets, ...end } as const;
    g.emit(matmul, problem, { a: x, b: weight, c: made, ...(bias && { bias }), ...operands }, label);
    return made;
  };

  eachTile((part) => {
    const logits = product(part, finish(head, part.first));
    const ofRows = part.rows < rows && { ofRows: rows };
    const problem = { ...part, ...ofRows, first: start + part.first, begin: part.first === 0 };
    g.emit(crossEntropyTile, problem, { logits, targets, ...statistics }, label);
  });
  const all = split ? overRanks(g, statistics, targets, split, label) : statistics;
  g.emit(crossEntropyLoss, { rows, ignoreIndex: IGNORE_INDEX }, { ...all, targets, loss, lse }, label);
  sumRows(g, loss, output.sum, { rows, width: 1, accumulate: output.accumulate }, label);

  if (output.hits || output.hitsOfRows) {
    assert(!split, 'what is told right is counted where the head is whole');
    const hits = output.hitsOfRows ?? scratch('hits');
    const { maximum, picked } = statistics;
    g.emit(crossEntropyHits, { rows, ignoreIndex: IGNORE_INDEX }, { maximum, picked, targets, hits }, label);
    if (output.hits) sumRows(g, hits, output.hits, { rows, width: 1, accumulate: output.accumulate }, label);
  }

  const { scale } = output;
  if (!scale) return;
  const gradientOfLogits = (part: LogitsTile): Tensor => {
    const { first, firstRow = 0 } = part;
    const end = finish(head, first);
    const firstLabel = start + first;
    if (softcap === undefined) {
      const epilogue = bias ? 'biasCrossEntropy' : 'crossEntropy';
      const labels = { ignoreIndex: IGNORE_INDEX, firstLabel, ...(firstRow > 0 && { firstRow }) };
      return product(part, { ...end, epilogue, ...labels }, { lse, targets, gradientScale: scale });
    }
    const logits = product(part, end);
    const problem = { ...part, first: firstLabel, ignoreIndex: IGNORE_INDEX, softcap };
    g.emit(crossEntropyBackward, problem, { lse, targets, scale, logits }, label);
    return logits;
  };
  g.onBackwardOfLoss(() => {
    const dweight = weight.wantsGradient ? gradientOf(g, weight) : undefined;
    const dbias = bias?.wantsGradient ? gradientOf(g, bias) : undefined;
    const dx = x.wantsGradient ? g.gradientTarget(x) : undefined;
    eachTile((part) => {
      const { rows: M, tile: columns, first, firstRow = 0 } = part;
      const dlogits = gradientOfLogits(part);
      if (dweight) {
        // Each tile owns its rows of the gradient: all add to what was there before, or none does.
        const accumulate = dweight.accumulate || firstRow > 0;
        const rowsOfTile = { cOffset: first * width, accumulate, partial: first > 0 };
        const offset = firstRow > 0 ? { bOffset: firstRow * width } : {};
        const problem = { layout: 'TN', M: columns, N: width, K: M, ...rowsOfTile, ...offset } as const;
        g.emit(matmul, problem, { a: dlogits, b: x, c: dweight.gradient }, label);
      }
      if (dbias) {
        const accumulate = dbias.accumulate || firstRow > 0;
        sumRows(g, dlogits, dbias.gradient, { rows: M, width: columns, into: first, accumulate }, label);
      }
      if (dx) {
        const accumulate = dx.accumulate || first > 0;
        const offsets = { bOffset: first * width, ...(firstRow > 0 && { cOffset: firstRow * width }) };
        const part = M < rows ? { partial: true } : {};
        const problem = { layout: 'NN', M, N: width, K: columns, ...offsets, accumulate, ...part } as const;
        g.emit(matmul, problem, { a: dlogits, b: weight, c: dx.gradient }, label);
      }
    });
  });
}

/** What is of no token has no gradient: no tile writes it. */
function gradientOf(g: Graph, weight: Tensor): ReturnType<Graph['gradientTarget']> {
  const target = g.gradientTarget(weight);
  // On all ranks: their programs are alike.
  if (target.accumulate || weight.split?.unused === undefined) return target;
  g.emit(fill, { size: weight.size, value: 0 }, { y: target.gradient }, weight.name);
  return { ...target, accumulate: true };
}

/** Of each row of logits: the highest, the sum of exp(logit - highest), and the target's. */
interface Statistics {
  readonly maximum: Tensor;
  readonly sum: Tensor;
  readonly picked: Tensor;
}

/**
 * The statistics over the vocabulary of all ranks, of those over the part that each has: what they have as logsumexp is to the
 * whole as logits are.
 */
function overRanks(
  g: Graph,
  own: Statistics,
  targets: Tensor,
  { ranks, rank }: TensorSplit,
  label: string,
): Statistics {
  const rows = own.sum.size;
  const scratch = (name: string, shape: readonly number[] = [rows]) => g.activation(`${label} ${name}`, shape);
  const none = scratch('no target');
  g.emit(fill, { size: rows, value: 0 }, { y: none }, label);
  const here = scratch('logsumexp of this rank');
  const terms = scratch('its terms', [rows, 2]);
  const problem = { rows, ignoreIndex: IGNORE_INDEX };
  g.emit(crossEntropyLoss, problem, { ...own, picked: none, targets, loss: here, lse: terms }, label);
  const each = scratch('logsumexp of each rank', [rows, ranks]);
  g.emit(fill, { size: each.size, value: 0 }, { y: each }, label);
  const column = { batch: rows, rows: 1, width: 1, xRows: 1, xFirst: 0, yRows: ranks, yFirst: rank, partial: true };
  g.emit(copyRows, column, { x: here, y: each }, label);
  g.emitAllReduce(each, ranks, `${label} logsumexp`);
  // It is 0 on all ranks but one.
  g.emitAllReduce(own.picked, ranks, `${label} picked`);
  const [maximum, sum] = [scratch('maximum of all'), scratch('sum of all')];
  // No target is a rank.
  const tile = { rows, tile: ranks, first: NO_TARGET, begin: true };
  g.emit(crossEntropyTile, tile, { logits: each, targets, maximum, sum, picked: none }, label);
  return { maximum, sum, picked: own.picked };
}

/** Above every token. */
const NO_TARGET = 2 ** 30;

/** Of logits: the rows and columns that there are. */
interface LogitsTile {
  readonly rows: number;
  /** Columns, the first of them, and the first row. */
  readonly tile: number;
  readonly first: number;
  readonly firstRow?: number;
}

/** x (..., C) -> logits of the rows from `firstRow` on, (rows, V): where few rows are wanted. */
export function logits(g: Graph, x: Tensor, head: Head, output: Tensor, firstRow = 0): void {
  const { weight, bias } = head;
  const { split } = weight;
  const label = `head ${weight.name}`;
  const [held, width] = weight.shape as [number, number];
  const vocabulary = held - (split?.unused ?? 0);
  const M = x.size / width - firstRow;
  const problem = { layout: 'NT', M, N: vocabulary, K: width, aOffset: firstRow * width, ...finish(head, 0) } as const;
  const here = split ? g.activation(`${label} logits here`, [M, vocabulary]) : output;
  g.emit(matmul, problem, { a: x, b: weight, c: here, ...(bias && { bias }) }, label);
  if (!split) return;
  const { ranks, rank } = split;
  const columns = {
    ...{ batch: M, rows: vocabulary, width: 1, xRows: vocabulary, xFirst: 0 },
    ...{ yRows: output.size / M, yFirst: rank * held, partial: true },
  };
  g.emit(fill, { size: output.size, value: 0 }, { y: output }, label);
  g.emit(copyRows, columns, { x: here, y: output }, label);
  g.emitAllReduce(output, ranks, label);
}
