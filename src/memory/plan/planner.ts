// The plan that we run: Belady's choice as a start, then exchanges (exchange.ts) that take write-backs and the whole step
// into account. Milliseconds, no solver; deterministic.
//
// Invariant: no row is ever overfull.

import { at } from '../../util/at.ts';
import { Exchange } from './exchange.ts';
import { findGaps } from './gaps.ts';
import { covers, type PlanState, planStateOf, takeRoom } from './plan-state.ts';
import type { Decision } from './policies.ts';
import type { Trace } from './trace.ts';

const MOST_LAPS = 6;

/** Gaps to keep in one step. Errors: HoldfastError when an operator's chunks alone do not fit. */
export function planStep(trace: Trace, slots: readonly number[]): Decision {
  const gaps = findGaps(trace, slots);
  const state = planStateOf(gaps);
  belady(state);
  const { keep } = state;
  const decision = { steps: 1, gaps, keep };
  // Where all fits, nothing is to be exchanged, whatever the number of rows and chunks.
  if (keep.every((kept) => kept === 1)) return decision;
  const exchange = new Exchange(state);
  exchange.fill();
  exchange.improve();
  exchange.shake();
  return decision;
}

/** Belady over rows: where more gaps are kept than fit, the one that ends last leaves. */
function belady(state: PlanState): void {
  const { room, free, starting, ending, rowCount, keep } = state;
  const rows = room.length;
  const active = new ActiveGaps(keep.length);
  // Around and around: each lap finds out better what is here when a step begins, until nothing changes.
  let before = keep.slice();
  for (let lap = 0; lap < MOST_LAPS; lap++) {
    if (lap > 1) {
      if (keep.every((kept, gap) => kept === before[gap])) break;
      before = keep.slice();
    }
    for (let row = 0; row < rows; row++) {
      const now = lap * rows + row;
      // A gap's fate is known when it ends or is cut short; one into the next step, only there.
      for (const gap of at(ending, row === 0 ? rows - 1 : row - 1)) {
        if (active.has(gap, now)) {
          keep[gap] = 1;
          active.remove(gap);
        }
      }
      for (const gap of at(starting, row)) active.add(gap, now + at(rowCount, gap));
      while (active.count > Math.max(0, at(room, row))) {
        const last = active.last();
        keep[last] = 0;
        active.remove(last);
      }
    }
  }
  keep.forEach((kept, gap) => {
    if (kept) takeRoom(state, gap, 1);
  });
  // The last laps may still differ where they meet.
  for (let row = 0; row < rows; row++) {
    for (let gap = 0; gap < keep.length && at(free, row) < 0; gap++) {
      if (!keep[gap] || !covers(state, gap, row)) continue;
      keep[gap] = 0;
      takeRoom(state, gap, -1);
    }
  }
}

/** Kept gaps that cover a row. */
class ActiveGaps {
  count = 0;
  readonly #gaps: Int32Array;
  /** By gap: its place among them, and the row behind its last, counted over all laps. */
  readonly #placeOf: Int32Array;
  readonly #end: Int32Array;

  constructor(gaps: number) {
    this.#gaps = new Int32Array(gaps);
    this.#placeOf = new Int32Array(gaps).fill(-1);
    this.#end = new Int32Array(gaps);
  }

  /** Whether it is one of them that ends before the row `now`. */
  has(gap: number, now: number): boolean {
    return at(this.#placeOf, gap) >= 0 && at(this.#end, gap) === now;
  }

  add(gap: number, end: number): void {
    this.#end[gap] = end;
    this.#placeOf[gap] = this.count;
    this.#gaps[this.count++] = gap;
  }

  remove(gap: number): void {
    const place = at(this.#placeOf, gap);
    const other = at(this.#gaps, --this.count);
    this.#gaps[place] = other;
    this.#placeOf[other] = place;
    this.#placeOf[gap] = -1;
  }

  /** The one that ends last; of equals the first. */
  last(): number {
    let last = at(this.#gaps, 0);
    let most = at(this.#end, last);
    for (let i = 1; i < this.count; i++) {
      const gap = this.#gaps[i] as number;
      const end = this.#end[gap] as number;
      if (end > most || (end === most && gap < last)) [last, most] = [gap, end];
    }
    return last;
  }
}
