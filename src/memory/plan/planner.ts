// The plan that we run: Belady's choice as a start, then exchanges that take write-backs and the whole step
// into account. A gap is brought in if the cheapest set of kept gaps that makes room for it costs less; what
// room is left over is filled. Milliseconds, no solver; deterministic.
//
// Invariant: no row is ever overfull, and every exchange that stays lowers what the step moves or, at equal
// traffic, the room that is taken. So it ends.

import { Random } from '../../util/random.ts';
import { findGaps, freeRoom, type Gaps } from './gaps.ts';
import type { Decision } from './policies.ts';
import { chunkCount, type Trace } from './trace.ts';

/** Gaps to keep in one step. Errors: HoldfastError when an operator's chunks alone do not fit. */
export function planStep(trace: Trace, slots: readonly number[]): Decision {
  const gaps = findGaps(trace, slots);
  const exchange = new Exchange(gaps, belady(gaps));
  exchange.fill();
  exchange.improve();
  exchange.shake();
  return { steps: 1, gaps, keep: exchange.keep };
}

const MOST_LAPS = 6;
const MOST_SWEEPS = 50;
const NEXT_TO_NOTHING = 0.0005;
const MOST_SHAKES = 60;
/** Rows and chunks looked at, behind which no shake begins: a plan takes tens of milliseconds. */
const MOST_WORK = 500_000;

/** Belady over rows: where more gaps are kept than fit, the one that ends last leaves. */
function belady(gaps: Gaps): Uint8Array {
  const { count, room, firstRow, rowCount } = gaps;
  const rows = room.length;
  const keep = new Uint8Array(count).fill(1);
  const starting: number[][] = Array.from({ length: rows }, () => []);
  for (let gap = 0; gap < count; gap++) if (rowCount[gap] > 0) starting[firstRow[gap]].push(gap);
  // Kept gaps that cover the row, and the row behind their end.
  let active: number[] = [];
  const end = new Int32Array(count);
  // Around and around: each lap finds out better what is here when a step begins, until nothing changes.
  let before = keep.slice();
  for (let row = 0; row < MOST_LAPS * rows; row++) {
    const lap = row - (row % rows);
    if (row === lap && lap > rows) {
      if (keep.every((kept, gap) => kept === before[gap])) break;
      before = keep.slice();
    }
    // A gap's fate is known when it ends or is cut short; one into the next step, only there.
    for (const gap of active) if (end[gap] <= row) keep[gap] = 1;
    active = active.filter((gap) => end[gap] > row);
    for (const gap of starting[row - lap]) {
      end[gap] = row + rowCount[gap];
      active.push(gap);
    }
    for (let excess = active.length - room[row - lap]; excess > 0; excess--) {
      let worst = 0;
      for (let i = 1; i < active.length; i++) {
        const order = end[active[i]] - end[active[worst]];
        if (order > 0 || (order === 0 && active[i] < active[worst])) worst = i;
      }
      keep[active[worst]] = 0;
      active[worst] = active[active.length - 1];
      active.pop();
    }
  }
  // The last laps may still differ where they meet.
  const free = freeRoom(gaps, keep);
  for (let row = 0; row < rows; row++) {
    for (let gap = 0; gap < count && free[row] < 0; gap++) {
      if (!keep[gap] || rowCount[gap] === 0 || (row - firstRow[gap] + rows) % rows >= rowCount[gap]) continue;
      keep[gap] = 0;
      for (let i = 0; i < rowCount[gap]; i++) free[(firstRow[gap] + i) % rows]++;
    }
  }
  return keep;
}

class Exchange {
  readonly keep: Uint8Array;
  readonly #gaps: Gaps;
  readonly #rows: number;
  readonly #free: Int32Array;
  /** Gaps of each epoch that are not kept. */
  readonly #missing: Int32Array;
  /** Gaps by the row behind their last. */
  readonly #ending: number[][];
  /** Of each row and chunk: the gap that covers both, plus 1; 0 for none. */
  readonly #covering: Int32Array;
  readonly #chunks: number;
  /** What a row of room is worth against a chunk moved: too little to decide anything but ties. */
  readonly #tie: number;
  readonly #reached: Float64Array;
  readonly #via: Int32Array;
  #log: number[] | undefined;
  /** Rows and chunks looked at: a stop-watch that does not depend on the machine. */
  #work = 0;
  /** Chunks moved in a step, and a little for the room taken. */
  #cost = 0;

