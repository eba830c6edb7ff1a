// The honest yardstick: the least that any schedule can move over one trace with the same slots. A linear
// program gives a bound that may not be reachable, the same program over whole gaps what is. Solved by HiGHS,
// offline: plans come from plan.ts, in milliseconds.
//
//   minimise    sum over gaps of (1 - x_g)  +  sum over epochs of y_e            (chunks moved per step)
//   subject to  y_e + x_g >= 1                     for each gap g of epoch e     (dropped: written back before)
//               sum of x_g over row r  <=  room r  for each row                  (rows around the end of the step)
//
// Rows are stated as differences of neighbours with a slack each: two entries a gap instead of thousands.

import type { Highs, ModelData } from 'highs';
import { at } from '../../util/at.ts';
import { assert } from '../../util/errors.ts';
import type { Gap, Gaps } from './gaps.ts';

export interface Bound {
  /** Chunks moved per step, both ways; no schedule moves fewer. */
  readonly chunks: number;
  /** Whether a schedule that moves just that many was found: always false for the linear program. */
  readonly reached: boolean;
  /** 1 for a gap that is kept; fractions in the linear program. */
  readonly keep: Float64Array;
}

/** Loads the solver: a few megabytes, wanted for reports only. */
export async function loadSolver(): Promise<Highs> {
  const { default: load } = await import('highs');
  return load();
}

/** The bound by the linear program. */
export function linearBound(highs: Highs, gaps: Gaps): Bound {
  const found = solve(highs, gaps, {});
  assert(found, 'the linear bound was not found');
  return { chunks: found.chunks, reached: false, keep: found.keep };
}

/** The optimum over whole gaps; undefined when `seconds` were not enough to prove it. */
export function exactBound(highs: Highs, gaps: Gaps, seconds: number): Bound | undefined {
  const found = solve(highs, gaps, { seconds });
  return found ? { chunks: Math.round(found.chunks), reached: true, keep: found.keep } : undefined;
}

function solve(highs: Highs, gaps: Gaps, { seconds }: { seconds?: number }) {
  const rows = gaps.room.length;
  const { forced } = gaps;
  // Columns: gaps that take room, then epochs, then the slack of each row. What takes no room is kept.
  type Column = { row: number; value: number }[];
  const columns = new Map(gaps.list.filter(({ rowCount }) => rowCount > 0).map((gap): [Gap, Column] => [gap, []]));
  const epochs = gaps.epochs
    .map((members) => ({ members: members.filter((gap) => columns.has(gap)), column: [] as Column }))
    .filter(({ members }) => members.length > 0);

  // Row r: what it holds beyond row r - 1. Row 0: all that it holds.
  for (const [{ firstRow: first, rowCount }, column] of columns) {
    const end = first + rowCount;
    const everywhere = rowCount === rows;
    if (first === 0 || end > rows || everywhere) column.push({ row: 0, value: 1 });
    if (everywhere) continue;
    if (first > 0) column.push({ row: first, value: 1 });
    if (end % rows > 0) column.push({ row: end % rows, value: -1 });
  }
  let before = 0;
  const limits = Array.from(gaps.room, (room) => {
    const limit = room - before;
    before = room;
    return limit;
  });
  const slacks = limits.map((_, row): Column => {
    const own = { row, value: 1 };
    return row + 1 < rows ? [own, { row: row + 1, value: -1 }] : [own];
  });
  const lower = [...limits];
  const upper = [...limits];
  for (const { members, column } of epochs) {
    for (const gap of members) {
      column.push({ row: lower.length, value: 1 });
      columns.get(gap)?.push({ row: lower.length, value: 1 });
      lower.push(1);
      upper.push(Number.POSITIVE_INFINITY);
    }
  }
  const entries = [...columns.values(), ...epochs.map(({ column }) => column), ...slacks];
  const gapColumns = columns.size;
  const slack = gapColumns + epochs.length;

  const starts = [0];
  const indices: number[] = [];
  const values: number[] = [];
  for (const column of entries) {
    column.sort((a, b) => a.row - b.row);
    for (const { row, value } of column) {
      indices.push(row);
      values.push(value);
    }
    starts.push(indices.length);
  }
  const isSlack = (column: number) => column >= slack;
  const model: ModelData = {
    numCols: entries.length,
    numRows: lower.length,
    offset: gapColumns + forced.arrivals.length + forced.stores,
    colCost: entries.map((_, column) => (column < gapColumns ? -1 : isSlack(column) ? 0 : 1)),
    colLower: entries.map(() => 0),
    colUpper: entries.map((_, column) => (isSlack(column) ? Number.POSITIVE_INFINITY : 1)),
    rowLower: lower,
    rowUpper: upper,
    matrix: { format: 'csc', numRows: lower.length, numCols: entries.length, starts, indices, values },
    ...(seconds !== undefined && { integrality: entries.map((_, column) => (isSlack(column) ? 0 : 1)) }),
  };
  return highs.withModel(model, (solver) => {
    solver.options.set({ output_flag: false });
    // Costs are whole chunks: an incumbent less than one above the bound is the optimum.
    if (seconds !== undefined) solver.options.set({ time_limit: seconds, mip_rel_gap: 0, mip_abs_gap: 0.99 });
    solver.run();
    if (solver.getModelStatus() !== highs.constants.modelStatus.optimal) return undefined;
    const solution = solver.getSolution().colValue;
    const keep = new Float64Array(gaps.list.length).fill(1);
    for (const [column, { index }] of [...columns.keys()].entries()) keep[index] = at(solution, column);
    return { chunks: solver.getObjectiveValue(), keep };
  });
}
