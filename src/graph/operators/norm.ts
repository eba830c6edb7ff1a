// LayerNorm and RMSNorm over the last axis, and RMSNorm over heads in packed rows. The backward pass adds to the residual
// stream's gradient in place; parameter gradients are summed in fixed blocks of rows.

import { addRows } from '../../kernels/column-sum.ts';
import { headNormBackward, headNorm as headNormKernel, headNormParameterGrad } from '../../kernels/head-norm.ts';
import { ceilDiv } from '../../kernels/kernel.ts';
import { layernormBackward, layernormGradients, layernorm as layernormKernel } from '../../kernels/layernorm.ts';
import { ROW_BLOCK } from '../../kernels/norm-gradients.ts';
import { rmsnormBackward, rmsnormGradients, rmsnorm as rmsnormKernel } from '../../kernels/rmsnorm.ts';
import { at } from '../../util/at.ts';
import type { Graph } from '../graph.ts';
import type { Tensor } from '../program.ts';
import { sumRows } from './sum-rows.ts';
import { blocksOfAll, wholeRows } from './tensor-parallel.ts';

/** x (..., C) -> (x - mean) / sqrt(variance + eps) * weight + bias. */
export function layernorm(g: Graph, x: Tensor, weight: Tensor, bias: Tensor, eps: number): Tensor {
  const width = weight.size;
  const rows = x.size / width;
  const label = weight.name;
  wholeRows(x, label);
  const y = g.activation(label, x.shape, [x, weight, bias]);
  const mean = g.activation(`${label} mean`, [rows]);
  const rstd = g.activation(`${label} rstd`, [rows]);
  g.emit(layernormKernel, { rows, width, eps }, { x, weight, bias, y, mean, rstd }, label);
  g.onBackward(y, (dy) => {
    const read = { dy, x, weight, mean, rstd };
    if (weight.wantsGradient || bias.wantsGradient) {
      const { dx, accumulate } = inputTarget(g, x, label);
      const [ofWeight, ofBias] = [weight, bias].map((parameter) => sumsTarget(g, parameter, x)) as [Sums, Sums];
      const into = { dx, dweight: ofWeight.into, dbias: ofBias.into };
      const sums = { accumulateWeight: ofWeight.accumulate, accumulateBias: ofBias.accumulate, ...blocksOf(g, x) };
      g.emit(layernormGradients, { rows, width, accumulate, ...sums }, { ...read, ...into }, label);
      for (const { finish } of [ofWeight, ofBias]) finish();
    } else if (x.wantsGradient) {
      const { gradient: dx, accumulate } = g.gradientTarget(x);
      g.emit(layernormBackward, { rows, width, accumulate }, { ...read, dx }, label);
    }
  });
  return y;
}

/** Where the gradient of x goes: one that nothing reads, into a tensor of its own. */
function inputTarget(g: Graph, x: Tensor, label: string): { dx: Tensor; accumulate: boolean } {
  if (!x.wantsGradient) return { dx: g.activation(`d of what ${label} reads`, x.shape), accumulate: false };
  const { gradient, accumulate } = g.gradientTarget(x);
  return { dx: gradient, accumulate };
}

/** What a dispatch writes the sums of a parameter's gradient to, and what comes behind it. */
interface Sums {
  readonly into: Tensor;
  readonly accumulate: boolean;
  finish(): void;
}

const hasSomeRows = (g: Graph, x: Tensor): boolean => g.rows !== undefined && x.split?.by === 'rows';

/** Where ranks have rows of x each, what each sums is kept by blocks, of which all of them are added up. */
const blocksOf = (g: Graph, x: Tensor) => (hasSomeRows(g, x) ? { byBlock: true } : {});

