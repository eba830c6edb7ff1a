// The settings of a run, what each may be, and the model and trainer that they stand for. Flags, saved files, the
// page's form and its messages all go by RANGES, and by check-settings.ts. Invariant: the same settings and the
// same text are the same run, step for step, wherever it is trained.

import { type RecordSettings, recordSettingsSchema } from '../../data/records/read-records.ts';
import { isSynthetic } from '../../data/synthetic.ts';
import { TASKS, type TaskName } from '../../data/tasks.ts';
import { DEFAULT_TOKENIZER, type TokenizerIdentity } from '../../data/tokenizer.ts';
import type { CompleteLora } from '../../formats/adapter.ts';
import { type ModelConfig, parseConfig } from '../../formats/config.ts';
import { familyOf, labelsIn, shapeOf } from '../../formats/families/index.ts';
import { type ImagePreparation, imagePreparation } from '../../formats/preprocessor.ts';
import { configOfShape } from '../../formats/shape.ts';
import { ACTIVATION_DTYPES, type ActivationDtype } from '../../graph/narrow-activations.ts';
import {
  type BackwardPasses,
  backwardPassesOf,
  OPTIMIZER_DEVICE_CHOICES,
  type OptimizerDeviceChoice,
  UPDATES,
  type Update,
} from '../../graph/operators/optimizer.ts';
import type { MadeElement } from '../../kernels/stored.ts';
import { MOMENT_DTYPES, type MomentDtype, TRAINING_DTYPES, type TrainingDtype } from '../../memory/layout/kinds.ts';
import { makeModel } from '../../nn/index.ts';
import { withLora } from '../../nn/lora.ts';
import { computedIn, type Model, momentsIn } from '../../nn/model.ts';
import {
  anything,
  check,
  closed,
  kinds,
  list,
  number,
  object,
  oneOf,
  optional,
  parsed,
  type Schema,
  text,
  truth,
} from '../../util/json.ts';
import { type Range, realNumber, wholeNumber } from '../../util/range.ts';
import { DECAYS, type Decay } from '../step/schedule.ts';
import { TRAINER_RANGES, type TrainerOptions } from '../step/trainer-options.ts';
import { BASE_DTYPES } from './base-dtype.ts';

/**
 * What a run computes: saved with its checkpoints, and the same when it is resumed. The defaults are those of
 * `defaultSettings`, and of `holdfast train`.
 */
