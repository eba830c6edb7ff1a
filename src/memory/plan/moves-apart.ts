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

/** The part that is wanted between two of them, of what would be between them if all were as far apart as they can be. */
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
  const count = trace.moments.length;
  const all = plan.moments.length;
  const absences = absencesIn(trace, plan);
  if (absences.length === 0) return plan;
  const held = heldBy(trace, plan);
  const begins = beginsOf(trace);
  const step = at(begins, count);
  /** Work from the plan's beginning to a moment. */
  const timeOf = (moment: number) => Math.floor(moment / count) * step + at(begins, moment % count);
  const hasRoom = (moment: number) => at(held, moment % all) < at(slots, moment % count);
  const takeRoom = (from: number, to: number) => {
    for (let m = from; m < to; m++) held[m % all] = at(held, m % all) + 1;
  };
  const apart = (moved: number) => (OF_EVEN * step * plan.steps) / Math.max(1, moved);

  const coming = absences.toSorted((a, b) => b.comes - a.comes);
  let next = Number.POSITIVE_INFINITY;
  for (const one of coming) {
    const { left, needed } = one;
    const first = Math.max(Math.floor(needed / count) * count, Math.floor((left + needed) / 2) + 1);
    const latest = next - apart(coming.length);
    while (one.comes > first && timeOf(one.comes) > latest && hasRoom(one.comes - 1)) one.comes--;
    takeRoom(one.comes, needed);
    next = timeOf(one.comes);
  }
  const leaving = absences.filter(({ isStored }) => isStored).sort((a, b) => a.left - b.left);
  const first = behindPause(
    leaving.map(({ left }) => timeOf(left)),
    timeOf(all),
  );
  next = Number.POSITIVE_INFINITY;
  for (let i = first + leaving.length - 1; i >= first; i--) {
    const one = at(leaving, i % leaving.length);
    // Those before the pause are of the next round.
    const round = i < leaving.length ? 0 : all;
    const latest = next - apart(leaving.length);
    const most = Math.min(one.comes - 1, Math.floor((one.left + one.needed) / 2));
    while (one.leaves < most && timeOf(one.leaves + 1 + round) <= latest && hasRoom(one.leaves)) one.leaves++;
    takeRoom(one.left, one.leaves);
    next = timeOf(one.leaves + round);
  }
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

/** The work before each moment of a step, and that of all. */
function beginsOf({ moments }: Trace): number[] {
  const begins = [0];
  let sum = 0;
  for (const { work = 1 } of moments) {
    sum += work;
    begins.push(sum);
  }
  return begins;
}

/** How many chunks are on the GPU at each moment of a plan. */
function heldBy({ moments }: Trace, plan: Plan): number[] {
  const here = new Set(plan.start.map(({ chunk }) => chunk));
  return plan.moments.map(({ drop, load, claim }, m) => {
    for (const chunk of drop) here.delete(chunk);
    for (const chunk of [...load, ...claim]) here.add(chunk);
    const held = here.size;
    for (const chunk of at(moments, m % moments.length).frees) here.delete(chunk);
    return held;
  });
}
