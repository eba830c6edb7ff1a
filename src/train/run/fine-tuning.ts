// The settings of fine-tuning where nothing else is said: of a model that has learned already, in passes over data that is
// small beside what it learned from. Not how it trains: that is a run like any other (run.ts).

import type { ModelConfig } from '../../formats/config.ts';
import { shapeOf } from '../../formats/families/index.ts';
import { having } from '../../util/arguments.ts';
import { check } from '../../util/json.ts';
import { defaultSettings, type RunSettings } from './run-settings.ts';

/** Passes over the data. */
export const FINE_TUNING_EPOCHS = 3;

/** What does not depend on the model or the data. */
export const FINE_TUNING = { batch: 4, weightDecay: 0.01 } as const satisfies Partial<RunSettings>;

/** Of the learning rate, times the width: 5e-5 for GPT-2, 1e-5 for a model of 7 billion parameters. */
const RATE = 0.04;
/** A low-rank update takes so many times the rate. */
const LORA_RATE = 10;
/** Of all steps. */
const WARMUP = 0.03;
/** Steps between validations, at most. */
const EVERY = 250;

/** The highest learning rate: the wider a model, the lower; to two digits. */
export function fineTuningRate(config: ModelConfig, isLora: boolean): number {
  const rate = (RATE / shapeOf(config).width) * (isLora ? LORA_RATE : 1);
  return Number(rate.toPrecision(2));
}

const given = having<Pick<RunSettings, 'config'>>('settings with the model’s configuration (config)', 'config');

/** All that fine-tuning computes, with what is not among `changes` by default. Errors: HoldfastError where no model is among them. */
export function fineTuningSettings(changes: Partial<RunSettings> & Pick<RunSettings, 'config'>): RunSettings {
  check(given, changes, 'the settings of fine-tuning');
  const lr = fineTuningRate(changes.config, changes.lora !== undefined);
  return defaultSettings({ ...FINE_TUNING, lr, ...changes });
}

/** What goes by the length of a run, once it is known: the warm-up; and a validation, a sample and a checkpoint an epoch. */
export function paceOf({
  steps,
  epochs = 1,
}: Pick<RunSettings, 'steps' | 'epochs'>): Pick<RunSettings, 'warmup' | 'evalEvery' | 'sampleEvery' | 'saveEvery'> {
  const every = Math.min(EVERY, Math.ceil(steps / epochs));
  return { warmup: Math.ceil(steps * WARMUP), evalEvery: every, sampleEvery: every, saveEvery: every };
}
