// `Exchange`: the search by exchanges for gaps to keep: which are kept, what the step moves with them, and changes that are tried
// and taken back. A gap is brought in if the cheapest set of kept gaps that makes room for it costs less; what room is left
// over is filled.
//
// Invariant: no row is ever overfull, and every exchange that stays lowers what the step moves or, at equal
// traffic, the room that is taken. So it ends.

import { at } from '../../util/at.ts';
import { Random } from '../../util/random.ts';
import { covers, fits, type PlanState, takeRoom } from './plan-state.ts';

const MOST_SWEEPS = 50;
const NEXT_TO_NOTHING = 0.0005;
const MOST_SHAKES = 60;
/** Shakes in a row that move no chunk less, behind which none is tried. */
const FRUITLESS_SHAKES = 12;
/** Rows and chunks looked at, behind which no shake begins: a plan takes tens of milliseconds. */
const MOST_WORK = 500_000;

/** In place of a gap. */
const NONE = -1;

export class Exchange {
  readonly #state: PlanState;
  /** By row, once it was asked for: the gaps that cover it and go on behind it, by their chunks. */
  readonly #goingOn: (Int32Array | undefined)[];
  readonly #found: Int32Array;
  /** What a row of room is worth against a chunk moved: too little to decide anything but ties. */
  readonly #tie: number;
  /** By gap: what its rows of room are worth. */
  readonly #tieOf: Float64Array;
  /** See cheapestRoom: the least costs, and the gap that leaves for it; NONE where there is room. */
  readonly #reached: Float64Array;
  readonly #via: Int32Array;
  #log: number[] | undefined;
  /** Rows and chunks looked at: a stop-watch that does not depend on the machine. */
  #work = 0;
  /** Chunks moved in a step, and a little for the room taken. */
  #cost = 0;

  constructor(state: PlanState) {
    const { room, rowCount, members, missing, keep } = state;
    this.#state = state;
    this.#goingOn = Array.from(room, () => undefined);
    this.#tie = 1 / (1 + 4 * room.reduce((sum, rows) => sum + rows, 0));
    this.#tieOf = Float64Array.from(rowCount, (rows) => this.#tie * rows);
    keep.forEach((kept, gap) => {
      this.#cost += kept ? at(this.#tieOf, gap) : 1;
    });
    this.#found = new Int32Array(keep.length);
    for (const [epoch, gaps] of members.entries()) {
      missing[epoch] = gaps.filter((gap) => !keep[gap]).length;
      this.#cost += at(missing, epoch) > 0 ? 1 : 0;
    }
    this.#reached = new Float64Array(room.length + 1);
    this.#via = new Int32Array(room.length + 1);
  }