export interface RunSettings {
  /** The model. @default a GPT-2 of 2 layers, width 64, 4 heads, context 64 and 256 tokens */
  config: ModelConfig;
  /** What its tokens are; runs of earlier versions have none, and are of bytes. @default { kind: 'byte' } */
  tokenizer?: TokenizerIdentity;
  /** A folder or zip whose weights to start from; absent: drawn anew from the seed. @default none */
  from?: string;
  /**
   * Of a masked language model in tokens: whether each window lies between those that its tokenizer puts around a text, and no special
   * token is to be told. Runs of earlier versions have none. @default true
   */
  markedWindows?: boolean;
  /** The name on the hub of the model in `from`, ORG/NAME or ORG/NAME@REVISION; an adapter's files name their base by it. @default none */
  fromHub?: string;
  /** Trains a low-rank update of the model in `from`, and freezes the rest. @default none: all of the model trains */
  lora?: LoraSettings;
  /** Whether the weights in `from` are of another head, and this one is drawn, for the classes of `config`. @default false */
  newHead?: boolean;
  /** What kernels read of the parameters that train; the optimizer, and what is saved, have float32. @default 'f32' */
  dtype?: TrainingDtype;
  /** What the optimizer keeps its moments as, in memory and when saved: in bf16 they are rounded by chance, seeded. @default 'f32' */
  optimizerState?: MomentDtype;
  /** What activations are kept as for the backward pass. @default 'f32' */
  activationDtype?: ActivationDtype;
  /** What is done with images before the model sees them. @default brought to its size, from -1 to 1 */
  images?: ImagePreparation;
  /** Files, folders or "-", or "synthetic" alone; empty: the default corpus. @default [] */
  data: string[];
  /** Text of this task instead, and at each validation problems that are not in it. @default none */
  task?: TaskName;
  /** How the files are learned from where they hold records; absent: they are text. @default none */
  records?: RecordSettings;
  /** Files to validate on, of the same kind; absent: those that a folder has for it, or a part of the data is held back. @default none */
  validationFile?: string;
  /** The part of the data that is held back. @default a tenth */
  validationShare?: number;
  /** What `steps` was worked out from, where passes over the data were asked for. @default none */
  epochs?: number;
  /** Sequences in a micro-batch. @default 8 */
  batch: number;
  /** Tokens in a sequence. @default the model's context, 1024 at most */
  seq: number;
  /** Micro-batches in a step. @default 1 */
  accumulate: number;
  /** Processes, or groups of such, that each take so many micro-batches of a step. @default 1 */
  ranks?: number;
  /** Processes in each group: they share every layer of the model. @default 1 */
  tensorParallel?: number;
  /** Stages of each group: they have the model's blocks one behind the other. @default 1 */
  pipelineParallel?: number;
  /** Steps of training, at whose end the learning rate has come down. @default 1700 */
  steps: number;
  /** The highest learning rate. @default 0.006 */
  lr: number;
  /** The learning rate at the end. @default lr / 10 */
  minLr: number;
  /** How the learning rate comes down. @default 'cosine' */
  schedule: Decay;
  /** Steps in which the learning rate goes up. @default 100 */
  warmup: number;
  /** Gradients are scaled down to this global norm; 0: never. @default 1 */
  clip: number;
  /** Of matrices, AdamW's. @default 0.1 */
  weightDecay: number;
  /** Where AdamW runs; `cpu`: on the host, below the GPU. @default 'gpu' */
  optimizerDevice?: OptimizerDeviceChoice;
  /**
   * Of `auto`: of the tensors that train, how many the GPU updates, the first ones; 2.5: two, and half of the rows of the third.
   * @default chosen as the run begins
   */
  optimizerSplit?: number;
  /** When a chunk is updated: behind all gradients, or as soon as its own is complete; the same bits. @default 'at-end' */
  update?: Update;
  /** For weights, batches and samples. @default 1 */
  seed: number;
  /** Steps between validations; 0: only at the end. @default 250 */
  evalEvery: number;
  /** Steps between samples; 0: only at the end. @default 250 */
  sampleEvery: number;
  /** Steps between checkpoints; 0: only at the end. @default 250 */
  saveEvery: number;
  /** Windows of the validation, each `seq` tokens. @default 64 */
  evalWindows: number;
  /** Tokens of a sample; 0: none is written, and no memory set aside for it. @default 160 */
  sampleTokens: number;
  /** Validations in a row without a better one that end the run. @default none do */
  earlyStoppingPatience?: number;
  /** By how many nats per token a better one must be better. @default 0 */
  earlyStoppingThreshold?: number;
  /** Whether the checkpoint of the best validation is made, and stays, beside the newest two. @default false */
  keepBest?: boolean;
}

/** The low-rank update that a run trains. */
export interface LoraSettings extends CompleteLora {
  /** A folder with an adapter to go on from, in PEFT's layout or of a run. @default drawn anew */
  adapter?: string;
  /** What the frozen weights are rounded to, and lie in memory as. @default as they are in their files */
  baseDtype?: MadeElement;
}

/** A sequence of a model with a longer context is no longer than this, unless it is said to be. */
const LONGEST_SEQ = 1024;

/** All that a run computes, with what is not among `changes` by default: a small GPT that learns within minutes. */
export function defaultSettings(changes: Partial<RunSettings> = {}): RunSettings {
  check(settingNames, changes, 'the settings');
  const { config = configOfShape(), tokenizer = DEFAULT_TOKENIZER, lr = 0.006 } = changes;
  check(numbers.lr, lr, 'the settings: lr');
  return {
    config,
    tokenizer,
    ...(hasMarkedWindows(config, tokenizer) && { markedWindows: true }),
    data: [],
    batch: 8,
    seq: Math.min(shapeOf(parseConfig(config, 'the settings: config')).context, LONGEST_SEQ),
    accumulate: 1,
    steps: 1700,
    lr,
    minLr: lr / 10,
    schedule: 'cosine',
    warmup: 100,
    clip: 1,
    weightDecay: 0.1,
    seed: 1,
    evalEvery: 250,
    sampleEvery: 250,
    saveEvery: 250,
    evalWindows: 64,
    sampleTokens: 160,
    ...changes,
  };
}

