// Sums over rows: few at once, many in two fixed levels, blocks of ROWS_PER_BLOCK, then the blocks, until one row
// is left. The order of addition depends on the number of rows alone.

import { columnSum } from '../../kernels/column-sum.ts';
import { ceilDiv } from '../../kernels/kernel.ts';
import type { Graph } from '../graph.ts';
import type { Tensor } from '../program.ts';

const ROWS_PER_BLOCK = 64;
/** Up to here one dispatch is faster than the two of two levels. */
const ROWS_AT_ONCE = 256;

export interface SumRows {
  rows: number;
  width: number;
  /** Elements between rows of x. @default width */
  stride?: number;
  /** The first column. @default 0 */
  offset?: number;
  accumulate?: boolean;
  /** The first column of y. @default 0 */
  into?: number;
  /**
   * Whether its rows may come in slices (row-slices.ts): whatever is more than a block is added up in two levels, so that each slice
   * leaves its blocks' sums and nothing waits for all rows. @default false
   */
  inSlices?: boolean;
}

/** x (rows, stride) -> columns into..into+width-1 of y: (+)= the sum of columns offset..offset+width-1. */
export function sumRows(g: Graph, x: Tensor, y: Tensor, sum: SumRows, label: string): void {
  const { width, accumulate = false, into, inSlices = false } = sum;
  let { rows, stride = width, offset = 0 } = sum;
  let source = x;
  while (rows > (inSlices && source === x ? ROWS_PER_BLOCK : ROWS_AT_ONCE)) {
    const blocks = ceilDiv(rows, ROWS_PER_BLOCK);
    const partial = g.activation(`${label} partial sums`, [blocks, width]);
    const problem = { rows, width, stride, offset, rowsPerBlock: ROWS_PER_BLOCK, accumulate: false };
    g.emit(columnSum, problem, { x: source, y: partial }, label);
    [source, rows, stride, offset] = [partial, blocks, width, 0];
  }
  const last = { rows, width, stride, offset, rowsPerBlock: rows, accumulate, ...(into && { into }) };
  g.emit(columnSum, last, { x: source, y }, label);
}
