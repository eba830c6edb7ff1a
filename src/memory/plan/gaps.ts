// A trace and its slots as the decisions that they leave open. A gap lies between two accesses of a chunk
// whose value lives on: kept on the GPU, it costs a slot at every moment between; dropped, a load. An epoch
// is the time between two changes of a value: if any gap in it is dropped, the value is written back, once.
//
// Every policy is a choice of gaps to keep; so is every plan, and the bound. Moments at which no choice can
// matter more than at their neighbour are left out (`rows` are the others).

import { HoldfastError } from '../../util/errors.ts';
import { chunkCount, peakDemand, type Trace } from './trace.ts';

export interface Gaps {
  readonly trace: Trace;
  readonly slots: readonly number[];
  readonly count: number;
  /** Of each gap: its chunk, and the moments of its two accesses; a gap into the next step ends behind the last moment. */
  readonly chunk: Int32Array;
  readonly from: Int32Array;
  readonly to: Int32Array;
  /** The epoch whose value a gap carries; -1 when nothing changed it since it was last the same everywhere below. */
  readonly epoch: Int32Array;
  /** Gaps of each epoch. */
  readonly epochs: readonly (readonly number[])[];
  /** Kept gaps that each row has room for: slots without those of the moment's own chunks. */
  readonly room: Int32Array;
  /** Rows that a gap covers: `rowCount` rows from `firstRow` on, around the end of the step. 0: it costs nothing to keep. */
  readonly firstRow: Int32Array;
  readonly rowCount: Int32Array;
}

/** Errors: HoldfastError when an operator's chunks alone do not fit. */
export function findGaps(trace: Trace, slots: readonly number[]): Gaps {
  const { moments } = trace;
  const count = moments.length;
  moments.forEach(({ accesses, label }, m) => {
    if (accesses.length <= slots[m]) return;
    throw new HoldfastError(
      `${label} needs ${accesses.length} chunks of ${trace.chunkBytes} bytes on the GPU at once and the budget leaves ` +
        `room for ${Math.max(0, slots[m])}: ${peakDemand(trace)} bytes are enough, or use smaller chunks`,
    );
  });

  const rowOf = rows(trace, slots);
  const rowsInAll = rowOf.at(-1) as number;
  const uses: { moment: number; writes: boolean; frees: boolean }[][] = Array.from(
    { length: chunkCount(trace) },
    () => [],
  );
  moments.forEach(({ accesses, frees }, moment) => {
    for (const { chunk, mode } of accesses) {
      uses[chunk].push({ moment, writes: mode !== 'read', frees: frees.includes(chunk) });
    }
  });

  const gaps: { chunk: number; from: number; to: number; epoch: number }[] = [];
  const epochs: number[][] = [];
  uses.forEach((list, chunk) => {
    const firstWrite = list.findIndex(({ writes }) => writes);
    let epoch = firstWrite < 0 ? -1 : epochs.push([]) - 1;
    // From the first write on, once around, so that the last epoch meets itself.
    for (let i = 0; i < list.length; i++) {
      const at = (Math.max(0, firstWrite) + i) % list.length;
      const now = list[at];
      const next = list[(at + 1) % list.length];
      if (i > 0 && now.writes) epoch = epochs.push([]) - 1;
      if (now.frees) continue;
      const to = next.moment + (next.moment <= now.moment ? count : 0);
      if (epoch >= 0) epochs[epoch].push(gaps.length);
      gaps.push({ chunk, from: now.moment, to, epoch });
    }
  });

  const room = new Int32Array(rowsInAll);
  moments.forEach(({ accesses }, m) => {
    if (rowOf[m] < rowOf[m + 1]) room[rowOf[m]] = slots[m] - accesses.length;
  });
  const rowBefore = (moment: number) => rowOf[moment % count] + (moment >= count ? rowsInAll : 0);
  const firstRow = Int32Array.from(gaps, ({ from }) => rowBefore(from + 1) % Math.max(1, rowsInAll));
  const rowCount = Int32Array.from(gaps, ({ from, to }) => rowBefore(to) - rowBefore(from + 1));
  return {
    trace,
    slots,
    count: gaps.length,
    chunk: Int32Array.from(gaps, ({ chunk }) => chunk),
    from: Int32Array.from(gaps, ({ from }) => from),
    to: Int32Array.from(gaps, ({ to }) => to),
    epoch: Int32Array.from(gaps, ({ epoch }) => epoch),
    epochs,
    room,
    firstRow,
    rowCount,
  };
}

/**
 * For each moment, the number of rows before it; one more entry for the end. A moment is no row when its
 * chunks are among those of the row beside it, which has no more slots: whatever fits there fits here.
 */
function rows({ moments }: Trace, slots: readonly number[]): Int32Array {
  const sets = moments.map(({ accesses }) => new Set(accesses.map(({ chunk }) => chunk)));
  const kept: number[] = [];
  const covers = (a: number, b: number) => slots[a] <= slots[b] && [...sets[b]].every((chunk) => sets[a].has(chunk));
  for (let m = 0; m < moments.length; m++) {
    if (kept.length > 0 && covers(kept.at(-1) as number, m)) continue;
    while (kept.length > 0 && covers(m, kept.at(-1) as number)) kept.pop();
    kept.push(m);
  }
  const before = new Int32Array(moments.length + 1);
  for (const m of kept) before[m + 1] = 1;
  for (let m = 0; m < moments.length; m++) before[m + 1] += before[m];
  return before;
}

/** Chunks moved each way in a step when exactly these gaps are kept. */
export function traffic(gaps: Gaps, keep: Uint8Array): { loads: number; stores: number } {
  let loads = 0;
  for (let gap = 0; gap < gaps.count; gap++) loads += keep[gap] ? 0 : 1;
  const stores = gaps.epochs.reduce((sum, members) => sum + (members.some((gap) => !keep[gap]) ? 1 : 0), 0);
  return { loads, stores };
}

/** The first row in which more gaps are kept than fit; -1 when there is none. */
export function overfullRow(gaps: Gaps, keep: Uint8Array): number {
  const free = freeRoom(gaps, keep);
  return free.findIndex((value) => value < 0);
}

/** The room that is left in each row. */
export function freeRoom({ room, firstRow, rowCount, count }: Gaps, keep: Uint8Array): Int32Array {
  const rows = room.length;
  const change = new Int32Array(rows + 1);
  let wrapped = 0;
  for (let gap = 0; gap < count; gap++) {
    if (!keep[gap] || rowCount[gap] === 0) continue;
    const end = firstRow[gap] + rowCount[gap];
    change[firstRow[gap]]--;
    if (end <= rows) change[end]++;
    else {
      wrapped++;
      change[end - rows]++;
    }
  }
  const free = new Int32Array(rows);
  let sum = -wrapped;
  for (let row = 0; row < rows; row++) {
    sum += change[row];
    free[row] = room[row] + sum;
  }
  return free;
}
