// The flags of the commands that train, `train` and `finetune`: what a user may type, with ranges and defaults. What they
// come to is said beside this file: the settings of a new run, or of one that goes on.

import { type Command, Option } from 'commander';
import { TRAIN_ON, type TrainOn } from '../../data/records/read-records.ts';
import { SYNTHETIC } from '../../data/synthetic.ts';
import type { TaskName } from '../../data/tasks.ts';
import type { ActivationDtype } from '../../graph/narrow-activations.ts';
import type { OptimizerDeviceChoice, Update } from '../../graph/operators/optimizer.ts';
import type { MadeElement } from '../../kernels/stored.ts';
import type { MomentDtype, TrainingDtype } from '../../memory/layout/kinds.ts';
import { BASE_DTYPES } from '../../train/run/base-dtype.ts';
import {
  defaultSettings,
  EARLY_STOPPING_RANGES,
  EPOCHS,
  LORA_RANGES,
  RANGES,
  type RunSettings,
} from '../../train/run/run-settings.ts';
import { addMemoryOptions, type MemoryFlags } from '../memory-flags.ts';
import {
  activationDtypeOption,
  adapterOption,
  dtypeOption,
  optimizerDeviceOption,
  optimizerStateOption,
  pathName,
  wholeNumberFrom,
  within,
} from '../options.ts';
import { addRankOptions, type RankFlags } from '../rank-flags.ts';
import { updateOption } from '../update-flags.ts';

export interface TrainFlags extends MemoryFlags, RankFlags {
  model: string;
  layers: number;
  width: number;
  heads: number;
  kvHeads?: number;
  context: number;
  /** Of a plan: tokens of a new model, where no tokenizer says how many. @default those of bytes */
  vocabSize?: number;
  tokenizer?: string;
  data: string[];
  task?: TaskName;
  trainOn: TrainOn;
  pack: 'yes' | 'no';
  patch?: number;
  chatTemplate?: string;
  validation?: string;
  epochs?: number;
  batch: number;
  accumulate: number;
  steps?: number;
  until?: number;
  lr?: number;
  minLr?: number;
  schedule: RunSettings['schedule'];
  warmup?: number;
  clip: number;
  weightDecay: number;
  optimizerDevice: OptimizerDeviceChoice;
  update: Update;
  dtype: TrainingDtype;
  optimizerState: MomentDtype;
  activationDtype: ActivationDtype;
  seed: number;
  evalEvery?: number;
  evalWindows: number;
  sampleEvery?: number;
  sampleTokens: number;
  saveEvery?: number;
  earlyStoppingPatience?: number;
  earlyStoppingThreshold?: number;
  keepBest?: boolean;
  timeline?: string;
  out?: string;
  resume?: boolean;
  loraRank?: number;
  loraAlpha?: number;
  loraTargets?: string;
  loraDropout?: number;
  loraRslora?: boolean;
  loraFrom?: string;
  baseDtype?: 'auto' | MadeElement;
  adapter: string;
  json?: boolean;
}

/** For commands that train: a number, or in words how it is worked out. */
export type TrainDefaults = Readonly<Record<keyof typeof RANGES & keyof TrainFlags, number | string>>;
/** Whether a flag was given, and is no default. */
export type IsGiven = (name: keyof TrainFlags) => boolean;

/** The tokenizer that needs no file: one token a byte. */
export const BYTES = 'bytes';
/** Where runs go when --out names no folder. */
export const RUNS = 'runs';

/** What `--warmup` is where a new run does not say. */
export const NEW_WARMUP = `${defaultSettings().warmup}, or a tenth of the steps where that is less`;

/** The flags of all commands that train. `data`: what they learn from where nothing is named. */
export function addTrainingOptions(command: Command, defaults: TrainDefaults, data: string): void {
  addRunOptions(command, defaults, data);
  command.option('--json', 'one JSON object a step and a validation, then a summary');
  addMemoryOptions(command);
  addRankOptions(command);
}

