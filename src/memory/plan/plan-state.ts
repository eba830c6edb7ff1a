// The gaps of a trace as the planner changes them: which are kept, what room that leaves on each row, and how many of an epoch
// are not kept. Gaps, rows and epochs go by their numbers, in typed arrays: the planner looks at millions of them.

import { at } from '../../util/at.ts';
import type { Gaps } from './gaps.ts';
import { chunkCount } from './trace.ts';

export interface PlanState {
  readonly chunks: number;
  /** By row: room in all, and what no kept gap takes. */
  readonly room: Int32Array;
  readonly free: Int32Array;
  /** By row: gaps whose first row it is, and those whose last it is. */
  readonly starting: readonly (readonly number[])[];
  readonly ending: readonly (readonly number[])[];
  /** By gap: see `Gap` of gaps.ts. */
  readonly firstRow: Int32Array;
  readonly rowCount: Int32Array;
  /** By gap: the epoch that it is of; -1: none. */
  readonly epochOf: Int32Array;
  /** By epoch: its gaps, and how many of them are not kept. */
  readonly members: readonly (readonly number[])[];
  readonly missing: Int32Array;
  /** By gap: 1 for one that is kept. */
  readonly keep: Uint8Array;
}

/** All gaps kept, whether they fit or not: `free` and `missing` are not counted yet. */
export function planStateOf({ trace, list, room, epochs }: Gaps): PlanState {
  const rows = room.length;
  const listsByRow = () => Array.from(room, (): number[] => []);
  const [starting, ending] = [listsByRow(), listsByRow()];
  const firstRow = Int32Array.from(list, (gap) => gap.firstRow);
  const rowCount = Int32Array.from(list, (gap) => gap.rowCount);
  for (const gap of list) {
    if (gap.rowCount === 0) continue;
    starting[gap.firstRow]?.push(gap.index);
    ending[(gap.firstRow + gap.rowCount - 1) % rows]?.push(gap.index);
  }
  const epochOf = new Int32Array(list.length).fill(-1);
  const members = epochs.map((gaps, epoch) =>
    gaps.map(({ index }) => {
      epochOf[index] = epoch;
      return index;
    }),
  );
  return {
    ...{ chunks: chunkCount(trace), room, free: room.slice(), starting, ending },
    ...{ firstRow, rowCount, epochOf, members, missing: new Int32Array(members.length) },
    keep: new Uint8Array(list.length).fill(1),
  };
}

/** A gap takes its room (1), or gives it back (-1). */
export function takeRoom({ free, firstRow, rowCount }: PlanState, gap: number, room: 1 | -1): void {
  const rows = free.length;
  let row = at(firstRow, gap);
  for (let left = at(rowCount, gap); left > 0; left--) {
    free[row] = (free[row] as number) - room;
    if (++row === rows) row = 0;
  }
}

/** Whether there is room for a gap. */
export function fits({ free, firstRow, rowCount }: PlanState, gap: number): boolean {
  const rows = free.length;
  let row = at(firstRow, gap);
  for (let left = at(rowCount, gap); left > 0; left--) {
    if ((free[row] as number) <= 0) return false;
    if (++row === rows) row = 0;
  }
  return true;
}

export const covers = ({ free, firstRow, rowCount }: PlanState, gap: number, row: number): boolean =>
  (row - at(firstRow, gap) + free.length) % free.length < at(rowCount, gap);
