// RMSNorm over the last axis, forward and backward. As LayerNorm, without mean and bias.

import backwardShader from '../../shaders/rmsnorm/backward.wgsl?raw';
import forwardShader from '../../shaders/rmsnorm/forward.wgsl?raw';
import gradients from '../../shaders/rmsnorm/gradients.wgsl?raw';
import inputGradient from '../../shaders/rmsnorm/input_gradient.wgsl?raw';
import { type Arrays, type Kernel, read, update, write } from './kernel.ts';
import { type NormBackwardProblem, rowsOfNorm } from './layernorm.ts';
import {
  addUp,
  type NormGradientsProblem,
  normGradientsVariants,
  rowsOfGradients,
  sumsOperand,
} from './norm-gradients.ts';
import { lanesOf, perRow } from './variants.ts';

/** What is added to the weight: 1 where it is stored as a difference from 1. */
interface Gain {
  /** @default 0 */
  gainOffset?: number;
}

export interface RMSNormProblem extends Gain {
  rows: number;
  width: number;
  eps: number;
}

export interface RMSNormBackwardProblem extends NormBackwardProblem, Gain {}

/** x (rows, width) -> y (rows, width), rstd (rows). */
export const rmsnorm: Kernel<RMSNormProblem> = {
  name: 'rmsnorm',
  operands: ({ rows, width }) => ({
    x: read(rows * width),
    weight: read(width),
    y: write(rows * width),
    rstd: write(rows),
  }),
  affectsSpeed: { rows: true, width: true, eps: false, gainOffset: false },
  variants: perRow(
    forwardShader,
    ({ width }) => width,
    ({ width }) => lanesOf(width),
    ({ rows, width, eps, gainOffset = 0 }, lanes) => ({ rows, width: width / lanes, eps, gain: gainOffset }),
  ),
  rows: rowsOfNorm(['x', 'y'], ['rstd']),
  flops: ({ rows, width }) => rows * width * 4,
  reference({ rows, width, eps, gainOffset = 0 }, { x, weight, y, rstd }: Arrays<'x' | 'weight' | 'y' | 'rstd'>) {
    for (let r = 0; r < rows; r++) {
      const row = x.subarray(r * width, (r + 1) * width);
      const scale = 1 / Math.sqrt(row.reduce((a, b) => a + b * b, 0) / width + eps);
      for (let c = 0; c < width; c++) y[r * width + c] = row[c]! * scale * (weight[c]! + gainOffset);
      rstd[r] = scale;
    }
  },
};

/** dy, x (rows, width) -> dx (rows, width), added to the old dx when accumulating. */
export const rmsnormBackward: Kernel<RMSNormBackwardProblem> = {
  name: 'rmsnormBackward',
  operands: ({ rows, width, accumulate }) => ({
    dy: read(rows * width),
    x: read(rows * width),
    weight: read(width),
    rstd: read(rows),
    dx: accumulate ? update(rows * width) : write(rows * width),
  }),
  affectsSpeed: { rows: true, width: true, accumulate: false, gainOffset: false },
  variants: perRow(
    inputGradient + backwardShader,
    ({ width }) => width,
    ({ width }) => lanesOf(width),
    ({ rows, width, accumulate, gainOffset = 0 }, lanes) => ({
      ...{ rows, width: width / lanes, accumulate: Number(accumulate), gain: gainOffset },
    }),
  ),
  rows: rowsOfNorm(['dy', 'x', 'dx'], ['rstd']),
  flops: ({ rows, width, accumulate }) => rows * width * (accumulate ? 10 : 9),
  reference(
    { rows, width, accumulate, gainOffset = 0 },
    { dy, x, weight, rstd, dx }: Arrays<'dy' | 'x' | 'weight' | 'rstd' | 'dx'>,
  ) {
    const gain = weight.map((value) => value + gainOffset);
    for (let r = 0; r < rows; r++) {
      let along = 0;
      for (let c = 0; c < width; c++) along += dy[r * width + c]! * gain[c]! * x[r * width + c]! * rstd[r]!;
      for (let c = 0; c < width; c++) {
        const i = r * width + c;
        const d = rstd[r]! * (dy[i]! * gain[c]! - (x[i]! * rstd[r]! * along) / width);
        dx[i] = (accumulate ? dx[i]! : 0) + d;
      }
    }
  },
};

export interface RMSNormGradientsProblem extends NormGradientsProblem, Gain {}

/** dy, x (rows, width) -> dx (rows, width), dweight (width), each added to the old one when accumulating. */
export const rmsnormGradients: Kernel<RMSNormGradientsProblem> = {
  name: 'rmsnormGradients',
  operands: (problem) => ({
    ...rmsnormBackward.operands(problem),
    dweight: sumsOperand(problem, problem.accumulateWeight),
  }),
  affectsSpeed: {
    ...{ rows: true, width: true, accumulate: false, accumulateWeight: false, byBlock: false, gainOffset: false },
  },
  variants: normGradientsVariants(inputGradient + gradients, ({ accumulate, accumulateWeight, gainOffset = 0 }) => ({
    accumulate: Number(accumulate),
    accumulate_weight: Number(accumulateWeight),
    gain: gainOffset,
  })),
  rows: rowsOfGradients(['rstd'], ['dweight']),
  flops: (problem) => rmsnormBackward.flops(problem) + problem.rows * problem.width * 3,
  reference(problem, data: Arrays<'dy' | 'x' | 'weight' | 'rstd' | 'dx' | 'dweight'>) {
    const { dy, x, rstd, dweight } = data;
    const { width, accumulateWeight } = problem;
    rmsnormBackward.reference(problem, data);
    addUp(problem, dweight, accumulateWeight, (r, c) => dy[r * width + c]! * x[r * width + c]! * rstd[r]!);
  },
};