/** Those that say what a run is, and where it is trained: those of memory and of ranks apart. */
export function addRunOptions(command: Command, defaults: TrainDefaults, data: string): void {
  const count = (flag: string, what: string, name: keyof TrainDefaults): Command => {
    const value = defaults[name];
    if (typeof value === 'number') return command.option(flag, what, within(RANGES[name]), value);
    return command.option(flag, `${what} (default: ${value})`, within(RANGES[name]));
  };
  command
    .option(
      '--tokenizer <path>',
      `tokenizer.json, its folder or zip, or ${BYTES} (default: the model’s own, else ${BYTES})`,
    )
    .addOption(
      new Option(
        '--data <path...>',
        `files, folders, - for standard input, or ${SYNTHETIC}: text, JSON records, of vit images`,
      ).default([], data),
    )
    .addOption(
      new Option('--train-on <what>', 'of records: answers alone, or all').choices(TRAIN_ON).default('answers'),
    )
    .addOption(
      new Option('--pack <choice>', 'of records: several in a sequence, that do not see each other')
        .choices(['yes', 'no'])
        .default('yes'),
    )
    .option('--chat-template <name>', 'of conversations: chatml, a file or a folder (default: the model’s)')
    .option(
      '--validation <what>',
      'a file to validate on, or the share of the data to hold back (default: the valid*.jsonl or valid*.txt of a folder, else 0.1)',
    );
  count('--batch <n>', 'sequences in a micro-batch', 'batch');
  count('--accumulate <n>', 'micro-batches in a step', 'accumulate');
  count('--steps <n>', 'training steps', 'steps')
    .addOption(
      new Option('--epochs <n>', 'so many passes over the data, each in another order, in place of --steps')
        .argParser(within(EPOCHS))
        .conflicts('steps'),
    )
    .option('--until <n>', 'stop after this many of them, saved, to be resumed', wholeNumberFrom(1));
  count('--lr <rate>', 'highest learning rate', 'lr')
    .option('--min-lr <rate>', 'learning rate at the end (default: a tenth of --lr)', within(RANGES.minLr))
    .addOption(
      new Option('--schedule <kind>').choices(['constant', 'linear', 'cosine']).default(defaultSettings().schedule),
    );
  count('--warmup <n>', 'steps of warm-up', 'warmup');
  count('--clip <norm>', 'largest gradient norm, 0 for none', 'clip');
  count('--weight-decay <rate>', 'of matrices', 'weightDecay')
    .addOption(optimizerDeviceOption())
    .addOption(updateOption())
    .addOption(dtypeOption())
    .addOption(optimizerStateOption())
    .addOption(activationDtypeOption());
  count('--seed <n>', 'for weights, batches and samples', 'seed');
  count('--eval-every <n>', 'steps between validations, 0 for the end only', 'evalEvery');
  count('--eval-windows <n>', 'sequences of a validation', 'evalWindows');
  count('--sample-every <n>', 'steps between samples, 0 for the end only', 'sampleEvery');
  count('--sample-tokens <n>', 'tokens of a sample, 0 for none', 'sampleTokens');
  count('--save-every <n>', 'steps between checkpoints, 0 for the end only; the newest two are kept', 'saveEvery')
    .option('--lora-rank <n>', 'train a low-rank update of the model, of this rank', within(LORA_RANGES.rank))
    .option('--lora-alpha <a>', 'it is scaled by a / rank (default: twice the rank)', within(LORA_RANGES.alpha))
    .option('--lora-targets <names>', 'linears that have one: all-linear, or q_proj,v_proj (default: all-linear)')
    .option('--lora-dropout <rate>', 'of its inputs while it trains (default: 0)', within(LORA_RANGES.dropout))
    .option('--lora-rslora', 'scale it by a / √rank')
    .option(
      '--lora-from <dir>',
      'go on from this adapter, in PEFT’s layout or of a run; it brings the other --lora flags',
    )
    .addOption(
      new Option(
        '--base-dtype <type>',
        'with --lora-rank: how the frozen model lies in memory; auto (the default): as in its files, with the same losses as f32',
      ).choices(['auto', ...BASE_DTYPES]),
    )
    .option(
      '--early-stopping-patience <n>',
      'end after so many validations without a better one; keeps the best checkpoint',
      within(EARLY_STOPPING_RANGES.earlyStoppingPatience),
    )
    .option(
      '--early-stopping-threshold <nats>',
      'by how much a better one must be better (default: 0)',
      within(EARLY_STOPPING_RANGES.earlyStoppingThreshold),
    )
    .option('--keep-best', 'save the best validation’s checkpoint, and keep it beside the newest two')
    .option('--out <dir>', `folder of the run (default: the next free one in ${RUNS}/)`, pathName)
    .option('--resume', 'go on from the latest checkpoint')
    .option('--timeline <file>', 'write a trace of the last step, for chrome://tracing and ui.perfetto.dev')
    .addOption(adapterOption());
}

/** A flag as it is typed. */
export const dashed = (name: string): string => name.replace(/[A-Z]/g, (letter) => `-${letter.toLowerCase()}`);

/** The numbers among the flags: those that were given, or are a default that needs no working out. */
export const numbersIn = (flags: TrainFlags): Partial<RunSettings> =>
  Object.fromEntries(
    (Object.keys(RANGES) as (keyof typeof RANGES)[]).flatMap((name) =>
      name === 'seq' || flags[name] === undefined ? [] : [[name, flags[name]]],
    ),
  );
