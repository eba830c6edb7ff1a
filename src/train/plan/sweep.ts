// The sweep of a run over budgets: what its step would take in less GPU memory and in more, by the planner that planned it, on
// the simulated clock, by the rates that it was planned by. Pure; the caller says when it has taken long enough.
//
// Not modelled: the disk, whose speed no run measures before it trains. What lies there is taken to be in host memory.

import { fitMemory } from '../../engine/compile/fit.ts';
import type { Fit } from '../../engine/compile/fitted.ts';
import { leastMemory } from '../../engine/compile/least.ts';
import { schedule } from '../../engine/compile/schedule.ts';
import { type AdapterLimits, heldByUpdate } from '../../engine/compile/workload.ts';
import { type MemoryOptions, optionsOf } from '../../engine/run/arrangement.ts';
import { machineOf } from '../../engine/simulate/machine.ts';
import { divideBelow } from '../../engine/simulate/shares-below.ts';
import { simulate } from '../../engine/simulate/simulate.ts';
import { unlessRefused } from '../../util/errors.ts';
import type { TrainingPasses } from '../step/training-workload.ts';
import { everythingOf, MOST_MOMENTS } from './what-if.ts';

/** Seconds of a step over the budget. */
export interface BudgetSweep {
  /** Ascending budgets, in bytes, and seconds of a step within them. */
  readonly points: readonly { readonly budget: number; readonly seconds: number }[];
  /** Seconds of a step with everything on the GPU. */
  readonly resident: number;
}

/** Shares of the way from the smallest budget to everything, the coarsest first, and of these what is planned soonest. */
const SHARES = [1, 1 / 2, 0, 1 / 4, 3 / 4, 1 / 8, 3 / 8, 5 / 8, 7 / 8];

/** By equal factors: below, each byte is worth more. */
export const budgetBetween = (smallest: number, all: number, share: number): number =>
  Math.ceil(smallest * (all / smallest) ** share);

/**
 * Its own budget and those of SHARES that its tiers have room for, as many as `isOver` leaves time for. Undefined without a
 * budget, and for a step that takes long to plan.
 */
export function sweepBudgets(
  fit: Fit<TrainingPasses>,
  limits: AdapterLimits,
  memory: Pick<MemoryOptions, 'gpu' | 'host' | 'disk' | 'recovery' | 'policy'>,
  isOver: () => boolean = () => false,
): BudgetSweep | undefined {
  const { workload, passes } = fit;
  const { gpu, host = Number.POSITIVE_INFINITY, disk, policy = 'planned' } = memory;
  if (typeof gpu !== 'number' || passes.step.operations.length > MOST_MOMENTS) return undefined;
  const options = optionsOf(memory, heldByUpdate(workload));
  const onDisk = disk && (disk.limit ?? Number.POSITIVE_INFINITY);
  const machine = machineOf(limits, onDisk);
  const secondsOf = (found: Fit<TrainingPasses>, hostBytes?: number): number => {
    const { step } = found.passes;
    return simulate(found, step, schedule(step.trace, found.slots, policy, step.extra), machine, { hostBytes }).seconds;
  };
  const found = new Map<number, number>();
  const consider = (budget: number, fitted: () => Fit<TrainingPasses>) => {
    const seconds = unlessRefused(() => {
      const planned = fitted();
      divideBelow(planned, onDisk, host);
      return secondsOf(planned, host);
    });
    if (seconds !== undefined) found.set(budget, seconds);
  };
  const whole = everythingOf(workload, limits);
  const smallest = unlessRefused(() => leastMemory(workload, limits, options).bytes) ?? whole.peak;
  for (const share of SHARES) {
    if (isOver()) break;
    const budget = budgetBetween(smallest, whole.peak, share);
    consider(budget, () => fitMemory(workload, limits, budget, options));
  }
  consider(gpu, () => fit);
  const points = [...found].map(([budget, seconds]) => ({ budget, seconds })).sort((a, b) => a.budget - b.budget);
  return { points, resident: secondsOf(whole) };
}
