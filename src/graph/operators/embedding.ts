// Token embedding, with learned positions added where the model has them. The gradient of the table is a
// scatter without atomics: the batch comes with its rows grouped by token (`tokenIndex` in the kernel file).

import { fill } from '../../kernels/add.ts';
import { copyRows } from '../../kernels/copy-rows.ts';
import {
  embeddingBackward,
  embedding as embeddingKernel,
  positionBackward,
  positionEmbedding,
} from '../../kernels/embedding.ts';
import { at } from '../../util/at.ts';
import type { Graph } from '../graph.ts';
import { makeTensor, type Tensor } from '../program.ts';
import { ownRows } from './tensor-parallel.ts';

/** One micro-batch of tokens, as the program sees it: B sequences of T tokens. */
export interface Tokens {
  readonly batch: number;
  readonly seq: number;
  /** (B, T) token ids. */
  readonly ids: Tensor;
  /** (1) position of the first column: 0 in training. */
  readonly position: Tensor;
  /** The position of the first column by sequence, (1) each, where several texts are written at once. @default `position` for all */
  readonly positions?: readonly Tensor[];
  /** The distinct ids (B*T), where each one's rows start (B*T + 1), and the rows (B*T). */
  readonly index: { readonly tokens: Tensor; readonly starts: Tensor; readonly order: Tensor };
}

/** `name` is of the ids. */
export function makeTokens(batch: number, seq: number, name = 'ids'): Tokens {
  const input = (name: string, size: number[], type: 'i32' | 'u32') => makeTensor(name, size, 'persistent', type);
  return {
    batch,
    seq,
    ids: input(name, [batch, seq], 'i32'),
    position: input('position', [1], 'u32'),
    index: {
      tokens: input('index tokens', [batch * seq], 'u32'),
      starts: input('index starts', [batch * seq + 1], 'u32'),
      order: input('index order', [batch * seq], 'u32'),
    },
  };
}

export interface EmbeddingOptions {
  /** (S, C): learned positions. @default none */
  positionWeight?: Tensor;
  /** What the tokens' rows are multiplied by. @default 1 */
  scale?: number | undefined;
}

/** tokens (B, T), weight (V, C) -> (B, T, C). */
export function embedding(g: Graph, tokens: Tokens, weight: Tensor, options: EmbeddingOptions = {}): Tensor {
  const { positionWeight, scale } = options;
  const { batch, seq, ids, position, index } = tokens;
  const { split } = weight;
  const [own, width] = weight.shape as [number, number];
  const vocabulary = own * (split?.ranks ?? 1);
  const rows = batch * seq;
  const positions = positionWeight ? at(positionWeight.shape, 0) : 0;
  const sources = positionWeight ? [weight, positionWeight] : [weight];
  const all = g.activation('embed', [batch, seq, width], sources);
  const here = split && { firstRow: split.rank * own, rowCount: own };
  const table = { rows, width, vocabulary, ...here, ...(scale !== undefined && { scale }) };
  // The row of a token is on one of several ranks, and 0 on the others.
  if (split) g.emit(fill, { size: all.size, value: 0 }, { y: all }, weight.name);
  g.emit(embeddingKernel, table, { ids, weight, y: all }, weight.name);
  const y = g.rows ? ownRows(g, 'embed', all, sources) : all;
  const ownOfAll = g.rows && {
    ...{ batch: 1, rows: rows / g.rows.ranks, width, yRows: rows / g.rows.ranks, yFirst: 0 },
    ...{ xRows: rows, xFirst: (g.rows.rank * rows) / g.rows.ranks },
  };
  if (g.rows && split) g.emitRows('scatter-rows', all, y, g.rows.ranks, weight.name);
  else if (ownOfAll) g.emit(copyRows, ownOfAll, { x: all, y }, weight.name);
  else if (split) g.emitAllReduce(y, split.ranks, weight.name);
  if (positionWeight) {
    const problem = { rows, seq, width, positions };
    if (ownOfAll) g.emit(fill, { size: all.size, value: 0 }, { y: all }, positionWeight.name);
    g.emit(positionEmbedding, problem, { position, positionWeight, y: all }, positionWeight.name);
    if (ownOfAll) g.emit(copyRows, { ...ownOfAll, accumulate: true }, { x: all, y }, positionWeight.name);
  }

  g.onBackward(y, (down) => {
    const dy = g.rows ? g.activation('d embed of all rows', all.shape) : down;
    if (g.rows) g.emitRows('gather-rows', dy, down, g.rows.ranks, 'd embed');
    if (weight.wantsGradient) {
      const { gradient, accumulate } = g.gradientTarget(weight);
      if (!accumulate) g.emit(fill, { size: weight.size, value: 0 }, { y: gradient }, weight.name);
      const operands = { ...index, dy, dweight: gradient };
      g.emit(embeddingBackward, table, operands, weight.name);
    }
    if (positionWeight?.wantsGradient) {
      const { gradient, accumulate } = g.gradientTarget(positionWeight);
      const problem = { batch, seq, width, positions, accumulate };
      g.emit(positionBackward, problem, { dy, dweight: gradient }, positionWeight.name);
    }
  });
  return y;
}
