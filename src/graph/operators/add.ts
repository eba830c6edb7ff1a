// y = a + b: the residual connection where no epilogue carries it, and the sum of two gradients.

import { add as addKernel } from '../../kernels/add.ts';
import { columnSum } from '../../kernels/column-sum.ts';
import type { Graph, Tensor } from '../graph.ts';

/** a, b of one shape -> y of that shape. */
export function add(g: Graph, a: Tensor, b: Tensor, label = 'add'): Tensor {
  const y = g.activation(label, a.shape, [a, b]);
  g.emit(addKernel, { size: y.size }, { a, b, y }, label);
  g.onBackward(y, (dy) => {
    // One input may take dy over; the other gets a copy, or the sum with what it has.
    if (b.wantsGradient) addGradient(g, b, dy, label);
    if (a.wantsGradient && !g.aliasGradient(a, dy)) addGradient(g, a, dy, label);
  });
  return y;
}

/** Adds dy to the gradient of `tensor` (or starts it), leaving dy itself untouched. */
export function addGradient(g: Graph, tensor: Tensor, dy: Tensor, label: string): void {
  const { gradient, accumulate } = g.gradientTarget(tensor);
  const width = dy.size;
  const problem = { rows: 1, width, stride: width, offset: 0, rowsPerBlock: 1, accumulate };
  g.emit(columnSum, problem, { x: dy, y: gradient }, label);
}
