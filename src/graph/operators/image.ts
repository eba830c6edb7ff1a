// Images as sequences, and sequences as one row: patches, the class token and its place in front, learned positions in one
// table for all of them, and the first row that stands for the whole.

import { fill } from '../../kernels/add.ts';
import { copyRows } from '../../kernels/copy-rows.ts';
import { positionBackward, positionEmbedding } from '../../kernels/embedding.ts';
import { patches } from '../../kernels/patches.ts';
import { at } from '../../util/at.ts';
import type { Graph } from '../graph.ts';
import type { Tensor } from '../program.ts';
import { sumRows } from './sum-rows.ts';

/** Rows and columns of a patch. */
export type PatchSize = readonly [height: number, width: number];

/** pixels (B, channels, height, width) -> (B, patches, channels * patch): row by row, in the order of channels, rows, columns. */
export function patchRows(g: Graph, pixels: Tensor, [patchHeight, patchWidth]: PatchSize): Tensor {
  const [batch, channels, height, width] = pixels.shape as [number, number, number, number];
  const count = (height / patchHeight) * (width / patchWidth);
  const y = g.activation('patches', [batch, count, channels * patchHeight * patchWidth]);
  g.emit(patches, { batch, channels, height, width, patchHeight, patchWidth }, { pixels, y }, 'patches');
  return y;
}

/** rows (B, T, C), first (1, 1, C), positions (1, T + 1, C) -> (B, T + 1, C); `position` (1) holds 0. */
export function withFirstRow(g: Graph, rows: Tensor, first: Tensor, positions: Tensor, position: Tensor): Tensor {
  const [batch, count, width] = rows.shape as [number, number, number];
  const seq = count + 1;
  const y = g.activation('embed', [batch, seq, width], [rows, first, positions]);
  const behind = { batch, rows: count, width };
  const all = { yRows: seq, yFirst: 1 };
  g.emit(copyRows, { ...behind, xRows: count, xFirst: 0, ...all }, { x: rows, y }, first.name);
  const front = { batch, rows: 1, width, xRows: 0, xFirst: 0, yRows: seq, yFirst: 0, partial: true };
  g.emit(copyRows, front, { x: first, y }, first.name);
  const table = { rows: batch * seq, seq, width, positions: seq };
  g.emit(positionEmbedding, table, { position, positionWeight: positions, y }, positions.name);
  g.onBackward(y, (dy) => {
    if (positions.wantsGradient) {
      const { gradient, accumulate } = g.gradientTarget(positions);
      const problem = { batch, seq, width, positions: seq, accumulate };
      g.emit(positionBackward, problem, { dy, dweight: gradient }, positions.name);
    }
    if (first.wantsGradient) {
      const { gradient, accumulate } = g.gradientTarget(first);
      sumRows(g, dy, gradient, { rows: batch, width, stride: seq * width, accumulate }, first.name);
    }
    if (rows.wantsGradient) {
      const { gradient, accumulate } = g.gradientTarget(rows);
      const problem = { ...behind, xRows: seq, xFirst: 1, yRows: count, yFirst: 0, accumulate };
      g.emit(copyRows, problem, { x: dy, y: gradient }, first.name);
    }
  });
  return y;
}

/** x (B, T, C) -> (B, C): the first row of each. */
export function firstRow(g: Graph, x: Tensor, label: string): Tensor {
  const [batch, seq] = x.shape as [number, number];
  const width = at(x.shape, 2);
  const y = g.activation(label, [batch, width], [x]);
  const one = { batch, rows: 1, width };
  g.emit(copyRows, { ...one, xRows: seq, xFirst: 0, yRows: 1, yFirst: 0 }, { x, y }, label);
  g.onBackward(y, (dy) => {
    const { gradient, accumulate } = g.gradientTarget(x);
    if (!accumulate) g.emit(fill, { size: x.size, value: 0 }, { y: gradient }, label);
    const problem = { ...one, xRows: 1, xFirst: 0, yRows: seq, yFirst: 0, accumulate, partial: true };
    g.emit(copyRows, problem, { x: dy, y: gradient }, label);
  });
  return y;
}
