// Seconds of a step on the simulated clock of an adapter: by the rates that fits go by, or set right by what was measured.

import type { Fit } from '../../engine/compile/fitted.ts';
import type { Rates } from '../../engine/compile/rates.ts';
import { type PolicyName, schedule } from '../../engine/compile/schedule.ts';
import type { AdapterLimits } from '../../engine/compile/workload.ts';
import { machineOf } from '../../engine/simulate/machine.ts';
import { simulate } from '../../engine/simulate/simulate.ts';
import { HoldfastError } from '../../util/errors.ts';
import type { TrainingPasses } from '../step/training-workload.ts';
import type { StepCosts } from './step-times.ts';

/** What becomes of what is not on the GPU. */
interface Below {
  /** Bytes of host memory. @default enough */
  readonly host?: number | undefined;
  /** @default 'planned' */
  readonly policy?: PolicyName | undefined;
}

/** As `Below`, with what steps and the link were measured to cost. @default as plans take it */
interface MeasuredBelow extends Below {
  readonly costs?: StepCosts | undefined;
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
    return simulate(fit, step, plan, machineOf(limits), { hostBytes: host, steps: 1 }).seconds;
  } catch (error) {
    if (error instanceof HoldfastError) return undefined;
    throw error;
  }
}

/**
 * Seconds of a step within `fit` that takes `resident` where everything is on the GPU (`whole`): by a clock whose arithmetic is as fast as
 * that says, of which dispatches take the part, and whose link is as fast, as was measured. Undefined as above.
 */
export function secondsWithin(
  fit: Fit<TrainingPasses>,
  whole: Fit<TrainingPasses>,
  resident: number,
  limits: AdapterLimits,
  below: MeasuredBelow,
): number | undefined {
  const measured = ratesWith(limits.rates, below.costs);
  const plain = simulatedSeconds(whole, { ...limits, rates: measured });
  if (plain === undefined) return undefined;
  const times = resident / plain;
  const { flops, launchSeconds, memoryBytes } = measured;
  const rates: Rates = {
    ...{ ...measured, flops: flops / times, launchSeconds: times * launchSeconds },
    ...(memoryBytes !== undefined && { memoryBytes: memoryBytes / times }),
  };
  return simulatedSeconds(fit, { ...limits, rates }, below);
}

/** Rates that were measured themselves, as a GPU's are, know what waits for its memory, which steps as a whole do not tell. */
function ratesWith(rates: Rates, { dispatch, flop, link }: Partial<StepCosts> = {}): Rates {
  const isTypical = rates.memoryBytes === undefined;
  return {
    ...rates,
    ...(isTypical && dispatch !== undefined && flop !== undefined && { launchSeconds: dispatch, flops: 1 / flop }),
    ...link,
  };
}

/** Halvings of an interval: to a thousandth of it. */
const HALVINGS = 10;

/**
 * The inverse of `secondsWithin`: what a step that takes `seconds` within `fit` takes where everything is on the GPU, to a thousandth.
 * Undefined as above, and where what it waits for alone takes as long.
 */
export function secondsWithout(
  fit: Fit<TrainingPasses>,
  whole: Fit<TrainingPasses>,
  seconds: number,
  limits: AdapterLimits,
  below: MeasuredBelow,
): number | undefined {
  const within = (resident: number) => secondsWithin(fit, whole, resident, limits, below);
  let [low, high] = [0.01 * seconds, seconds];
  const least = within(low);
  if (least === undefined || least > seconds) return undefined;
  for (let i = 0; i < HALVINGS; i++) {
    const middle = (low + high) / 2;
    if ((within(middle) ?? seconds) > seconds) high = middle;
    else low = middle;
  }
  return (low + high) / 2;
}
