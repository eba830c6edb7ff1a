// The plan that we run: Belady's choice as a start, then exchanges that take write-backs and the whole step
// into account. A gap is brought in if the cheapest set of kept gaps that makes room for it costs less; what
// room is left over is filled. Milliseconds, no solver; deterministic.
//
// Invariant: no row is ever overfull, and every exchange that stays lowers what the step moves or, at equal
// traffic, the room that is taken. So it ends.

import { at } from '../../util/at.ts';
import { Random } from '../../util/random.ts';
import { findGaps, type Gaps } from './gaps.ts';
import type { Decision } from './policies.ts';
import { chunkCount, type Trace } from './trace.ts';

/** Gaps to keep in one step. Errors: HoldfastError when an operator's chunks alone do not fit. */
export function planStep(trace: Trace, slots: readonly number[]): Decision {
  const gaps = findGaps(trace, slots);
  const state = stateOf(gaps);
  belady(state);
  const decision = { steps: 1, gaps, keep: state.keep };
  // Where all fits, nothing is to be exchanged, whatever the number of rows and chunks.
  if (state.keep.every((kept) => kept === 1)) return decision;
  const exchange = new Exchange(state);
  exchange.fill();
  exchange.improve();
  exchange.shake();
  return decision;
}

const MOST_LAPS = 6;
const MOST_SWEEPS = 50;
const NEXT_TO_NOTHING = 0.0005;
const MOST_SHAKES = 60;
/** Rows and chunks looked at, behind which no shake begins: a plan takes tens of milliseconds. */
const MOST_WORK = 500_000;

interface Row {
  readonly index: number;
  readonly room: number;
  /** Room that no kept gap takes. */
  free: number;
  /** Gaps whose first row it is, and the indices of those whose last it is. */
  readonly starting: PlannedGap[];
  readonly ending: number[];
}

/** A gap as the planner changes it: see `Gap` of gaps.ts. */
interface PlannedGap {
  readonly index: number;
  readonly chunk: number;
  readonly firstRow: number;
  readonly rowCount: number;
  epoch: Epoch | undefined;
  /** While laps are run, the row behind its last, counted over all laps. */
  end: number;
}

interface Epoch {
  readonly members: readonly PlannedGap[];
  /** How many of them are not kept. */
  missing: number;
}

interface PlanState {
  readonly chunks: number;
  readonly rows: readonly Row[];
  /** The rows twice, so that those of a gap lie in one piece. */
  readonly around: readonly Row[];
  readonly gaps: readonly PlannedGap[];
  readonly epochs: readonly Epoch[];
  /** 1 for a gap that is kept. */
  readonly keep: Uint8Array;
}

/** All gaps kept, whether they fit or not: `free` and `missing` are not counted yet. */
function stateOf({ trace, list, room, epochs }: Gaps): PlanState {
  const rows = Array.from(room, (room, index): Row => ({ index, room, free: room, starting: [], ending: [] }));
  const around = [...rows, ...rows];
  const gaps = list.map(({ index, chunk, firstRow, rowCount }): PlannedGap => {
    const gap = { index, chunk, firstRow, rowCount, epoch: undefined, end: 0 };
    if (rowCount > 0) {
      around[firstRow]?.starting.push(gap);
      around[firstRow + rowCount - 1]?.ending.push(index);
    }
    return gap;
  });
  return {
    chunks: chunkCount(trace),
    rows,
    around,
    gaps,
    epochs: epochs.map((members) => {
      const epoch = { members: members.map(({ index }) => at(gaps, index)), missing: 0 };
      for (const gap of epoch.members) gap.epoch = epoch;
      return epoch;
    }),
    keep: new Uint8Array(gaps.length).fill(1),
  };
}

/** Belady over rows: where more gaps are kept than fit, the one that ends last leaves. */
function belady({ rows, around, gaps, keep }: PlanState): void {
  // Kept gaps that cover the row.
  let active: PlannedGap[] = [];
  // Around and around: each lap finds out better what is here when a step begins, until nothing changes.
  let before = keep.slice();
  for (let lap = 0; lap < MOST_LAPS; lap++) {
    if (lap > 1) {
      if (keep.every((kept, gap) => kept === before[gap])) break;
      before = keep.slice();
    }
    for (const { index, room, starting } of rows) {
      const now = lap * rows.length + index;
      // A gap's fate is known when it ends or is cut short; one into the next step, only there.
      for (const { end, index: gap } of active) if (end <= now) keep[gap] = 1;
      active = active.filter(({ end }) => end > now);
      for (const gap of starting) {
        gap.end = now + gap.rowCount;
        active.push(gap);
      }
      while (active.length > room) {
        let last = active[0];
        if (!last) break;
        for (const other of active) {
          if (other.end > last.end || (other.end === last.end && other.index < last.index)) last = other;
        }
        keep[last.index] = 0;
        active.splice(active.indexOf(last), 1);
      }
    }
  }
  for (const gap of gaps) if (keep[gap.index]) takeRoom(around, gap, 1);
  // The last laps may still differ where they meet.
  for (const row of rows) {
    for (const gap of gaps) {
      if (row.free >= 0) break;
      if (!keep[gap.index] || !covers(gap, row, rows.length)) continue;
      keep[gap.index] = 0;
      takeRoom(around, gap, -1);
    }
  }
}

