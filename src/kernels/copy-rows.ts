// Some rows of each of a batch of matrices, copied or added into those of another: what puts a row in front of others, and
// what takes one out. It is its own backward pass, with x and y swapped.

import shader from '../../shaders/copy-rows/copy_rows.wgsl?raw';
import { type Arrays, type Kernel, read, update, write } from './kernel.ts';
import { lanesOf, perElem } from './variants.ts';

export interface CopyRowsProblem {
  batch: number;
  /** So many of each matrix. */
  rows: number;
  width: number;
  /** Rows of a matrix of x, and the first that is copied; 0 where one matrix serves all. */
  xRows: number;
  xFirst: number;
  /** Of y, as of x. */
  yRows: number;
  yFirst: number;
  /** Adds them to what is there. @default false */
  accumulate?: boolean;
  /** The other rows of y stay. @default they are nothing yet */
  partial?: boolean;
}

/** x (batch, xRows, width) -> y (batch, yRows, width). */
export const copyRows: Kernel<CopyRowsProblem> = {
  name: 'copyRows',
  operands: ({ batch, rows, width, xRows, xFirst, yRows, yFirst, accumulate = false, partial = false }) => {
    const size = ((batch - 1) * yRows + yFirst + rows) * width;
    return {
      x: read(((batch - 1) * xRows + xFirst + rows) * width),
      y: accumulate || partial ? update(size) : write(size),
    };
  },
  affectsSpeed: {
    ...{ batch: true, rows: true, width: true, xRows: false, xFirst: false, yRows: false, yFirst: false },
    ...{ accumulate: false, partial: false },
  },
  variants: perElem(
    shader,
    ({ width }) => lanesOf(width),
    ({ batch, rows, width }, lanes) => (batch * rows * width) / lanes,
    ({ batch, rows, width, xRows, xFirst, yRows, yFirst, accumulate = false }, lanes) => ({
      ...{ batch, rows, width: width / lanes, x_rows: xRows, x_first: xFirst, y_rows: yRows, y_first: yFirst },
      accumulate: Number(accumulate),
    }),
  ),
  flops: ({ batch, rows, width, accumulate }) => (accumulate ? batch * rows * width : 0),
  reference({ batch, rows, width, xRows, xFirst, yRows, yFirst, accumulate = false }, { x, y }: Arrays<'x' | 'y'>) {
    for (let b = 0; b < batch; b++) {
      for (let i = 0; i < rows * width; i++) {
        const to = (b * yRows + yFirst) * width + i;
        y[to] = x[(b * xRows + xFirst) * width + i]! + (accumulate ? y[to]! : 0);
      }
    }
  },
};
