// A trace with its plan: what the executor follows, again and again. The plan is advice about evictions; a
// chunk that an operator needs and that is not there is brought, whatever the plan thought.

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
  /** The most slots that the plan uses at once. */
  readonly peakSlots: number;
  /** Bytes that the plan moves in a step, on average. */
  readonly moved: { readonly h2d: number; readonly d2h: number };
  /** For each chunk and each piece of an activation below, the moments of the plan, over all its rounds, that need it below: ascending. */
  readonly loadsOf: ReadonlyMap<number, readonly number[]>;
}

const planned = new WeakMap<Trace, Map<number, PassSchedule>>();

/** By this project's planner it is worked out once: a fit is chosen by what its plan moves. */
export function schedule(trace: Trace, slots: number, policy: Policy): PassSchedule {
  if (policy !== 'planned') return newSchedule(trace, slots, policy);
  const known = planned.get(trace) ?? new Map<number, PassSchedule>();
  planned.set(trace, known);
  const found = known.get(slots) ?? newSchedule(trace, slots, policy);
  known.set(slots, found);
  return found;
}

function newSchedule(trace: Trace, slots: number, policy: Policy): PassSchedule {
  const room = trace.moments.map(() => slots);
  const plan = makePlan(typeof policy === 'string' ? policy : 'custom order', decide(trace, room, policy));
  const cost = checkPlan(trace, plan, room);
  const loadsOf = new Map<number, number[]>();
  plan.moments.forEach(({ load }, m) => {
    const { fetches = [], onHost = [] } = at(trace.moments, m % trace.moments.length);
    for (const chunk of [...load, ...fetches, ...onHost.map(({ chunk }) => chunk)]) {
      const loads = loadsOf.get(chunk);
      if (loads) loads.push(m);
      else loadsOf.set(chunk, [m]);
    }
  });
  return {
    trace,
    plan,
    starts: startsOf(plan, trace),
    peakSlots: cost.peakSlots,
    moved: { h2d: cost.h2dBytes, d2h: cost.d2hBytes },
    loadsOf,
  };
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