  constructor(gaps: Gaps, keep: Uint8Array) {
    this.#gaps = gaps;
    this.keep = keep;
    this.#rows = gaps.room.length;
    this.#free = freeRoom(gaps, keep);
    this.#missing = Int32Array.from(gaps.epochs, (members) => members.filter((gap) => !keep[gap]).length);
    this.#ending = Array.from({ length: this.#rows }, () => []);
    for (let gap = 0; gap < gaps.count; gap++) {
      if (gaps.rowCount[gap] > 0) this.#ending[(gaps.firstRow[gap] + gaps.rowCount[gap]) % this.#rows].push(gap);
    }
    this.#chunks = chunkCount(gaps.trace);
    this.#covering = new Int32Array(this.#rows * this.#chunks);
    this.#tie = 1 / (1 + 4 * gaps.room.reduce((a, b) => a + b, 0));
    for (let gap = 0; gap < gaps.count; gap++) {
      for (let i = 0; i < gaps.rowCount[gap]; i++) {
        this.#covering[((gaps.firstRow[gap] + i) % this.#rows) * this.#chunks + gaps.chunk[gap]] = gap + 1;
      }
      this.#cost += keep[gap] ? this.#tie * gaps.rowCount[gap] : 1;
    }
    for (const missing of this.#missing) this.#cost += missing > 0 ? 1 : 0;
    this.#reached = new Float64Array(this.#rows + 1);
    this.#via = new Int32Array(this.#rows + 1);
  }

  /** Keeps what fits, the shortest first. */
  fill(): void {
    const { rowCount } = this.#gaps;
    for (const gap of this.#dropped().sort((a, b) => rowCount[a] - rowCount[b])) if (this.#fits(gap)) this.#set(gap, 1);
  }

  /** Exchanges until a sweep over all gaps, then over all epochs, saves next to nothing. */
  improve(): void {
    for (let sweep = 0; sweep < MOST_SWEEPS; sweep++) {
      const before = this.#cost;
      const enough = Math.max(1 / 2, before * NEXT_TO_NOTHING);
      for (const gap of this.#dropped()) if (!this.keep[gap]) this.#bringIn(gap);
      this.fill();
      if (before - this.#cost >= enough) continue;
      for (let epoch = 0; epoch < this.#missing.length; epoch++) {
        if (this.#missing[epoch] > 1) this.#bringInEpoch(epoch);
      }
      this.fill();
      if (before - this.#cost < enough) return;
    }
  }

  /**
   * Out of where no single exchange helps: drops what lies on a row, all of it, lets others have the room, and keeps
   * what comes of it if that moves no more. The rows are drawn with a seed: the same trace has the same plan.
   */
  shake(): void {
    const { firstRow, rowCount, count } = this.#gaps;
    const random = new Random(1, 'shakes');
    for (let n = 0; n < MOST_SHAKES && this.#rows > 0 && this.#work < MOST_WORK; n++) {
      const before = this.#cost;
      const log: number[] = [];
      this.#log = log;
      const row = random.below(this.#rows);
      const left = new Set<number>();
      for (let gap = 0; gap < count; gap++) {
        const covers = (row - firstRow[gap] + this.#rows) % this.#rows < rowCount[gap];
        if (this.keep[gap] && covers && random.below(2) === 0) left.add(gap);
      }
      for (const gap of left) this.#set(gap, 0);
      // Those that were here come last.
      for (const gap of this.#dropped()) if (!this.keep[gap] && !left.has(gap)) this.#bringIn(gap);
      for (let epoch = 0; epoch < this.#missing.length; epoch++) {
        if (this.#missing[epoch] > 1) this.#bringInEpoch(epoch);
      }
      this.improve();
      this.#log = undefined;
      if (this.#cost <= before) continue;
      for (const gap of log.reverse()) this.#set(gap, this.keep[gap] ? 0 : 1);
    }
  }

  #dropped(): number[] {
    const list: number[] = [];
    for (let gap = 0; gap < this.#gaps.count; gap++) if (!this.keep[gap]) list.push(gap);
    return list;
  }

  /** Chunks not moved if this gap is kept, or moved if it is dropped: as the others are now. */
  #worth(gap: number): number {
    const epoch = this.#gaps.epoch[gap];
    const others = epoch < 0 ? 1 : this.#missing[epoch] - (this.keep[gap] ? 0 : 1);
    return (others === 0 ? 2 : 1) - this.#tie * this.#gaps.rowCount[gap];
  }

  #fits(gap: number): boolean {
    const { firstRow, rowCount } = this.#gaps;
    for (let i = 0; i < rowCount[gap]; i++) if (this.#free[(firstRow[gap] + i) % this.#rows] <= 0) return false;
    return true;
  }

  #set(gap: number, kept: 0 | 1): void {
    const { firstRow, rowCount, epoch } = this.#gaps;
    this.keep[gap] = kept;
    const change = kept ? -1 : 1;
    const end = firstRow[gap] + rowCount[gap];
    for (let row = firstRow[gap]; row < Math.min(end, this.#rows); row++) this.#free[row] += change;
    for (let row = 0; row < end - this.#rows; row++) this.#free[row] += change;
    this.#cost += change * (1 - this.#tie * rowCount[gap]);
    this.#log?.push(gap);
    if (epoch[gap] < 0) return;
    const missing = this.#missing[epoch[gap]];
    this.#missing[epoch[gap]] = missing + change;
    this.#cost += (missing + change > 0 ? 1 : 0) - (missing > 0 ? 1 : 0);
  }

  #exchange(gap: number, room: readonly number[]): void {
    // One that reaches around the step may make room twice.
    for (const other of room) if (this.keep[other]) this.#set(other, 0);
    this.#set(gap, 1);
  }

  /** Keeps a gap if the cheapest room for it costs less than what it saves. */
  #bringIn(gap: number): void {
    const room = this.#cheapestRoom(gap, this.#worth(gap));
    if (room) this.#exchange(gap, room);
  }

  /**
   * The kept gaps whose leaving makes room for `gap` at the least cost, if that is below `worth`. From its
   * last row to its first, cost[p] is the least that settles all rows from p on: row p is settled for free
   * where it has room, and a kept gap settles all its rows at once.
   */
  #cheapestRoom(gap: number, worth: number): number[] | undefined {
    const { firstRow, rowCount } = this.#gaps;
    const rows = this.#rows;
    const start = firstRow[gap];
    const length = rowCount[gap];
    this.#work += length + this.#chunks;
    const cost = this.#reached.fill(worth, 0, length);
    const via = this.#via;
    let furthest = length;
    const reach = (position: number, value: number, by: number) => {
      if (value >= cost[position]) return;
      cost[position] = value;
      via[position] = by;
      if (position < furthest) furthest = position;
    };
    cost[length] = 0;
    // Those that go on past the end.
    const last = (start + length - 1) % rows;
    for (let at = last * this.#chunks; at < (last + 1) * this.#chunks; at++) {
      const other = this.#covering[at] - 1;
      if (other < 0 || !this.keep[other]) continue;
      const offset = (last - firstRow[other] + rows) % rows;
      if (offset < rowCount[other] - 1) reach(Math.max(0, length - 1 - offset), this.#worth(other), other);
    }
    for (let p = length; p > 0; p--) {
      if (p < furthest) return undefined;
      if (cost[p] >= worth) continue;
      if (this.#free[(start + p - 1) % rows] > 0) reach(p - 1, cost[p], -1);
      for (const other of this.#ending[(start + p) % rows]) {
        if (this.keep[other]) reach(Math.max(0, p - rowCount[other]), cost[p] + this.#worth(other), other);
      }
    }
    if (cost[0] >= worth) return undefined;
    const room: number[] = [];
    for (let p = 0; p < length; ) {
      const by = via[p];
      if (by < 0) p++;
      else {
        room.push(by);
        const offset = (start + p - firstRow[by] + rows) % rows;
        p = Math.min(length, p + rowCount[by] - offset);
      }
    }
    return room;
  }

  /** Brings in all dropped gaps of an epoch, one by one at any price, if together they save more. */
  #bringInEpoch(epoch: number): void {
    const before = this.#cost;
    const outer = this.#log;
    const log: number[] = [];
    this.#log = log;
    const own = new Set(this.#gaps.epochs[epoch]);
    for (const gap of own) {
      if (this.keep[gap]) continue;
      const room = this.#cheapestRoom(gap, this.#missing[epoch] + 1 + before - this.#cost);
      if (!room || room.some((other) => own.has(other))) break;
      this.#exchange(gap, room);
    }
    this.#log = undefined;
    if (this.#missing[epoch] === 0 && this.#cost < before - this.#tie / 2) outer?.push(...log);
    else for (const gap of log.reverse()) this.#set(gap, this.keep[gap] ? 0 : 1);
    this.#log = outer;
  }
}
