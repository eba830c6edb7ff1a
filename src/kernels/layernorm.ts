// LayerNorm over the last axis, forward and backward. Rows are independent; dweight and dbias sum over
// rows in blocks of ROW_BLOCK, whatever the grid, so that their order of addition never changes.

import rowsShader from '../../shaders/layernorm_rows.wgsl?raw';
import { type Arrays, type Kernel, perInvocation, read, WORKGROUP, write } from './kernel.ts';

export interface LayerNormProblem {
  rows: number;
  width: number;
  eps: number;
}

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
  variants: [
    {
      name: 'rows',
      dispatch: (problem) => ({
        shader: rowsShader,
        constants: { WORKGROUP },
        params: { ...problem },
        workgroups: perInvocation(problem.rows),
      }),
    },
  ],
  flops: ({ rows, width }) => rows * width * 8,
  reference({ rows, width, eps }, { x, weight, bias, y, mean, rstd }: Arrays) {
    for (let r = 0; r < rows; r++) {
      const row = x.subarray(r * width, (r + 1) * width);
      const mu = row.reduce((a, b) => a + b, 0) / width;
      const variance = row.reduce((a, b) => a + (b - mu) ** 2, 0) / width;
      const scale = 1 / Math.sqrt(variance + eps);
      for (let c = 0; c < width; c++) y[r * width + c] = (row[c] - mu) * scale * weight[c] + bias[c];
      mean[r] = mu;
      rstd[r] = scale;
    }
  },
};
