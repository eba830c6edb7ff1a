// The time of a run's steps, and the rates that they showed, kept for what is expected and planned of other runs on this adapter.

import { flopsOf, isConfined } from '../../engine/compile/pass-figures.ts';
import { keepRates } from '../../engine/observe/adapter-records.ts';
import type { Host } from '../../runtime/host.ts';
import { median } from '../../util/median.ts';
import { keepStepTime, type StepWay } from '../plan/step-times.ts';
import type { Trainer } from '../step/trainer.ts';
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
 * Keeps the time that most steps took, of a run that trained in one memory throughout: within a budget it speaks for that budget
 * alone. `speeds`: tokens per second, by the step.
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
  const pass = fit.passes.step;
  const seconds = (batch * seq * accumulate) / median(speeds);
  const timed = { dispatches: pass.operations.length, flops: flopsOf(pass), seconds };
  const confined = isConfined(fit) ? { ...within, ...(policy && { policy }) } : undefined;
  await keepStepTime(host, device, stepWayOf(settings), timed, confined);
}

/** Keeps the rates by which a run was planned again. */
export async function keepLearnedRates(host: Host, { device, session }: Trainer): Promise<void> {
  const { rates } = session.memory;
  if (rates && session.report().plannedAgain) await keepRates(host, device, rates);
}
