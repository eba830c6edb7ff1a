// A step of a pass on the simulated clock, of one rank that waits for no other stage.

import { assert } from '../../util/errors.ts';
import type { Fit } from '../compile/fitted.ts';
import type { Pass } from '../compile/pass.ts';
import type { PassSchedule } from '../compile/schedule.ts';
import type { Machine } from './machine.ts';
import type { SimulatedRanks } from './network.ts';
import { type SimulatedPart, Simulation } from './simulation.ts';
import type { SimulatedStep } from './step.ts';

/** Steps until everything repeats itself, and at most as many that count. */
export const STEPS = 2;

/** The result of what one rank does, which waits for no other stage. */
export function finished<T>(following: Generator<undefined, T>): T {
  const { done, value } = following.next();
  assert(done, 'one rank waits for no other stage');
  return value;
}

/**
 * A step of a pass that is repeated, within `hostBytes` of host memory and the machine's disk; of a pass with collectives, as the
 * first of `ranks` does it; `steps` count, behind STEPS.
 * `watch`: told of what lies below, behind each operation. Errors: HoldfastError where what is not on the GPU fits into neither.
 */
export function simulate(
  fit: Fit,
  pass: Pass,
  schedule: PassSchedule,
  machine: Machine,
  hostBytes = Number.POSITIVE_INFINITY,
  ranks?: SimulatedRanks,
  steps = STEPS,
  watch?: SimulatedPart['watch'],
): SimulatedStep {
  const one = new Simulation({ fit, pass, schedule, hostBytes, ranks, watch }, machine);
  return finished(one.follow(steps * schedule.plan.steps, STEPS * schedule.plan.steps));
}
