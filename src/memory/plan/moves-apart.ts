// A plan whose loads come ahead of their need and whose chunks leave later than they could, one after the other instead of several
// at once, where slots are free meanwhile. Staging holds few values, each way, and until the GPU has taken one no other may
// follow: what moves in a burst is waited for, and what moves apart hides behind arithmetic. Pure: what is moved is the
// same, and so is the least of it.
//
// Invariants: no more slots are used than there are; a load stays within its step; between a chunk's leaving and its coming back
// half of the time is left to each of them.

import { at } from '../../util/at.ts';
import { type Plan, startingOver } from './plan.ts';
import type { Trace } from './trace.ts';

/** The part that is wanted between two stores, of what would be between them if all were as far apart as they can be. */
const OF_EVEN = 0.5;

/** A chunk that leaves at one moment of a plan and comes back at another, which may be in the next round of it. */
interface Absence {
  readonly chunk: number;
  /** The first moment at which it may leave, and the one at which it is needed. */
  readonly left: number;
  readonly needed: number;
  leaves: number;
  comes: number;
  readonly isStored: boolean;
}

/** With so many slots at each moment of a step. */
export function withMovesApart(trace: Trace, plan: Plan, slots: readonly number[]): Plan {
  const all = plan.moments.length;
  const absences = absencesIn(trace, plan);
  if (absences.length === 0) return plan;
  const room = new Room(trace, plan, slots);
  comeAhead(absences, trace, timesWithCopies(trace, absences, plan), room);
  leaveLater(
    absences.filter(({ isStored }) => isStored),
    new Times(plan.moments.map((_, m) => workAt(trace, m))),
    room,
  );
  const drops = plan.moments.map(({ drop }) => new Set(drop));
  const loads = plan.moments.map(({ load }) => new Set(load));
  for (const { chunk, left, needed } of absences) {
    at(drops, left % all).delete(chunk);
    at(loads, needed % all).delete(chunk);
  }
  for (const { chunk, leaves, comes } of absences) {
    at(drops, leaves % all).add(chunk);
    at(loads, comes % all).add(chunk);
  }
  const moments = plan.moments.map(({ claim }, m) => {
    return { store: [], drop: [...at(drops, m)], load: [...at(loads, m)], claim };
  });
  return startingOver(trace, { ...plan, moments });
}

/** Each load as late as the link allows: it is over when it is needed and when the next one begins. The last ones have the room first. */
function comeAhead(absences: readonly Absence[], { moments, copies }: Trace, times: Times, room: Room): void {
  const takes = copies?.up ?? 0;
  let next = Number.POSITIVE_INFINITY;
  for (const one of absences.toSorted((a, b) => b.needed - a.needed)) {
    const { left, needed } = one;
    const stepBegins = Math.floor(needed / moments.length) * moments.length;
    const first = Math.max(stepBegins, Math.floor((left + needed) / 2) + 1);
    const latest = Math.min(times.of(needed), next) - takes;
    while (one.comes > first && times.of(one.comes) > latest && room.isAt(one.comes - 1)) one.comes--;
    room.take(one.comes, needed);
    // One that has no room to come ahead delays what needs it, and not the ones before it.
    next = one.comes === needed ? times.of(needed) : latest;
  }
}

/** Stores spread over the work of a plan, from the longest pause in which none is on. */
function leaveLater(stored: readonly Absence[], times: Times, room: Room): void {
  const leaving = stored.toSorted((a, b) => a.left - b.left);
  const apart = (OF_EVEN * times.all) / Math.max(1, leaving.length);
  const first = behindPause(
    leaving.map(({ left }) => times.of(left)),
    times.all,
  );
  let next = Number.POSITIVE_INFINITY;
  for (let i = first + leaving.length - 1; i >= first; i--) {
    const one = at(leaving, i % leaving.length);
    // Those before the pause are of the next round.
    const round = i < leaving.length ? 0 : times.count;
    const latest = next - apart;
    const most = Math.min(one.comes - 1, Math.floor((one.left + one.needed) / 2));
    while (one.leaves < most && times.of(one.leaves + 1 + round) <= latest && room.isAt(one.leaves)) one.leaves++;
    room.take(one.left, one.leaves);
    next = times.of(one.leaves + round);
  }
}