function sumsTarget(g: Graph, parameter: Tensor, x: Tensor): Sums {
  const { name, size: width, wantsGradient } = parameter;
  const target = wantsGradient ? g.gradientTarget(parameter) : undefined;
  if (target && !hasSomeRows(g, x)) {
    return { into: target.gradient, accumulate: target.accumulate, finish: () => undefined };
  }
  const blocks = hasSomeRows(g, x) ? ceilDiv(x.size / width, ROW_BLOCK) : 1;
  const into = g.activation(`d ${name} partial`, [blocks, width]);
  const finish = () => {
    if (!target) return;
    const all = blocksOfAll(g, into, x, name);
    const { gradient, accumulate } = target;
    g.emit(addRows, { rows: at(all.shape, 0), width, accumulate }, { x: all, y: gradient }, name);
  };
  return { into, accumulate: false, finish };
}

/** Options that every RMSNorm of a model has. */
export interface RMSNormOptions {
  eps: number;
  /** Added to the weight: 1 where it is stored as a difference from 1. @default 0 */
  gainOffset?: number | undefined;
}

/** The field of a kernel's problem; none where nothing is added. */
const gainOf = ({ gainOffset = 0 }: RMSNormOptions) => (gainOffset === 0 ? {} : { gainOffset });

/** x (..., C) -> x / sqrt(mean(x^2) + eps) * (weight + gainOffset). */
export function rmsnorm(g: Graph, x: Tensor, weight: Tensor, options: RMSNormOptions): Tensor {
  const { eps } = options;
  const gain = gainOf(options);
  const width = weight.size;
  const rows = x.size / width;
  const label = weight.name;
  wholeRows(x, label);
  const y = g.activation(label, x.shape, [x, weight]);
  const rstd = g.activation(`${label} rstd`, [rows]);
  g.emit(rmsnormKernel, { rows, width, eps, ...gain }, { x, weight, y, rstd }, label);
  g.onBackward(y, (dy) => {
    const read = { dy, x, weight, rstd };
    if (weight.wantsGradient) {
      const { dx, accumulate } = inputTarget(g, x, label);
      const { into: dweight, accumulate: accumulateWeight, finish } = sumsTarget(g, weight, x);
      const sums = { accumulateWeight, ...blocksOf(g, x) };
      g.emit(rmsnormGradients, { rows, width, accumulate, ...sums, ...gain }, { ...read, dx, dweight }, label);
      finish();
    } else if (x.wantsGradient) {
      const { gradient: dx, accumulate } = g.gradientTarget(x);
      g.emit(rmsnormBackward, { rows, width, accumulate, ...gain }, { ...read, dx }, label);
    }
  });
  return y;
}

/** Some of the heads in a packed tensor: so many, side by side in each row. */
export interface HeadColumns {
  heads: number;
  /** The column of the first. */
  offset: number;
}

/** As rmsnorm, over each of these heads of x (..., packed) by itself, in place; weight (HS) is the same for all. */
export function headNorm(g: Graph, x: Tensor, weight: Tensor, columns: HeadColumns, options: RMSNormOptions): void {
  const label = weight.name;
  const width = weight.size;
  const stride = at(x.shape, x.shape.length - 1);
  const rows = (x.size / stride) * columns.heads;
  const heads = { rows, width, stride, ...columns };
  const gain = gainOf(options);
  const { split } = x;
  const normal = g.activation(`${label} normal`, [rows, width], [x, weight]);
  const rstd = g.activation(`${label} rstd`, [rows]);
  g.emit(headNormKernel, { ...heads, eps: options.eps, ...gain }, { x, weight, normal, rstd }, label);
  // On the gradient of x, which becomes that of what x was before.
  g.onBackward(x, (dx) => {
    if (weight.wantsGradient) {
      const blocks = ceilDiv(rows, ROW_BLOCK);
      const partials = g.activation(`d ${label} partial`, [blocks, width]);
      g.emit(headNormParameterGrad, heads, { dy: dx, normal, partials }, label);
      // Of this rank's heads.
      if (split) g.emitAllReduce(partials, split.ranks, `d ${label}`);
      const { gradient, accumulate } = g.gradientTarget(weight);
      sumRows(g, partials, gradient, { rows: blocks, width, accumulate }, label);
    }
    g.emit(headNormBackward, { ...heads, ...gain }, { normal, weight, rstd, dx }, label);
  });
}
