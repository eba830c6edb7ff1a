// Policies side by side on one trace: what each moves in a step, against the bound. Every plan is replayed by
// checkPlan before it is counted.

import type { Highs } from 'highs';
import { assert } from '../../util/errors.ts';
import { exactBound, linearBound } from './bound.ts';
import { findGaps } from './gaps.ts';
import { checkPlan, makePlan, type PlanCost } from './plan.ts';
import { planStep } from './planner.ts';
import { follow, ORDERS } from './policies.ts';
import type { Trace } from './trace.ts';

export const PLANNER = 'Holdfast';

export interface PlanComparison {
  /** Chunks moved per step, both ways: no schedule moves fewer. */
  readonly linear: number;
  /** The fewest that a schedule moves; absent where the time did not suffice to prove it. */
  readonly exact?: number;
  /** By policy, the planner first. */
  readonly costs: ReadonlyMap<string, PlanCost>;
}

/** `seconds`: for the exact optimum, where the planner does not reach the linear bound anyway. */
export function compare(highs: Highs, trace: Trace, slots: readonly number[], seconds: number): PlanComparison {
  const costs = new Map<string, PlanCost>([
    [PLANNER, checkPlan(trace, makePlan(PLANNER, planStep(trace, slots)), slots)],
  ]);
  for (const [name, order] of Object.entries(ORDERS)) {
    costs.set(name, checkPlan(trace, makePlan(name, follow(trace, slots, order(trace, slots))), slots));
  }
  const gaps = findGaps(trace, slots);
  const linear = linearBound(highs, gaps).chunks;
  const planned = movedChunks(costOf(costs, PLANNER));
  // Schedules move whole chunks: the next whole number above the bound is the optimum if it is reached.
  const reached = planned <= Math.ceil(linear - 1e-6);
  const exact = reached ? planned : seconds > 0 ? exactBound(highs, gaps, seconds)?.chunks : undefined;
  return { linear, costs, ...(exact !== undefined && { exact }) };
}

/** The cost of one of the policies that were compared. */
export function costOf(costs: PlanComparison['costs'], policy: string): PlanCost {
  const cost = costs.get(policy);
  assert(cost, `${policy} was not compared`);
  return cost;
}

export const movedChunks = ({ loads, stores }: PlanCost): number => loads + stores;

/** Moved over bound; nothing to move at all is 1. */
export const ratioTo = (bound: number, cost: PlanCost): number =>
  movedChunks(cost) === bound ? 1 : movedChunks(cost) / bound;
