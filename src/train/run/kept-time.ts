// The time of a run's steps, and the rates that they showed, kept for what is expected and planned of other runs on this adapter.

import type { Fit } from '../../engine/compile/fitted.ts';
import { flopsOf, isConfined } from '../../engine/compile/pass-figures.ts';
import type { PolicyName } from '../../engine/compile/schedule.ts';
import { keepRates } from '../../engine/observe/adapter-records.ts';
import { limitsOf, type MemoryOptions } from '../../engine/run/arrangement.ts';
import type { Device } from '../../gpu/device.ts';
import type { Host } from '../../runtime/host.ts';
import { unlessRefused } from '../../util/errors.ts';
import { median } from '../../util/median.ts';
import { secondsWithout } from '../plan/simulated-seconds.ts';
import { keepStepTime, knownSteps, type StepSize, type StepWay, type TimedStep } from '../plan/step-times.ts';
import { everythingOf, MOST_MOMENTS } from '../plan/what-if.ts';
import type { Trainer } from '../step/trainer.ts';
import type { TrainingPasses } from '../step/training-workload.ts';
import { backwardPassesIn, dtypeOf, modelOf, momentDtypeIn, type RunSettings } from './run-settings.ts';

/** How a run of these settings computes. */
export function stepWayOf(settings: RunSettings): StepWay {
  const { batch, seq, accumulate, activationDtype = 'f32', optimizerDevice = 'gpu', update = 'at-end' } = settings;
  return {
    model: modelOf(settings),
    ...{ batch, seq, accumulate, activationDtype, optimizerDevice, update },
    dtype: dtypeOf(settings),
    momentDtype: momentDtypeIn(settings),
    baseDtype: settings.lora?.baseDtype ?? 'f32',
    passes: backwardPassesIn(settings),
    packed: settings.records?.pack === 'yes',
  };
}

/** Of a run whose time is kept: one that has hardly begun says little. */
const LEAST_STEPS = 20;

/**
 * Keeps the time that most steps took, of a run that trained in one memory throughout; within a budget also what they would take
 * without one, by which other budgets are told of. `speeds`: tokens per second, by the step.
 */
export async function keepTime(
  host: Host,
  { device, session: { fit, memory } }: Trainer,
  settings: RunSettings,
  speeds: readonly number[],
): Promise<void> {
  const { policy, ...within } = memory;
  // An order of one's own has no name.
  if (speeds.length < LEAST_STEPS || (policy !== undefined && typeof policy !== 'string')) return;
  const { batch, seq, accumulate } = settings;
  const seconds = (batch * seq * accumulate) / median(speeds);
  const timed = { ...stepSizeOf(fit), seconds };
  if (!isConfined(fit)) return keepStepTime(host, device, stepWayOf(settings), timed);
  const budget = { ...within, ...(policy && { policy }) };
  const whole =
    fit.passes.step.operations.length > MOST_MOMENTS ? undefined : await wholeOf(host, device, fit, seconds, budget);
  await keepStepTime(host, device, stepWayOf(settings), timed, { memory: budget, whole });
}

/** What a step takes where everything is on the GPU, by what it takes within a budget; undefined where that cannot be told. */
async function wholeOf(
  host: Host,
  device: Device,
  fit: Fit<TrainingPasses>,
  seconds: number,
  memory: Pick<MemoryOptions, 'host' | 'rates'> & { readonly policy?: PolicyName },
): Promise<TimedStep | undefined> {
  const limits = limitsOf(device, memory);
  const whole = unlessRefused(() => everythingOf(fit.workload, limits));
  const { costs } = await knownSteps(host, device);
  const below = { host: memory.host, policy: memory.policy, costs };
  if (!whole) return undefined;
  const resident = secondsWithout(fit, whole, seconds, limits, below);
  return resident === undefined ? undefined : { ...stepSizeOf(whole), seconds: resident };
}

/** What its step comes to. */
export const stepSizeOf = ({ passes: { step } }: Fit<TrainingPasses>): StepSize => ({
  dispatches: step.operations.length,
  flops: flopsOf(step),
});

/** Keeps the rates by which a run was planned again. */
export async function keepLearnedRates(host: Host, { device, session }: Trainer): Promise<void> {
  const { rates } = session.memory;
  if (rates && session.report().plannedAgain) await keepRates(host, device, rates);
}