function takeRoom(around: readonly Row[], { firstRow, rowCount }: PlannedGap, room: 1 | -1): void {
  for (let i = firstRow; i < firstRow + rowCount; i++) {
    const row = around[i];
    if (row) row.free -= room;
  }
}

function fits(around: readonly Row[], { firstRow, rowCount }: PlannedGap): boolean {
  for (let i = firstRow; i < firstRow + rowCount; i++) {
    const row = around[i];
    if (!row || row.free <= 0) return false;
  }
  return true;
}

const covers = ({ firstRow, rowCount }: PlannedGap, { index }: Row, rows: number): boolean =>
  (index - firstRow + rows) % rows < rowCount;

/**
 * The search by exchanges: which gaps are kept, what the step moves with them, and changes that are tried and taken
 * back.
 */
class Exchange {
  readonly #keep: Uint8Array;
  readonly #gaps: readonly PlannedGap[];
  readonly #rows: readonly Row[];
  readonly #around: readonly Row[];
  readonly #epochs: readonly Epoch[];
  /** Of each row and chunk: the gap that covers both, plus 1; 0 for none. */
  readonly #covering: Int32Array;
  readonly #chunks: number;
  /** What a row of room is worth against a chunk moved: too little to decide anything but ties. */
  readonly #tie: number;
  /** See cheapestRoom: the least costs, and the gap that leaves for it; undefined where there is room. */
  readonly #reached: Float64Array;
  readonly #via: (PlannedGap | undefined)[];
  #log: PlannedGap[] | undefined;
  /** Rows and chunks looked at: a stop-watch that does not depend on the machine. */
  #work = 0;
  /** Chunks moved in a step, and a little for the room taken. */
  #cost = 0;

  constructor({ chunks, rows, around, gaps, epochs, keep }: PlanState) {
    this.#keep = keep;
    this.#gaps = gaps;
    this.#rows = rows;
    this.#around = around;
    this.#epochs = epochs;
    this.#chunks = chunks;
    this.#covering = new Int32Array(rows.length * chunks);
    this.#tie = 1 / (1 + 4 * rows.reduce((sum, { room }) => sum + room, 0));
    for (const gap of gaps) {
      for (let i = 0; i < gap.rowCount; i++) {
        this.#covering[((gap.firstRow + i) % rows.length) * chunks + gap.chunk] = gap.index + 1;
      }
      this.#cost += keep[gap.index] ? this.#tie * gap.rowCount : 1;
    }
    for (const epoch of epochs) {
      epoch.missing = epoch.members.filter(({ index }) => !keep[index]).length;
      this.#cost += epoch.missing > 0 ? 1 : 0;
    }
    this.#reached = new Float64Array(rows.length + 1);
    this.#via = rows.map(() => undefined);
  }

