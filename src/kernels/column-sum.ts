// Sums of columns over blocks of rows. Two passes make a bias gradient, one combines the partials of a
// parameter gradient, and width 1 sums a list of scalars. The blocks are given, never derived from the grid.

import fours from '../../shaders/column-sum/by_fours.wgsl?raw';
import items from '../../shaders/column-sum/column_sum.wgsl?raw';
import inOrder from '../../shaders/column-sum/in_order.wgsl?raw';
import { type Arrays, ceilDiv, type Kernel, type RowCut, read, startingAt, update, write } from './kernel.ts';
import { lanesOf, perElem, perSum } from './variants.ts';

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
}

/** x (rows, stride), columns offset.. -> y (ceil(rows / rowsPerBlock), width). */
export const columnSum: Kernel<ColumnSumProblem> = {
  name: 'columnSum',
  operands: ({ rows, width, stride, offset, rowsPerBlock, accumulate, into = 0 }) => {
    const x = read(offset + (rows - 1) * stride + width);
    const output = accumulate || into > 0 ? update : write;
    return { x, y: startingAt(into, output(into + ceilDiv(rows, rowsPerBlock) * width)) };
  },
  affectsSpeed: {
    ...{ rows: true, width: true, stride: false, offset: false, rowsPerBlock: true },
    ...{ accumulate: false, into: false },
  },
  variants: perSum(
    { items, spread: fours, sums: 4 },
    ({ width, stride, offset, into = 0 }) => lanesOf(width, stride, offset, into),
    ({ rows, width, rowsPerBlock }, lanes) => (ceilDiv(rows, rowsPerBlock) * width) / lanes,
    ({ rowsPerBlock }) => rowsPerBlock,
    ({ rows, width, stride, offset, rowsPerBlock, accumulate, into = 0 }, lanes) => ({
      rows,
      width: width / lanes,
      stride: stride / lanes,
      offset: offset / lanes,
      rowsPerBlock,
      accumulate: Number(accumulate),
      into: into / lanes,
    }),
  ),
  rows(p, rows): RowCut<ColumnSumProblem> | undefined {
    const { width, stride, offset, rowsPerBlock, accumulate, into = 0 } = p;
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
  reference({ rows, width, stride, offset, rowsPerBlock, accumulate, into = 0 }, { x, y }: Arrays<'x' | 'y'>) {
    if (!accumulate) y.fill(0, into, into + ceilDiv(rows, rowsPerBlock) * width);
    for (let r = 0; r < rows; r++) {
      const at = into + Math.floor(r / rowsPerBlock) * width;
      for (let c = 0; c < width; c++) {
        y[at + c]! += x[offset + r * stride + c]!;
      }
    }
  },
};

export interface AddRowsProblem {
  rows: number;
  width: number;
  accumulate: boolean;
}

/** x (rows, width) -> y (width): the rows one by one in their order, from what y was on where it is added to. */
export const addRows: Kernel<AddRowsProblem> = {
  name: 'addRows',
  operands: ({ rows, width, accumulate }) => ({ x: read(rows * width), y: (accumulate ? update : write)(width) }),
  affectsSpeed: { rows: true, width: true, accumulate: false },
  variants: perElem(
    inOrder,
    ({ width }) => lanesOf(width),
    ({ width }, lanes) => width / lanes,
    ({ rows, width, accumulate }, lanes) => ({ rows, width: width / lanes, accumulate: Number(accumulate) }),
  ),
  flops: ({ rows, width }) => rows * width,
  reference({ rows, width, accumulate }, { x, y }: Arrays<'x' | 'y'>) {
    if (!accumulate) y.fill(0);
    for (let i = 0; i < rows * width; i++) y[i % width]! += x[i]!;
  },
};
