// LayerNorm and RMSNorm over the last axis, and RMSNorm over heads in packed rows. The backward pass adds to the residual
// stream's gradient in place; parameter gradients are summed in fixed blocks of rows.

import { headNormBackward, headNorm as headNormKernel, headNormParameterGrad } from '../../kernels/head-norm.ts';
import { ceilDiv } from '../../kernels/kernel.ts';
import {
  layernormBackward,
  layernorm as layernormKernel,
  layernormParameterGrad,
  ROW_BLOCK,
} from '../../kernels/layernorm.ts';
import { rmsnormBackward, rmsnorm as rmsnormKernel, rmsnormParameterGrad } from '../../kernels/rmsnorm.ts';
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
    if (weight.wantsGradient || bias.wantsGradient) {
      const blocks = ceilDiv(rows, ROW_BLOCK);
      const partial = g.activation(`d ${label} partial`, [blocks, 2 * width]);
      g.emit(layernormParameterGrad, { rows, width }, { dy, x, mean, rstd, partials: partial }, label);
      const all = blocksOfAll(g, partial, x, label);
      const sums = { rows: at(all.shape, 0), stride: 2 * width };
      const [first, second] = [weight, bias].map((parameter) =>
        parameter.wantsGradient ? g.gradientTarget(parameter) : undefined,
      );
      if (first && second && first.accumulate === second.accumulate) {
        const { gradient: y, accumulate } = second;
        sumRows(g, all, first.gradient, { ...sums, width: 2 * width, accumulate, rest: { from: width, y } }, label);
      } else {
        [first, second].forEach((target, i) => {
          if (!target) return;
          const { gradient, accumulate } = target;
          sumRows(g, all, gradient, { ...sums, width, offset: i * width, accumulate }, gradient.name);
        });
      }
    }
    if (x.wantsGradient) {
      const { gradient: dx, accumulate } = g.gradientTarget(x);
      g.emit(layernormBackward, { rows, width, accumulate }, { dy, x, weight, mean, rstd, dx }, label);
    }
  });
  return y;
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
    if (weight.wantsGradient) {
      const blocks = ceilDiv(rows, ROW_BLOCK);
      const partial = g.activation(`d ${label} partial`, [blocks, width]);
      g.emit(rmsnormParameterGrad, { rows, width }, { dy, x, rstd, partials: partial }, label);
      const all = blocksOfAll(g, partial, x, label);
      const { gradient, accumulate } = g.gradientTarget(weight);
      sumRows(g, all, gradient, { rows: at(all.shape, 0), width, accumulate }, label);
    }
    if (x.wantsGradient) {
      const { gradient: dx, accumulate } = g.gradientTarget(x);
      g.emit(rmsnormBackward, { rows, width, accumulate, ...gain }, { dy, x, weight, rstd, dx }, label);
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
