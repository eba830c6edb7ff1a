// LayerNorm over the last axis, forward and backward. Rows are independent; dweight and dbias sum over
// rows in blocks of ROW_BLOCK, whatever the grid, so that their order of addition never changes.

import backwardShader from '../../shaders/layernorm/backward.wgsl?raw';
import forwardShader from '../../shaders/layernorm/forward.wgsl?raw';
import parameterGrad from '../../shaders/layernorm/parameter_grad.wgsl?raw';
import { type Arrays, ceilDiv, type Kernel, type RowCut, read, update, write } from './kernel.ts';
import { lanesOf, perElem, perRow } from './variants.ts';

/** Rows that one invocation of a parameter gradient sums; column_sum adds the blocks up. */
export const ROW_BLOCK = 32;

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

/** Elements that a binding may begin at a multiple of. */
const BINDING_UNIT = 64;

/** Rows from which on so many blocks of partial sums, of so many elements each, begin where a binding may. */
export function unitOfPartials(elements: number, heads = 1): number {
  let unit = 1;
  while ((unit * heads) % ROW_BLOCK !== 0 || (((unit * heads) / ROW_BLOCK) * elements) % BINDING_UNIT !== 0) unit *= 2;
  return unit;
}

/** Of a norm's parameters: partial sums of so many of them for each block of rows. */
export const rowsOfPartials =
  (wide: readonly string[], narrow: readonly string[], parameters: number) =>
  <P extends { rows: number; width: number }>(problem: P, rows: number): RowCut<P> | undefined => {
    const cut = rowsOfNorm(wide, narrow)(problem, rows);
    const elements = parameters * problem.width;
    return (
      cut && { ...cut, unit: unitOfPartials(elements), strides: { ...cut.strides, partials: elements / ROW_BLOCK } }
    );
  };

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
    backwardShader,
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

export interface NormParameterGradProblem {
  rows: number;
  width: number;
}

/** Of LayerNorm's shader and RMSNorm's: an invocation for each column of each block of rows. */
export const parameterGradVariants = (shader: string) =>
  perElem<NormParameterGradProblem>(
    shader,
    ({ width }) => lanesOf(width),
    ({ rows, width }, lanes) => (ceilDiv(rows, ROW_BLOCK) * width) / lanes,
    ({ rows, width }, lanes) => ({ rows, width: width / lanes }),
    { ROW_BLOCK },
  );

/** dy, x (rows, width) -> partials (ceil(rows / ROW_BLOCK), 2, width): dweight, then dbias. */
export const layernormParameterGrad: Kernel<NormParameterGradProblem> = {
  name: 'layernormParameterGrad',
  operands: ({ rows, width }) => ({
    dy: read(rows * width),
    x: read(rows * width),
    mean: read(rows),
    rstd: read(rows),
    partials: write(ceilDiv(rows, ROW_BLOCK) * 2 * width),
  }),
  affectsSpeed: { rows: true, width: true },
  variants: parameterGradVariants(parameterGrad),
  rows: rowsOfPartials(['dy', 'x'], ['mean', 'rstd'], 2),
  flops: ({ rows, width }) => rows * width * 5,
  reference({ rows, width }, { dy, x, mean, rstd, partials }: Arrays<'dy' | 'x' | 'mean' | 'rstd' | 'partials'>) {
    partials.fill(0);
    for (let r = 0; r < rows; r++) {
      const at = Math.floor(r / ROW_BLOCK) * 2 * width;
      for (let c = 0; c < width; c++) {
        const d = dy[r * width + c]!;
        partials[at + c]! += d * (x[r * width + c]! - mean[r]!) * rstd[r]!;
        partials[at + width + c]! += d;
      }
    }
  },
};