/** Whether a run of a model in such tokens has `markedWindows`, unless it is said otherwise. */
export const hasMarkedWindows = (config: ModelConfig, tokenizer: TokenizerIdentity): boolean =>
  tokenizer.kind === 'huggingface' && !familyOf(config).writes && labelsIn(config) === undefined;

/** What each number may be. */
export const RANGES = {
  ...TRAINER_RANGES,
  steps: wholeNumber(1),
  lr: realNumber(0),
  minLr: realNumber(0),
  warmup: wholeNumber(0),
  evalEvery: wholeNumber(0),
  evalWindows: wholeNumber(1),
  sampleEvery: wholeNumber(0),
  sampleTokens: wholeNumber(0),
  saveEvery: wholeNumber(0),
} as const satisfies Partial<Record<keyof RunSettings, Range>>;

/** What ends a run early. */
export const EARLY_STOPPING_RANGES = {
  earlyStoppingPatience: wholeNumber(1),
  earlyStoppingThreshold: realNumber(0),
} as const satisfies Partial<Record<keyof RunSettings, Range>>;

/** The part of the data that may be held back. */
export const VALIDATION_SHARE = realNumber(0.0001, 0.9);
/** Passes over the data. */
export const EPOCHS = wholeNumber(1, 1_000_000);

type Numbers = { -readonly [K in keyof typeof RANGES]: Schema<number> };
const numbers = Object.fromEntries(Object.entries(RANGES).map(([name, range]) => [name, number(range)])) as Numbers;

const tokenizer = kinds<TokenizerIdentity>('kind', {
  byte: object({ kind: oneOf(['byte']) }),
  huggingface: object({ kind: oneOf(['huggingface']), path: text, sha256: text, overrides: optional(text) }),
});

/** What a low-rank update may be. */
export const LORA_RANGES = {
  rank: wholeNumber(1),
  alpha: realNumber(Number.MIN_VALUE, Number.MAX_VALUE),
  dropout: realNumber(0, 1 - 2 ** -20),
} as const satisfies Partial<Record<keyof LoraSettings, Range>>;

const LORA = {
  rank: number(LORA_RANGES.rank),
  alpha: number(LORA_RANGES.alpha),
  targets: list(text),
  dropout: number(LORA_RANGES.dropout),
  rslora: truth,
  modulesToSave: optional(list(text)),
  adapter: optional(text),
  baseDtype: optional(oneOf(BASE_DTYPES)),
} satisfies Record<keyof LoraSettings, unknown>;

/** Every setting by its name; `config` says what the model's are. */
const settingsWith = (config: Schema<ModelConfig>) =>
  ({
    config,
    tokenizer: optional(tokenizer),
    markedWindows: optional(truth),
    from: optional(text),
    fromHub: optional(text),
    lora: optional(object(LORA)),
    newHead: optional(truth),
    dtype: optional(oneOf(TRAINING_DTYPES)),
    optimizerState: optional(oneOf(MOMENT_DTYPES)),
    activationDtype: optional(oneOf(ACTIVATION_DTYPES)),
    images: optional(imagePreparation),
    data: list(text),
    task: optional(oneOf(Object.keys(TASKS) as TaskName[])),
    records: optional(recordSettingsSchema),
    validationFile: optional(text),
    validationShare: optional(number(VALIDATION_SHARE)),
    epochs: optional(number(EPOCHS)),
    ranks: optional(number(wholeNumber(1))),
    tensorParallel: optional(number(wholeNumber(1))),
    pipelineParallel: optional(number(wholeNumber(1))),
    schedule: oneOf(DECAYS),
    earlyStoppingPatience: optional(number(EARLY_STOPPING_RANGES.earlyStoppingPatience)),
    earlyStoppingThreshold: optional(number(EARLY_STOPPING_RANGES.earlyStoppingThreshold)),
    keepBest: optional(truth),
    optimizerDevice: optional(oneOf(OPTIMIZER_DEVICE_CHOICES)),
    optimizerSplit: optional(number(realNumber(0))),
    update: optional(oneOf(UPDATES)),
    ...numbers,
  }) satisfies Record<keyof RunSettings, unknown>;

