// y = a + b: the residual connection where no epilogue carries it, and the sum of two gradients.

import { add as addKernel } from '../../kernels/add.ts';
import { columnSum } from '../../kernels/column-sum.ts';
import { copyRows } from '../../kernels/copy-rows.ts';
import { assert } from '../../util/errors.ts';
import type { Graph } from '../graph.ts';
import type { Tensor } from '../program.ts';
import { sumRows } from './sum-rows.ts';

/** a, b of one shape -> y of that shape. */
export function add(g: Graph, a: Tensor, b: Tensor, label = 'add'): Tensor {
  assert(!a.split === !b.split, `${label}: of ${a.name} and ${b.name} this rank has a part of one alone`);
  const y = g.activation(label, a.shape, [a, b]);
  g.emit(addKernel, { size: y.size }, { a, b, y }, label);
  g.onBackward(y, (dy) => {
    // One input may take dy over; the other gets a copy, or the sum with what it has.
    if (b.wantsGradient) addGradient(g, b, dy, label);
    if (a.wantsGradient && !g.aliasGradient(a, dy)) addGradient(g, a, dy, label);
  });
  return y;
}

/** y (..., N) += row (N), in place. */
export function addRow(g: Graph, y: Tensor, row: Tensor): void {
  const width = row.size;
  const rows = y.size / width;
  const problem = { batch: rows, rows: 1, width, xRows: 0, xFirst: 0, yRows: 1, yFirst: 0, accumulate: true };
  g.emit(copyRows, problem, { x: row, y }, row.name);
  g.onBackward(y, (dy) => {
    if (!row.wantsGradient) return;
    const { gradient, accumulate } = g.gradientTarget(row);
    sumRows(g, dy, gradient, { rows, width, accumulate, inSlices: true }, row.name);
  });
}

/** Adds dy to the gradient of `tensor` (or starts it), leaving dy itself untouched. */
export function addGradient(g: Graph, tensor: Tensor, dy: Tensor, label: string): void {
  const { gradient, accumulate } = g.gradientTarget(tensor);
  const width = dy.size;
  const problem = { rows: 1, width, stride: width, offset: 0, rowsPerBlock: 1, accumulate };
  g.emit(columnSum, problem, { x: dy, y: gradient }, label);
}
