// LayerNorm and RMSNorm over the last axis. The backward pass adds to the residual stream's gradient in
// place; parameter gradients are summed in fixed blocks of rows.

import { ceilDiv } from '../../kernels/kernel.ts';
import {
  layernormBackward,
  layernorm as layernormKernel,
  layernormParameterGrad,
  ROW_BLOCK,
} from '../../kernels/layernorm.ts';
import { rmsnormBackward, rmsnorm as rmsnormKernel, rmsnormParameterGrad } from '../../kernels/rmsnorm.ts';
import type { Graph, Tensor } from '../graph.ts';
import { sumRows } from './sum-rows.ts';

/** x (..., C) -> (x - mean) / sqrt(variance + eps) * weight + bias. */
export function layernorm(g: Graph, x: Tensor, weight: Tensor, bias: Tensor, eps: number): Tensor {
  const width = weight.size;
  const rows = x.size / width;
  const label = weight.name;
  const y = g.activation(label, x.shape, [x, weight, bias]);
  const mean = g.activation(`${label} mean`, [rows]);
  const rstd = g.activation(`${label} rstd`, [rows]);
  g.emit(layernormKernel, { rows, width, eps }, { x, weight, bias, y, mean, rstd }, label);
  g.onBackward(y, (dy) => {
    if (weight.wantsGradient || bias.wantsGradient) {
      const blocks = ceilDiv(rows, ROW_BLOCK);
      const partial = g.activation(`d ${label} partial`, [blocks, 2 * width]);
      g.emit(layernormParameterGrad, { rows, width }, { dy, x, mean, rstd, partials: partial }, label);
      [weight, bias].forEach((parameter, i) => {
        if (!parameter.wantsGradient) return;
        const { gradient, accumulate } = g.gradientTarget(parameter);
        const sum = { rows: blocks, width, stride: 2 * width, offset: i * width, accumulate };
        sumRows(g, partial, gradient, sum, parameter.name);
      });
    }
    if (x.wantsGradient) {
      const { gradient: dx, accumulate } = g.gradientTarget(x);
      g.emit(layernormBackward, { rows, width, accumulate }, { dy, x, weight, mean, rstd, dx }, label);
    }
  });
  return y;
}

/** x (..., C) -> x / sqrt(mean(x^2) + eps) * weight. */
export function rmsnorm(g: Graph, x: Tensor, weight: Tensor, eps: number): Tensor {
  const width = weight.size;
  const rows = x.size / width;
  const label = weight.name;
  const y = g.activation(label, x.shape, [x, weight]);
  const rstd = g.activation(`${label} rstd`, [rows]);
  g.emit(rmsnormKernel, { rows, width, eps }, { x, weight, y, rstd }, label);
  g.onBackward(y, (dy) => {
    if (weight.wantsGradient) {
      const blocks = ceilDiv(rows, ROW_BLOCK);
      const partial = g.activation(`d ${label} partial`, [blocks, width]);
      g.emit(rmsnormParameterGrad, { rows, width }, { dy, x, rstd, partials: partial }, label);
      const { gradient, accumulate } = g.gradientTarget(weight);
      sumRows(g, partial, gradient, { rows: blocks, width, accumulate }, label);
    }
    if (x.wantsGradient) {
      const { gradient: dx, accumulate } = g.gradientTarget(x);
      g.emit(rmsnormBackward, { rows, width, accumulate }, { dy, x, weight, rstd, dx }, label);
    }
  });
  return y;
}