  /** Keeps what fits, the shortest first. */
  fill(): void {
    const { rowCount } = this.#state;
    for (const gap of this.#dropped().sort((a, b) => at(rowCount, a) - at(rowCount, b))) {
      if (fits(this.#state, gap)) this.#set(gap, 1);
    }
  }

  /** Exchanges until a sweep over all gaps, then over all epochs, saves next to nothing. */
  improve(): void {
    const { keep } = this.#state;
    for (let sweep = 0; sweep < MOST_SWEEPS; sweep++) {
      const before = this.#cost;
      const enough = Math.max(1 / 2, before * NEXT_TO_NOTHING);
      for (const gap of this.#dropped()) if (!keep[gap]) this.#bringIn(gap);
      this.fill();
      if (before - this.#cost >= enough) continue;
      this.#bringInEpochs();
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
    const { keep, room } = this.#state;
    const rows = room.length;
    let fruitless = 0;
    for (let n = 0; n < MOST_SHAKES && rows > 0 && this.#work < MOST_WORK && fruitless < FRUITLESS_SHAKES; n++) {
      const before = this.#cost;
      const log: number[] = [];
      this.#log = log;
      const row = random.below(rows);
      const left = new Set<number>();
      keep.forEach((kept, gap) => {
        if (kept && covers(this.#state, gap, row) && random.below(2) === 0) left.add(gap);
      });
      for (const gap of left) this.#set(gap, 0);
      // Those that were here come last.
      for (const gap of this.#dropped()) if (!keep[gap] && !left.has(gap)) this.#bringIn(gap);
      this.#bringInEpochs();
      this.improve();
      this.#log = undefined;
      fruitless = this.#cost < before - 1 / 2 ? 0 : fruitless + 1;
      if (this.#cost <= before) continue;
      this.#takeBack(log);
    }
  }

  #dropped(): number[] {
    const found: number[] = [];
    this.#state.keep.forEach((kept, gap) => {
      if (!kept) found.push(gap);
    });
    return found;
  }

  /** Chunks not moved if this gap is kept, or moved if it is dropped: as the others are now. */
  #worth(gap: number): number {
    const { epochOf, missing, keep } = this.#state;
    const epoch = at(epochOf, gap);
    const others = epoch === NONE ? 1 : at(missing, epoch) - (keep[gap] ? 0 : 1);
    return (others === 0 ? 2 : 1) - at(this.#tieOf, gap);
  }

  #set(gap: number, kept: 0 | 1): void {
    const { epochOf, missing, keep } = this.#state;
    keep[gap] = kept;
    const change = kept ? -1 : 1;
    takeRoom(this.#state, gap, kept ? 1 : -1);
    this.#cost += change * (1 - at(this.#tieOf, gap));
    this.#log?.push(gap);
    const epoch = at(epochOf, gap);
    if (epoch === NONE) return;
    const before = at(missing, epoch);
    missing[epoch] = before + change;
    this.#cost += (before + change > 0 ? 1 : 0) - (before > 0 ? 1 : 0);
  }

  /** What was changed is as it was. */
  #takeBack(log: number[]): void {
    for (const gap of log.reverse()) this.#set(gap, this.#state.keep[gap] ? 0 : 1);
  }

  #exchange(gap: number, room: readonly number[]): void {
    // One that reaches around the step may make room twice.
    for (const other of room) if (this.#state.keep[other]) this.#set(other, 0);
    this.#set(gap, 1);
  }

  /** Keeps a gap if the cheapest room for it costs less than what it saves. */
  #bringIn(gap: number): void {
    const room = this.#cheapestRoom(gap, this.#worth(gap));
    if (room) this.#exchange(gap, room);
  }

  /** The gaps that cover a row and go on behind it. */
  #goingOnAt(row: number): Int32Array {
    const known = this.#goingOn[row];
    if (known) return known;
    const { firstRow, rowCount, room } = this.#state;
    const rows = room.length;
    const found = this.#found;
    let count = 0;
    for (let gap = 0; gap < firstRow.length; gap++) {
      const offset = row - (firstRow[gap] as number);
      if ((offset < 0 ? offset + rows : offset) < (rowCount[gap] as number) - 1) found[count++] = gap;
    }
    const list = found.slice(0, count);
    this.#goingOn[row] = list;
    return list;
  }

  /**
   * The kept gaps whose leaving makes room for a gap at the least cost, if that is below `worth`. From its
   * last row to its first, cost[p] is the least that settles all rows from p on: row p is settled for free
   * where it has room, and a kept gap settles all its rows at once.
   */
  #cheapestRoom(gap: number, worth: number): number[] | undefined {
    const { chunks, free, ending, firstRow, rowCount, keep, epochOf, missing } = this.#state;
    const tieOf = this.#tieOf;
    const rows = free.length;
    const length = at(rowCount, gap);
    const start = at(firstRow, gap);
    this.#work += length + chunks;
    const cost = this.#reached.fill(worth, 0, length);
    const via = this.#via;
    let furthest = length;
    cost[length] = 0;
    // Those that go on past the end.
    const last = (start + length - 1) % rows;
    for (const other of this.#goingOnAt(last)) {
      if (!keep[other]) continue;
      const offset = (last - (firstRow[other] as number) + rows) % rows;
      const position = Math.max(0, length - 1 - offset);
      // As #worth has it, of one that is kept: this is what a plan takes most of its time for.
      const epoch = epochOf[other] as number;
      const value = (epoch >= 0 && missing[epoch] === 0 ? 2 : 1) - (tieOf[other] as number);
      if (value >= (cost[position] as number)) continue;
      cost[position] = value;
      via[position] = other;
      if (position < furthest) furthest = position;
    }
    for (let p = length; p > 0; p--) {
      if (p < furthest) return undefined;
      const reached = cost[p] as number;
      if (reached >= worth) continue;
      const row = (start + p - 1) % rows;
      if ((free[row] as number) > 0 && reached < (cost[p - 1] as number)) {
        cost[p - 1] = reached;
        via[p - 1] = NONE;
        if (p - 1 < furthest) furthest = p - 1;
      }
      for (const other of ending[row] as readonly number[]) {
        if (!keep[other]) continue;
        const position = Math.max(0, p - (rowCount[other] as number));
        const epoch = epochOf[other] as number;
        const value = reached + ((epoch >= 0 && missing[epoch] === 0 ? 2 : 1) - (tieOf[other] as number));
        if (value >= (cost[position] as number)) continue;
        cost[position] = value;
        via[position] = other;
        if (position < furthest) furthest = position;
      }
    }
    if (at(cost, 0) >= worth) return undefined;
    const room: number[] = [];
    for (let p = 0; p < length; ) {
      const by = at(via, p);
      if (by === NONE) p++;
      else {
        room.push(by);
        const offset = (start + p - at(firstRow, by) + rows) % rows;
        p = Math.min(length, p + at(rowCount, by) - offset);
      }
    }
    return room;
  }

  #bringInEpochs(): void {
    this.#state.members.forEach((_, epoch) => {
      if (at(this.#state.missing, epoch) > 1) this.#bringInEpoch(epoch);
    });
  }

  /** Brings in all dropped gaps of an epoch, one by one at any price, if together they save more. */
  #bringInEpoch(epoch: number): void {
    const { members, missing, epochOf, keep } = this.#state;
    const before = this.#cost;
    const outer = this.#log;
    const log: number[] = [];
    this.#log = log;
    for (const gap of at(members, epoch)) {
      if (keep[gap]) continue;
      const room = this.#cheapestRoom(gap, at(missing, epoch) + 1 + before - this.#cost);
      if (!room || room.some((other) => epochOf[other] === epoch)) break;
      this.#exchange(gap, room);
    }
    this.#log = undefined;
    if (at(missing, epoch) === 0 && this.#cost < before - this.#tie / 2) {
      for (const gap of log) outer?.push(gap);
    } else this.#takeBack(log);
    this.#log = outer;
  }
}
