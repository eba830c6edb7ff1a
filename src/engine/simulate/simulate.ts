// A step of a pass on the simulated clock, of one rank that waits for no other stage.

import { assert } from '../../util/errors.ts';
import type { Fit } from '../compile/fitted.ts';
import type { Pass } from '../compile/pass.ts';
import type { PassSchedule } from '../compile/schedule.ts';
import type { Machine } from './machine.ts';
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

/** What a step is followed with, beside its fit and its plan. */
export interface SimulateOptions extends Pick<SimulatedPart, 'ranks' | 'watch' | 'prefetch' | 'copiesLie'> {
  /** Bytes of host memory above the machine's disk. @default no limit */
  readonly hostBytes?: number | undefined;
  /** Steps that count, behind STEPS. @default STEPS */
  readonly steps?: number;
}

/**
 * A step of a pass that is repeated; of a pass with collectives, as the first of `ranks` does it. Errors: HoldfastError where what is
 * not on the GPU fits neither into host memory nor on the machine's disk.
 */
export function simulate(
  fit: Fit,
  pass: Pass,
  schedule: PassSchedule,
  machine: Machine,
  { hostBytes = Number.POSITIVE_INFINITY, ranks, steps = STEPS, watch, prefetch, copiesLie }: SimulateOptions = {},
): SimulatedStep {
  const one = new Simulation({ fit, pass, schedule, hostBytes, ranks, watch, prefetch, copiesLie }, machine);
  return finished(one.follow(steps * schedule.plan.steps, STEPS * schedule.plan.steps));
}
