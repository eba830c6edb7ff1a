// `holdfast finetune DIR --data FILES`: a run that begins with a model's weights, whole or with a low-rank update. It is
// `train` with defaults for a model that has learned already (train/run/fine-tuning.ts), and without the flags of a new one.

import { Command } from 'commander';
import { DEFAULT_SHAPE } from '../formats/shape.ts';
import type { Host } from '../runtime/host.ts';
import { FINE_TUNING, FINE_TUNING_EPOCHS } from '../train/run/fine-tuning.ts';
import { defaultSettings, RANGES } from '../train/run/run-settings.ts';
import { HoldfastError } from '../util/errors.ts';
import { MODEL_SOURCES } from './model-source.ts';
import { within } from './options.ts';
import { addTrainingOptions, type IsGiven, type TrainDefaults, type TrainFlags } from './train/flags.ts';
import { train } from './train.ts';

const EACH_EPOCH = 'once an epoch, or every 250 where that is less';
const DEFAULTS: TrainDefaults = {
  ...defaultSettings(),
  ...FINE_TUNING,
  steps: `those of --epochs, which are ${FINE_TUNING_EPOCHS}`,
  lr: '0.04 / width, for a low-rank update ten times that',
  minLr: 'a tenth of --lr',
  warmup: '3 % of the steps',
  evalEvery: EACH_EPOCH,
  sampleEvery: EACH_EPOCH,
  saveEvery: EACH_EPOCH,
};

export function finetuneCommand(host: Host): Command {
  const command = new Command('finetune')
    .description('fine-tune a model on your data: all of it, or with --lora-rank a low-rank update')
    .argument('[dir]', `a model with weights: ${MODEL_SOURCES}; with --resume not needed`)
    .option('--context <n>', 'tokens in a sequence (default: the model’s, 1024 at most)', within(RANGES.seq));
  addTrainingOptions(command, DEFAULTS, 'none');
  return command.action((dir: string | undefined, given: Partial<TrainFlags>) => {
    const isGiven: IsGiven = (name) =>
      name === 'model' ? dir !== undefined : command.getOptionValueSource(name) === 'cli';
    const { layers, width, heads, context } = DEFAULT_SHAPE;
    const flags = { layers, width, heads, context, ...given, model: dir ?? '' } as TrainFlags;
    if (!flags.resume && dir === undefined)
      throw new HoldfastError('name the model to fine-tune: holdfast finetune DIR --data FILES');
    if (!flags.resume && flags.data.length === 0)
      throw new HoldfastError('--data: name what to fine-tune on, text or JSON records');
    return train(host, flags, isGiven, true);
  });
}
