// A trace with its plan: what the executor follows, again and again. The plan is advice about evictions; a
// chunk that an operator needs and that is not there is brought, whatever the plan thought.

import { type ExtraSlots, NO_CHANGES, type SlotChanges, slotChanges } from '../../memory/plan/extra-slots.ts';
import { withMovesApart } from '../../memory/plan/moves-apart.ts';
import { checkPlan, makePlan, type Plan } from '../../memory/plan/plan.ts';
import { planStep } from '../../memory/plan/planner.ts';
import { type Decision, follow, ORDERS, type Order } from '../../memory/plan/policies.ts';
import type { Trace } from '../../memory/plan/trace.ts';
import { at } from '../../util/at.ts';

/** `planned`: this project's planner; the others order the victims at the moment of need. */
export type PolicyName = 'planned' | keyof typeof ORDERS;
/** What decides which chunk leaves the GPU: a policy's name, or an order of one's own. */
export type Policy = PolicyName | Order;

export interface PassSchedule {
  readonly trace: Trace;
  readonly plan: Plan;
  /** For each round of the plan: what it expects on the GPU when the round begins. */
  readonly starts: readonly ReadonlySet<number>[];
  /** Slots throughout that it is made for. */
  readonly slots: number;
  /** The most slots that the plan uses at once, and the fewest that it leaves free at a moment. */
  readonly peakSlots: number;
  readonly spareSlots: number;
  /** Bytes that the plan moves in a step, on average. */
  readonly moved: { readonly h2d: number; readonly d2h: number };
  /** For each chunk and each piece of an activation below, the moments of the plan, over all its rounds, that need it below: ascending. */
  readonly loadsOf: ReadonlyMap<number, readonly number[]>;
  /** For each chunk, the moments before which it gives its slot back, in the same way. */
  readonly leavesOf: ReadonlyMap<number, readonly number[]>;
  /** For each moment of the trace: which of the extra slots begin or end to serve. Empty where there are none. */
  readonly slotChanges: readonly SlotChanges[];
}

const planned = new WeakMap<Trace, Map<string, PassSchedule>>();

/** Slots at each moment: those that there always are, and what serves beside them. */
export const slotsAt = ({ moments }: Trace, slots: number, extra?: ExtraSlots): number[] =>
  moments.map((_, m) => slots + (extra?.open[m] ?? 0));

/**
 * With so many slots, and the extra ones of the pass whose trace it is. By this project's planner it is worked out once: a
 * fit is chosen by what its plan moves.
 */
export function schedule(trace: Trace, slots: number, policy: Policy, extra?: ExtraSlots): PassSchedule {
  if (policy !== 'planned') return newSchedule(trace, slots, policy, extra);
  const known = planned.get(trace) ?? new Map<string, PassSchedule>();
  planned.set(trace, known);
  const key = `${slots}${extra ? ' and extra ones' : ''}`;
  const found = known.get(key) ?? newSchedule(trace, slots, policy, extra);
  known.set(key, found);
  return found;
}

function newSchedule(trace: Trace, slots: number, policy: Policy, extra: ExtraSlots | undefined): PassSchedule {
  const room = slotsAt(trace, slots, extra);
  const bare = makePlan(typeof policy === 'string' ? policy : 'custom order', decide(trace, room, policy));
  const plan = policy === 'planned' ? withMovesApart(trace, bare, room) : bare;
  const cost = checkPlan(trace, plan, room);
  const loadsOf = new Map<number, number[]>();
  const leavesOf = new Map<number, number[]>();
  const note = (momentsOf: Map<number, number[]>, chunk: number, m: number) => {
    const moments = momentsOf.get(chunk);
    if (moments) moments.push(m);
    else momentsOf.set(chunk, [m]);
  };
  plan.moments.forEach(({ load, drop }, m) => {
    const { fetches = [], onHost = [], frees } = at(trace.moments, m % trace.moments.length);
    for (const chunk of [...load, ...fetches, ...onHost.map(({ chunk }) => chunk)]) note(loadsOf, chunk, m);
    for (const chunk of drop) note(leavesOf, chunk, m);
    for (const chunk of frees) note(leavesOf, chunk, m + 1);
  });
  return {
    trace,
    plan,
    starts: startsOf(plan, trace),
    slots,
    peakSlots: cost.peakSlots,
    spareSlots: cost.spareSlots,
    moved: { h2d: cost.h2dBytes, d2h: cost.d2hBytes },
    loadsOf,
    leavesOf,
    slotChanges: extra ? slotChanges(extra) : [],
  };
}