/** What settings are in a file. */
export const settingsBy = (config: Schema<ModelConfig>): Schema<RunSettings> => object(settingsWith(config));

/** The schema of the field `config` in what errors call `name`. */
const configIn = (name: string): Schema<ModelConfig> => parsed((json) => parseConfig(json, `${name}: config`));

const given = settingsWith(configIn('the settings'));
const givenSettings = closed<RunSettings>({ ...given, lora: optional(closed<LoraSettings>(LORA)) });
const settingNames = closed(Object.fromEntries(Object.keys(given).map((name) => [name, anything])));

/** Settings from outside: of a page, of a program. Errors: HoldfastError naming the first that is none. */
export const readSettings = (json: unknown): RunSettings => check(givenSettings, json, 'the settings');

/** Settings that were kept; what another version knows beside these is left out. Errors: as `readSettings`. */
export const keptSettings = (json: unknown): RunSettings => check(object(given), json, 'the settings');

/** Whether text is written between steps: memory is set aside for it. */
export const generates = ({
  config,
  sampleTokens,
  task,
  data,
}: Pick<RunSettings, 'config' | 'sampleTokens' | 'task' | 'data'>): boolean =>
  familyOf(config).writes && !isSynthetic(data) && (sampleTokens > 0 || task !== undefined);

/** Settings that say what a step computes; the others, when something is shown or saved. */
const DECISIVE = [
  ...(['steps', 'lr', 'minLr', 'schedule', 'warmup', 'clip', 'weightDecay'] as const),
  ...(['optimizerDevice', 'optimizerSplit'] as const),
];

/** Whether a run computes the same under both, if its model, text and batches are the same. */
export const trainAlike = (a: RunSettings, b: RunSettings): boolean =>
  dtypeOf(a) === dtypeOf(b) &&
  momentDtypeIn(a) === momentDtypeIn(b) &&
  (a.activationDtype ?? 'f32') === (b.activationDtype ?? 'f32') &&
  DECISIVE.every((name) => a[name] === b[name]);

/** What kernels read of the parameters that train. */
export const dtypeOf = ({ dtype = 'f32' }: Pick<RunSettings, 'dtype'>): TrainingDtype => dtype;

/** What the optimizer keeps its moments as. */
export const momentDtypeIn = ({ optimizerState = 'f32' }: Pick<RunSettings, 'optimizerState'>): MomentDtype =>
  optimizerState;

/** Backward passes of a step that updates within one. */
export const backwardPassesIn = (
  settings: Pick<RunSettings, 'update' | 'clip' | 'dtype'>,
): BackwardPasses | undefined =>
  backwardPassesOf(settings.update ?? 'at-end', { clip: settings.clip, dtype: dtypeOf(settings) });

/** The model that a run trains. Errors: HoldfastError for targets of a low-rank update that it does not have. */
export function modelOf(settings: RunSettings): Model {
  const { config, lora } = settings;
  const model = lora ? adapted(makeModel(config), lora) : makeModel(config);
  return momentsIn(computedIn(model, dtypeOf(settings)), momentDtypeIn(settings));
}

const adapted = (model: Model, { adapter: _, baseDtype: __, ...options }: LoraSettings): Model =>
  withLora(model, options);

/** How its trainer is made, memory and kernel choices apart. */
export function trainerOptions(settings: RunSettings): TrainerOptions {
  const { batch, seq, accumulate, clip, weightDecay, seed, records } = settings;
  const { optimizerDevice, optimizerSplit, activationDtype, update } = settings;
  const packed = records?.pack === 'yes' ? { packed: true } : {};
  const { schedule: decay, lr: peak, minLr: min, warmup, steps } = settings;
  return {
    batch,
    seq,
    ...packed,
    accumulate,
    seed,
    schedule: { decay, peak, min, warmup, steps },
    optimizer: { clip, weightDecay },
    ...(optimizerDevice && { optimizerDevice }),
    ...(optimizerSplit !== undefined && { optimizerSplit }),
    ...(update && { update }),
    ...(activationDtype && { activationDtype }),
  };
}