/** When each moment of a plan begins, around and around. */
class Times {
  readonly #begins: number[] = [];
  /** Of a round of the plan. */
  readonly all: number;

  /** What each moment of a round takes. */
  constructor(lengths: readonly number[]) {
    let sum = 0;
    for (const length of lengths) {
      this.#begins.push(sum);
      sum += length;
    }
    this.all = sum;
  }

  /** Moments of a round. */
  get count(): number {
    return this.#begins.length;
  }

  of(moment: number): number {
    return Math.floor(moment / this.count) * this.all + at(this.#begins, moment % this.count);
  }
}

/** Slots of a plan that nothing is in, by its moments. */
class Room {
  readonly #free: number[];

  constructor({ moments }: Trace, plan: Plan, slots: readonly number[]) {
    const here = new Set(plan.start.map(({ chunk }) => chunk));
    this.#free = plan.moments.map(({ drop, load, claim }, m) => {
      for (const chunk of drop) here.delete(chunk);
      for (const chunk of [...load, ...claim]) here.add(chunk);
      const free = at(slots, m % slots.length) - here.size;
      for (const chunk of at(moments, m % moments.length).frees) here.delete(chunk);
      return free;
    });
  }

  isAt(moment: number): boolean {
    return at(this.#free, moment % this.#free.length) > 0;
  }

  /** At the moments before `to`, from `from` on. */
  take(from: number, to: number): void {
    for (let m = from; m < to; m++) {
      const place = m % this.#free.length;
      this.#free[place] = at(this.#free, place) - 1;
    }
  }
}

const workAt = ({ moments }: Trace, moment: number): number => at(moments, moment % moments.length).work ?? 1;

/** With what is copied for each moment just before it, and what may leave behind the one before. */
function timesWithCopies(trace: Trace, absences: readonly Absence[], plan: Plan): Times {
  const { up, down, takesTurns } = trace.copies ?? { up: 0, down: 0, takesTurns: true };
  const [coming, leaving] = [plan.moments.map(() => 0), plan.moments.map(() => 0)];
  const count = (of: number[], moment: number) => {
    const place = moment % of.length;
    of[place] = at(of, place) + 1;
  };
  for (const { needed, left, isStored } of absences) {
    count(coming, needed);
    if (isStored) count(leaving, left);
  }
  const lengths = plan.moments.map((_, m) => {
    const [work, ups, downs] = [workAt(trace, m), up * at(coming, m), down * at(leaving, m)];
    return takesTurns ? work + ups + downs : Math.max(work, ups, downs);
  });
  return new Times(lengths);
}

/** Of ascending times, which repeat themselves after a period: the place of the one before which nothing is for the longest. */
function behindPause(times: readonly number[], period: number): number {
  let first = 0;
  let longest = Number.NEGATIVE_INFINITY;
  times.forEach((time, i) => {
    const pause = time - (times[i - 1] ?? at(times, times.length - 1) - period);
    if (pause > longest) [first, longest] = [i, pause];
  });
  return first;
}

/** The absences of chunks that nothing needs on the host: a chunk of which something does moves when it must. */
function absencesIn({ moments }: Trace, plan: Plan): Absence[] {
  const onHost = new Set(moments.flatMap(({ onHost = [] }) => onHost.map(({ chunk }) => chunk)));
  const found: Absence[] = [];
  const gone = new Map<number, { moment: number; isStored: boolean }>();
  const all = plan.moments.length;
  // Once around, for those that left in the round before.
  for (let turn = 0; turn < 2 * all; turn++) {
    const { drop, load, store } = at(plan.moments, turn % all);
    for (const chunk of drop) gone.set(chunk, { moment: turn, isStored: store.includes(chunk) });
    for (const chunk of load) {
      const leave = gone.get(chunk);
      gone.delete(chunk);
      if (!leave || leave.moment >= all || onHost.has(chunk)) continue;
      const { moment: left, isStored } = leave;
      found.push({ chunk, left, needed: turn, leaves: left, comes: turn, isStored });
    }
  }
  return found;
}