/**
 * Of the chunks that are here when a round begins, those that leave: the plan does not count with them, and has no room beside what it
 * counts with. Those that must be copied down first stay the longest. `always`: slots that there always are.
 */
export function strangersToLeave(
  { starts, spareSlots, slots }: PassSchedule,
  round: number,
  here: readonly number[],
  always: number,
  isDirty: (chunk: number) => boolean,
): number[] {
  const expected = at(starts, round);
  const strangers = here.filter((chunk) => !expected.has(chunk));
  strangers.sort((a, b) => Number(isDirty(b)) - Number(isDirty(a)) || a - b);
  return strangers.slice(spareSlots + always - slots);
}

/** What becomes of the extra slots before a moment; `extra`: how many there are. A schedule that has no changes closes all of them at its first moment. */
export function changesAt({ slotChanges }: PassSchedule, extra: number, moment: number): SlotChanges {
  const closed = moment === 0 && slotChanges.length === 0;
  return closed ? { opens: [], closes: [...Array(extra).keys()] } : (slotChanges[moment] ?? NO_CHANGES);
}

/** The moment at which a chunk that is here at `moment` leaves by the plan; both counted from `base`, where a round of it begins. */
export function leavesAt({ leavesOf, plan }: PassSchedule, chunk: number, base: number, moment: number): number {
  const leaves = leavesOf.get(chunk);
  if (!leaves) return Number.POSITIVE_INFINITY;
  return (leaves.find((leave) => leave > base + moment) ?? at(leaves, 0) + plan.moments.length) - base;
}

function decide(trace: Trace, slots: readonly number[], policy: Policy): Decision {
  if (policy === 'planned') return planStep(trace, slots);
  return follow(trace, slots, typeof policy === 'string' ? ORDERS[policy](trace, slots) : policy);
}

function startsOf({ start, steps, moments }: Plan, trace: Trace): Set<number>[] {
  const count = trace.moments.length;
  const here = new Set(start.map(({ chunk }) => chunk));
  const starts: Set<number>[] = [];
  for (let round = 0; round < steps; round++) {
    starts.push(new Set(here));
    for (let m = 0; m < count; m++) {
      const { drop, load, claim } = at(moments, round * count + m);
      for (const chunk of drop) here.delete(chunk);
      for (const chunk of [...load, ...claim]) here.add(chunk);
      for (const chunk of trace.moments[m]?.frees ?? []) here.delete(chunk);
    }
  }
  return starts;
}

/** Chunks read ahead of their need. */
const LEAST_AHEAD = 2;
const MOST_AHEAD = 16;

/**
 * Chunks to read ahead: as many as are needed while one is read, and one more. Times of a read and a step, in one unit. Updates on the
 * host read several chunks at once by themselves: what is read further ahead beside them gives way to these, and is read again.
 */
export function readAheadFor(read: number, step: number, loadsPerStep: number, updatesOnHost: boolean): number {
  if (updatesOnHost) return LEAST_AHEAD;
  const wanted = Math.ceil(read / (step / Math.max(1, loadsPerStep))) + 1;
  return Math.min(MOST_AHEAD, Math.max(LEAST_AHEAD, Number.isFinite(wanted) ? wanted : LEAST_AHEAD));
}
