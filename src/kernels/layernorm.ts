// LayerNorm over the last axis, forward and backward: to its input alone, or to its parameters as well (norm-gradients.ts).

import backwardShader from '../../shaders/layernorm/backward.wgsl?raw';
import forwardShader from '../../shaders/layernorm/forward.wgsl?raw';
import gradients from '../../shaders/layernorm/gradients.wgsl?raw';
import inputGradient from '../../shaders/layernorm/input_gradient.wgsl?raw';
import { type Arrays, type Kernel, type RowCut, read, update, write } from './kernel.ts';
import {
  addUp,
  type NormGradientsProblem,
  normGradientsVariants,
  rowsOfGradients,
  sumsOperand,
} from './norm-gradients.ts';
import { lanesOf, perRow } from './variants.ts';

export interface LayerNormProblem {
  rows: number;
  width: number;
  eps: number;
}

const stridesOf = (names: readonly string[], stride: number) => Object.fromEntries(names.map((name) => [name, stride]));

/** Of a norm by rows: operands with a row's elements, and those with one a row. */
export const rowsOfNorm =
  (wide: readonly string[], narrow: readonly string[]) =>
  <P extends { rows: number; width: number }>(problem: P, rows: number): RowCut<P> | undefined =>
    problem.rows === rows
      ? {
          unit: 1,
          strides: { ...stridesOf(wide, problem.width), ...stridesOf(narrow, 1) },
          part: (_, count) => ({ ...problem, rows: count }),
        }
      : undefined;

/** x (rows, width) -> y (rows, width), mean (rows), rstd (rows). */
export const layernorm: Kernel<LayerNormProblem> = {
  name: 'layernorm',
  operands: ({ rows, width }) => ({
    x: read(rows * width),
    weight: read(width),
    bias: read(width),
    y: write(rows * width),
    mean: write(rows),
    rstd: write(rows),
  }),
  affectsSpeed: { rows: true, width: true, eps: false },
  variants: perRow(
    forwardShader,
    ({ width }) => width,
    ({ width }) => lanesOf(width),
    ({ rows, width, eps }, lanes) => ({ rows, width: width / lanes, eps }),
  ),
  rows: rowsOfNorm(['x', 'y'], ['mean', 'rstd']),
  flops: ({ rows, width }) => rows * width * 8,
  reference(
    { rows, width, eps },
    { x, weight, bias, y, mean, rstd }: Arrays<'x' | 'weight' | 'bias' | 'y' | 'mean' | 'rstd'>,
  ) {
    for (let r = 0; r < rows; r++) {
      const row = x.subarray(r * width, (r + 1) * width);
      const mu = row.reduce((a, b) => a + b, 0) / width;
      const variance = row.reduce((a, b) => a + (b - mu) ** 2, 0) / width;
      const scale = 1 / Math.sqrt(variance + eps);
      for (let c = 0; c < width; c++) y[r * width + c] = (row[c]! - mu) * scale * weight[c]! + bias[c]!;
      mean[r] = mu;
      rstd[r] = scale;
    }
  },
};

export interface NormBackwardProblem {
  rows: number;
  width: number;
  accumulate: boolean;
}

/** dy, x (rows, width) -> dx (rows, width), added to the old dx when accumulating. */
export const layernormBackward: Kernel<NormBackwardProblem> = {
  name: 'layernormBackward',
  operands: ({ rows, width, accumulate }) => ({
    dy: read(rows * width),
    x: read(rows * width),
    weight: read(width),
    mean: read(rows),
    rstd: read(rows),
    dx: accumulate ? update(rows * width) : write(rows * width),
  }),
  affectsSpeed: { rows: true, width: true, accumulate: false },
  variants: perRow(
    inputGradient + backwardShader,
    ({ width }) => width,
    ({ width }) => lanesOf(width),
    ({ rows, width, accumulate }, lanes) => ({ rows, width: width / lanes, accumulate: Number(accumulate) }),
  ),
  rows: rowsOfNorm(['dy', 'x', 'dx'], ['mean', 'rstd']),
  flops: ({ rows, width, accumulate }) => rows * width * (accumulate ? 14 : 13),
  reference(
    { rows, width, accumulate },
    { dy, x, weight, mean, rstd, dx }: Arrays<'dy' | 'x' | 'weight' | 'mean' | 'rstd' | 'dx'>,
  ) {
    for (let r = 0; r < rows; r++) {
      const normal = (c: number) => (x[r * width + c]! - mean[r]!) * rstd[r]!;
      let sum = 0;
      let along = 0;
      for (let c = 0; c < width; c++) {
        const g = dy[r * width + c]! * weight[c]!;
        sum += g;
        along += g * normal(c);
      }
      for (let c = 0; c < width; c++) {
        const g = dy[r * width + c]! * weight[c]!;
        const d = rstd[r]! * (g - sum / width - (normal(c) * along) / width);
        dx[r * width + c] = (accumulate ? dx[r * width + c]! : 0) + d;
      }
    }
  },
};

export interface LayerNormGradientsProblem extends NormGradientsProblem {
  /** Whether dbias is added to. */
  accumulateBias: boolean;
}

/** dy, x (rows, width) -> dx (rows, width), dweight, dbias (width), each added to the old one when accumulating. */
export const layernormGradients: Kernel<LayerNormGradientsProblem> = {
  name: 'layernormGradients',
  operands: (problem) => {
    const { accumulateWeight, accumulateBias } = problem;
    return {
      ...layernormBackward.operands(problem),
      dweight: sumsOperand(problem, accumulateWeight),
      dbias: sumsOperand(problem, accumulateBias),
    };
  },
  affectsSpeed: {
    ...{ rows: true, width: true, accumulate: false, accumulateWeight: false, accumulateBias: false },
    byBlock: false,
  },
  variants: normGradientsVariants(inputGradient + gradients, ({ accumulate, accumulateWeight, accumulateBias }) => ({
    accumulate: Number(accumulate),
    accumulate_weight: Number(accumulateWeight),
    accumulate_bias: Number(accumulateBias),
  })),
  rows: rowsOfGradients(['mean', 'rstd'], ['dweight', 'dbias']),
  flops: (problem) => layernormBackward.flops(problem) + problem.rows * problem.width * 5,
  reference(problem, data: Arrays<'dy' | 'x' | 'weight' | 'mean' | 'rstd' | 'dx' | 'dweight' | 'dbias'>) {
    const { dy, x, mean, rstd, dweight, dbias } = data;
    const { width, accumulateWeight, accumulateBias } = problem;
    layernormBackward.reference(problem, data);
    const normal = (r: number, c: number) => (x[r * width + c]! - mean[r]!) * rstd[r]!;
    addUp(problem, dweight, accumulateWeight, (r, c) => dy[r * width + c]! * normal(r, c));
    addUp(problem, dbias, accumulateBias, (r, c) => dy[r * width + c]!);
  },
};
