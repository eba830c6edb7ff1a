// What becomes of a step when some of its gaps are kept: the chunks that are moved, and the room that is left, counted anew of
// the gaps alone.

import type { Gap, Gaps } from '../../src/memory/plan/gaps.ts';
import { at } from '../../src/util/at.ts';

/** Chunks moved each way in a step when exactly these gaps are kept. */
export function traffic({ list, epochs, forced }: Gaps, keep: Uint8Array): { loads: number; stores: number } {
  const isDropped = ({ index }: Gap) => !keep[index];
  return {
    loads: list.filter(isDropped).length + forced.arrivals.length,
    stores: epochs.filter((members) => members.some(isDropped)).length + forced.stores,
  };
}

/** The first row in which more gaps are kept than fit; -1 when there is none. */
export function overfullRow(gaps: Gaps, keep: Uint8Array): number {
  return freeRoom(gaps, keep).findIndex((value) => value < 0);
}

/** The room that is left in each row. */
export function freeRoom({ list, room }: Gaps, keep: Uint8Array): Int32Array {
  const rows = room.length;
  // By how many more gaps a row is covered than the one before; the last entry is that of the step's end.
  const change = new Int32Array(rows + 1);
  const add = (row: number, difference: number) => {
    change[row] = at(change, row) + difference;
  };
  for (const { index, firstRow, rowCount } of list) {
    if (!keep[index] || rowCount === 0) continue;
    const end = firstRow + rowCount;
    add(firstRow, 1);
    if (end > rows) add(0, 1);
    add(end > rows ? end - rows : end, -1);
  }
  let covered = 0;
  return Int32Array.from(room, (own, row) => {
    covered += at(change, row);
    return own - covered;
  });
}
