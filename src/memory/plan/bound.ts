// The honest yardstick: the least that any schedule can move over one trace with the same slots. A linear
// program gives a bound that may not be reachable, the same program over whole gaps what is. Solved by HiGHS,
// offline: plans come from plan.ts, in milliseconds.
//
//   minimise    sum over gaps of (1 - x_g)  +  sum over epochs of y_e            (chunks moved per step)
//   subject to  y_e + x_g >= 1                     for each gap g of epoch e     (dropped: written back before)
//               sum of x_g over row r  <=  room r  for each row                  (rows around the end of the step)

import type { Highs } from 'highs';
import { at } from '../../util/at.ts';
import { assert } from '../../util/errors.ts';
import type { Gap, Gaps } from './gaps.ts';
import { CyclicRoom, LinearProgram } from './linear-program.ts';

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
  const { forced } = gaps;
  const program = new LinearProgram();
  const room = new CyclicRoom(program, gaps.room);
  // What takes no room is kept.
  const columns = new Map<Gap, number>();
  for (const gap of gaps.list) {
    if (gap.rowCount > 0) columns.set(gap, program.column({ cost: -1 }, room.entries(gap.firstRow, gap.rowCount)));
  }
  for (const epoch of gaps.epochs) {
    const members = epoch.flatMap((gap) => columns.get(gap) ?? []);
    if (members.length === 0) continue;
    const dropped = program.column({ cost: 1 });
    for (const kept of members) {
      const row = program.row(1);
      program.add(dropped, row, 1);
      program.add(kept, row, 1);
    }
  }
  program.offset = columns.size + forced.arrivals.length + forced.stores;
  const found = program.solve(highs, seconds === undefined ? {} : { seconds, whole: true });
  if (!found) return undefined;
  const keep = new Float64Array(gaps.list.length).fill(1);
  for (const [{ index }, column] of columns) keep[index] = at(found.values, column);
  return { chunks: found.objective, keep };
}