  /** Keeps what fits, the shortest first. */
  fill(): void {
    for (const gap of this.#dropped().sort((a, b) => a.rowCount - b.rowCount)) {
      if (fits(this.#around, gap)) this.#set(gap, 1);
    }
  }

  /** Exchanges until a sweep over all gaps, then over all epochs, saves next to nothing. */
  improve(): void {
    for (let sweep = 0; sweep < MOST_SWEEPS; sweep++) {
      const before = this.#cost;
      const enough = Math.max(1 / 2, before * NEXT_TO_NOTHING);
      for (const gap of this.#dropped()) if (!this.#keep[gap.index]) this.#bringIn(gap);
      this.fill();
      if (before - this.#cost >= enough) continue;
      for (const epoch of this.#epochs) if (epoch.missing > 1) this.#bringInEpoch(epoch);
      this.fill();
      if (before - this.#cost < enough) return;
    }
  }

  /**
   * Out of where no single exchange helps: drops what lies on a row, all of it, lets others have the room, and keeps
   * what comes of it if that moves no more. The rows are drawn with a seed: the same trace has the same plan.
   */
  shake(): void {
    const random = new Random(1, 'shakes');
    for (let n = 0; n < MOST_SHAKES && this.#rows.length > 0 && this.#work < MOST_WORK; n++) {
      const before = this.#cost;
      const log: PlannedGap[] = [];
      this.#log = log;
      const row = at(this.#rows, random.below(this.#rows.length));
      const left = new Set<PlannedGap>();
      for (const gap of this.#gaps) {
        if (this.#keep[gap.index] && covers(gap, row, this.#rows.length) && random.below(2) === 0) left.add(gap);
      }
      for (const gap of left) this.#set(gap, 0);
      // Those that were here come last.
      for (const gap of this.#dropped()) if (!this.#keep[gap.index] && !left.has(gap)) this.#bringIn(gap);
      for (const epoch of this.#epochs) if (epoch.missing > 1) this.#bringInEpoch(epoch);
      this.improve();
      this.#log = undefined;
      if (this.#cost <= before) continue;
      for (const gap of log.reverse()) this.#set(gap, this.#keep[gap.index] ? 0 : 1);
    }
  }

  #dropped(): PlannedGap[] {
    return this.#gaps.filter(({ index }) => !this.#keep[index]);
  }

  /** Chunks not moved if this gap is kept, or moved if it is dropped: as the others are now. */
  #worth({ epoch, index, rowCount }: PlannedGap): number {
    const others = epoch ? epoch.missing - (this.#keep[index] ? 0 : 1) : 1;
    return (others === 0 ? 2 : 1) - this.#tie * rowCount;
  }

  #set(gap: PlannedGap, kept: 0 | 1): void {
    const { epoch, rowCount } = gap;
    this.#keep[gap.index] = kept;
    const change = kept ? -1 : 1;
    takeRoom(this.#around, gap, kept ? 1 : -1);
    this.#cost += change * (1 - this.#tie * rowCount);
    this.#log?.push(gap);
    if (!epoch) return;
    const { missing } = epoch;
    epoch.missing = missing + change;
    this.#cost += (missing + change > 0 ? 1 : 0) - (missing > 0 ? 1 : 0);
  }

  #exchange(gap: PlannedGap, room: readonly PlannedGap[]): void {
    // One that reaches around the step may make room twice.
    for (const other of room) if (this.#keep[other.index]) this.#set(other, 0);
    this.#set(gap, 1);
  }

  /** Keeps a gap if the cheapest room for it costs less than what it saves. */
  #bringIn(gap: PlannedGap): void {
    const room = this.#cheapestRoom(gap, this.#worth(gap));
    if (room) this.#exchange(gap, room);
  }

  /**
   * The kept gaps whose leaving makes room for `gap` at the least cost, if that is below `worth`. From its
   * last row to its first, cost[p] is the least that settles all rows from p on: row p is settled for free
   * where it has room, and a kept gap settles all its rows at once.
   */
  #cheapestRoom({ rowCount: length, firstRow: start }: PlannedGap, worth: number): PlannedGap[] | undefined {
    const rows = this.#rows.length;
    this.#work += length + this.#chunks;
    const cost = this.#reached.fill(worth, 0, length);
    const via = this.#via;
    let furthest = length;
    const reach = (position: number, value: number, by: PlannedGap | undefined) => {
      const reached = cost[position];
      if (reached === undefined || value >= reached) return;
      cost[position] = value;
      via[position] = by;
      if (position < furthest) furthest = position;
    };
    cost[length] = 0;
    // Those that go on past the end.
    const last = (start + length - 1) % rows;
    for (let place = last * this.#chunks; place < (last + 1) * this.#chunks; place++) {
      const number = this.#covering[place];
      const other = number && this.#keep[number - 1] ? this.#gaps[number - 1] : undefined;
      if (!other) continue;
      const offset = (last - other.firstRow + rows) % rows;
      if (offset < other.rowCount - 1) reach(Math.max(0, length - 1 - offset), this.#worth(other), other);
    }
    for (let p = length; p > 0; p--) {
      const reached = cost[p];
      const row = this.#around[start + p - 1];
      if (reached === undefined || !row || p < furthest) return undefined;
      if (reached >= worth) continue;
      if (row.free > 0) reach(p - 1, reached, undefined);
      for (const index of row.ending) {
        const other = this.#keep[index] ? this.#gaps[index] : undefined;
        if (other) reach(Math.max(0, p - other.rowCount), reached + this.#worth(other), other);
      }
    }
    if (at(cost, 0) >= worth) return undefined;
    const room: PlannedGap[] = [];
    for (let p = 0; p < length; ) {
      const by = via[p];
      if (!by) p++;
      else {
        room.push(by);
        const offset = (start + p - by.firstRow + rows) % rows;
        p = Math.min(length, p + by.rowCount - offset);
      }
    }
    return room;
  }

  /** Brings in all dropped gaps of an epoch, one by one at any price, if together they save more. */
  #bringInEpoch(epoch: Epoch): void {
    const before = this.#cost;
    const outer = this.#log;
    const log: PlannedGap[] = [];
    this.#log = log;
    for (const gap of epoch.members) {
      if (this.#keep[gap.index]) continue;
      const room = this.#cheapestRoom(gap, epoch.missing + 1 + before - this.#cost);
      if (!room || room.some((other) => other.epoch === epoch)) break;
      this.#exchange(gap, room);
    }
    this.#log = undefined;
    if (epoch.missing === 0 && this.#cost < before - this.#tie / 2) {
      for (const gap of log) outer?.push(gap);
    } else for (const gap of log.reverse()) this.#set(gap, this.#keep[gap.index] ? 0 : 1);
    this.#log = outer;
  }
}
