// Sums of columns over blocks of rows. Two passes make a bias gradient, one combines the partials of a
// parameter gradient, and width 1 sums a list of scalars. The blocks are given, never derived from the grid.

import fours from '../../shaders/column-sum/by_fours.wgsl?raw';
import items from '../../shaders/column-sum/column_sum.wgsl?raw';
import oneOutput from '../../shaders/column-sum/one_output.wgsl?raw';
import twoOutputs from '../../shaders/column-sum/two_outputs.wgsl?raw';
import { type Arrays, ceilDiv, type Kernel, type RowCut, read, startingAt, update, write } from './kernel.ts';
import { lanesOf, perSum } from './variants.ts';

export interface ColumnSumProblem {
  rows: number;
  width: number;
  /** Elements from one row of x to the next. */
  stride: number;
  /** The first column. */
  offset: number;
  rowsPerBlock: number;
  accumulate: boolean;
  /** Elements of y before the first, which stay. @default 0 */
  into?: number;
  /** The first of the columns whose sums go to z, where not all go to y: of one block, from y's first element on. @default none does */
  split?: number;
}

const outputs = ({ split }: ColumnSumProblem): string => (split === undefined ? oneOutput : twoOutputs);

/** x (rows, stride), columns offset.. -> y (ceil(rows / rowsPerBlock), width); or, in two parts, y (split) and z (width - split). */
export const columnSum: Kernel<ColumnSumProblem> = {
  name: 'columnSum',
  operands: ({ rows, width, stride, offset, rowsPerBlock, accumulate, into = 0, split }) => {
    const x = read(offset + (rows - 1) * stride + width);
    const output = accumulate || into > 0 ? update : write;
    if (split !== undefined) return { x, y: output(split), z: output(width - split) };
    return { x, y: startingAt(into, output(into + ceilDiv(rows, rowsPerBlock) * width)) };
  },
  affectsSpeed: {
    ...{ rows: true, width: true, stride: false, offset: false, rowsPerBlock: true },
    ...{ accumulate: false, into: false, split: false },
  },
  variants: perSum(
    { items: (p) => items + outputs(p), fours: (p) => fours + outputs(p) },
    ({ width, stride, offset, into = 0, split = 0 }) => lanesOf(width, stride, offset, into, split),
    ({ rows, width, rowsPerBlock }, lanes) => (ceilDiv(rows, rowsPerBlock) * width) / lanes,
    ({ rowsPerBlock }) => rowsPerBlock,
    ({ rows, width, stride, offset, rowsPerBlock, accumulate, into = 0, split = 0 }, lanes) => ({
      rows,
      width: width / lanes,
      stride: stride / lanes,
      offset: offset / lanes,
      rowsPerBlock,
      accumulate: Number(accumulate),
      into: into / lanes,
      split: split / lanes,
    }),
  ),
  rows(p, rows): RowCut<ColumnSumProblem> | undefined {
    const { width, stride, offset, rowsPerBlock, accumulate, into = 0 } = p;
    if (p.split !== undefined) return undefined;
    if (p.rows === rows && rowsPerBlock < rows && !accumulate && offset + width <= stride) {
      const part = (first: number, count: number) => ({
        ...{ ...p, rows: count },
        ...(first > 0 && { into: into + (first / rowsPerBlock) * width }),
      });
      return { unit: rowsPerBlock, strides: { x: stride }, part };
    }
    // One row that is a whole tensor: it is copied, or added.
    const each = width / rows;
    if (p.rows !== 1 || offset !== 0 || into !== 0 || !Number.isInteger(each)) return undefined;
    const part = (_: number, count: number) => ({ ...p, width: count * each, stride: count * each });
    return { unit: 1, strides: { x: each, y: each }, part };
  },
  flops: ({ rows, width }) => rows * width,
  reference({ rows, width, stride, offset, rowsPerBlock, accumulate, into = 0, split }, data: Arrays<'x' | 'y' | 'z'>) {
    const { x, y, z } = data;
    if (!accumulate) {
      y.fill(0, into, into + (split ?? ceilDiv(rows, rowsPerBlock) * width));
      if (split !== undefined) z.fill(0);
    }
    for (let r = 0; r < rows; r++) {
      const at = into + Math.floor(r / rowsPerBlock) * width;
      for (let c = 0; c < width; c++) {
        const value = x[offset + r * stride + c]!;
        if (split !== undefined && c >= split) z[c - split]! += value;
        else y[at + c]! += value;
      }
    }
  },
};
