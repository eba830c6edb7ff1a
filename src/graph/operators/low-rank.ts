// The low-rank update of a linear layer (Adapter of graph.ts), as the parts that linear.ts puts around its own products.
//
// The update is written first, and the product with W goes on from there: so every epilogue of that product serves, and
// with B = 0 it starts from the zeros that it would start from alone, hence with the same bits. Of the forward pass only
// x A^T is kept, r wide, and where there is dropout what it left of x.

import { type DropoutInPlaceProblem, dropoutInPlace, dropout as dropoutKernel } from '../../kernels/dropout.ts';
import { matmul } from '../../kernels/matmul.ts';
import { at } from '../../util/at.ts';
import type { Adapter, Dropout, Graph } from '../graph.ts';
import type { Tensor } from '../program.ts';

/** Columns of a packed tensor: `width` a row, the adapter's from `column` on. */
interface Columns {
  M: number;
  column: number;
  width: number;
}

/** What the forward pass leaves for the backward pass. */
export interface Low {
  readonly adapter: Adapter;
  /** What A was multiplied with: x, or what dropout left of it. */
  readonly input: Tensor;
  /** (M, r) scale * input A^T. */
  readonly product: Tensor;
}

/** The gradient of `product` before its scale, and how often the adapter has read x itself. */
export interface LowGradient {
  readonly adapter: Adapter;
  readonly gradient: Tensor;
  readonly uses: number;
}

/** What may require a gradient where a product takes this weight. */
export function trainedOf(g: Graph, weight: Tensor): Tensor[] {
  const adapter = g.adapterOf(weight);
  return adapter ? [weight, adapter.a, adapter.b] : [weight];
}

/** y = scale (drop(x) A^T) B^T, into the adapter's columns; `partial`: others of y are there already. */
export function adapterForward(
  g: Graph,
  x: Tensor,
  y: Tensor,
  adapter: Adapter | undefined,
  { M, column, width, partial }: Columns & { partial: boolean },
): Low | undefined {
  if (!adapter) return undefined;
  const { a, b, scale, dropout } = adapter;
  const [r, K] = a.shape as [number, number];
  const [N] = b.shape as [number, number];
  const input = dropout ? g.activation(`${a.name} dropout`, x.shape, [x]) : x;
  if (dropout) drop(g, x, input, dropout, false, a);
  // Of rows of A, this rank's part of the sum: y is summed over ranks as a whole.
  const { split: _, ...product } = g.activation(a.name, [M, r], [x, a]);
  g.emit(matmul, { layout: 'NT', M, N: r, K, epilogue: 'scale', scale }, { a: input, b: a, c: product }, a.name);
  const into = { cStride: width, cOffset: column, partial };
  g.emit(matmul, { layout: 'NT', M, N, K: r, ...into }, { a: product, b, c: y }, b.name);
  return { adapter, input, product };
}

/** dB and dA of the columns of dy; what dx takes of it is left to `adapterInputGradient`. */
export function adapterBackward(
  g: Graph,
  dy: Tensor,
  low: Low | undefined,
  { M, column, width }: Columns,
): LowGradient | undefined {
  if (!low) return undefined;
  const { adapter, input, product } = low;
  const { a, b, scale, dropout } = adapter;
  const [N, r] = b.shape as [number, number];
  if (a.split && b.wantsGradient) g.emitAllReduce(product, a.split.ranks, a.name);
  outerProduct(g, dy, product, b, { M, column, width });
  const gradientOfProduct = (name: string): Tensor => {
    const gradient = g.activation(name, [M, r]);
    const columns = { aStride: width, aOffset: column, epilogue: 'scale', scale } as const;
    g.emit(matmul, { layout: 'NN', M, N: r, K: N, ...columns }, { a: dy, b, c: gradient }, b.name);
    return gradient;
  };
  const gradient = gradientOfProduct(`d ${a.name}`);
  let summed = gradient;
  if (b.split && a.wantsGradient) {
    // A is the same on all ranks, the gradient of x a part of a sum.
    summed = gradientOfProduct(`d ${a.name} of all ranks`);
    g.emitAllReduce(summed, b.split.ranks, `d ${a.name}`);
  }
  outerProduct(g, summed, input, a, { M, column: 0, width: r });
  return { adapter, gradient, uses: dropout || !a.wantsGradient ? 1 : 2 };
}

/** The gradient of `into` (+)= drop(dlow A). */
export function adapterInputGradient(
  g: Graph,
  { adapter, gradient: dlow }: LowGradient,
  into: Tensor,
  M: number,
): void {
  const { a, dropout } = adapter;
  const [r, K] = a.shape as [number, number];
  const problem = { layout: 'NN', M, N: K, K: r } as const;
  const { gradient, accumulate } = g.gradientTarget(into);
  if (!dropout) {
    g.emit(matmul, { ...problem, accumulate }, { a: dlow, b: a, c: gradient }, a.name);
    return;
  }
  const whole = accumulate ? g.activation(`d ${a.name} dropout`, [M, K]) : gradient;
  g.emit(matmul, problem, { a: dlow, b: a, c: whole }, a.name);
  if (accumulate) drop(g, whole, gradient, dropout, true, a);
  else g.emit(dropoutInPlace, dropOf(whole, dropout, a), { key: dropout.key, x: whole }, a.name);
}

/** The gradient of a weight (out, in) (+)= dy^T x, of these columns of dy. */
export function outerProduct(g: Graph, dy: Tensor, x: Tensor, weight: Tensor, { M, column, width }: Columns): void {
  if (!weight.wantsGradient) return;
  const { gradient, accumulate } = g.gradientTarget(weight);
  const outputs = at(weight.shape, 0);
  const inputs = weight.size / outputs;
  const problem = { M: outputs, N: inputs, K: M, aStride: width, aOffset: column, accumulate };
  g.emit(matmul, { layout: 'TN', ...problem }, { a: dy, b: x, c: gradient }, weight.name);
}

function drop(g: Graph, x: Tensor, y: Tensor, dropout: Dropout, accumulate: boolean, a: Tensor): void {
  g.emit(dropoutKernel, { ...dropOf(x, dropout, a), accumulate }, { x, key: dropout.key, y }, a.name);
}

/** Of columns of x, where A has those of one of several ranks, what goes of all. */
function dropOf({ size }: Tensor, { rate, stream }: Dropout, a: Tensor): DropoutInPlaceProblem {
  const { split } = a;
  const columns = at(a.shape, 1);
  const part = split && { columns, whole: split.ranks * columns, first: split.rank * columns };
  return { size, rate, stream, part };
}
