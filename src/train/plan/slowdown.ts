// Seconds of a step on the simulated clock, by the rates that fits go by: how many times as long one within a budget takes.

import type { Fit } from '../../engine/compile/fitted.ts';
import { type PolicyName, schedule } from '../../engine/compile/schedule.ts';
import type { AdapterLimits } from '../../engine/compile/workload.ts';
import { machineOf } from '../../engine/simulate/machine.ts';
import { simulate } from '../../engine/simulate/simulate.ts';
import { HoldfastError } from '../../util/errors.ts';
import type { TrainingPasses } from '../step/training-workload.ts';

/** What becomes of what is not on the GPU. */
interface Below {
  /** Bytes of host memory. @default enough */
  readonly host?: number | undefined;
  /** @default 'planned' */
  readonly policy?: PolicyName | undefined;
}

/** Undefined where the host has no room for what is not on the GPU: of a disk nothing is known. */
export function simulatedSeconds(
  fit: Fit<TrainingPasses>,
  limits: AdapterLimits,
  { host, policy = 'planned' }: Below = {},
): number | undefined {
  const { step } = fit.passes;
  const plan = schedule(step.trace, fit.slots, policy, step.extra);
  try {
    return simulate(fit, step, plan, machineOf(limits), host, undefined, 1).seconds;
  } catch (error) {
    if (error instanceof HoldfastError) return undefined;
    throw error;
  }
}
