// What a run is made of: its settings, and the text, batches and trainer that they stand for. Invariant: the same
// settings and the same text are the same run, step for step, wherever it is trained.

import { type Batch, evenWindows, RandomWindows } from '../data/batches.ts';
import { type Corpus, corpusOf, split } from '../data/corpus.ts';
import type { TaskName } from '../data/tasks.ts';
import { ByteTokenizer } from '../data/tokenizer.ts';
import { checkWeights, loadWeights } from '../formats/checkpoint.ts';
import type { ModelConfig } from '../formats/config.ts';
import { initialWeights } from '../nn/initialise.ts';
import type { Model } from '../nn/model.ts';
import type { Host } from '../runtime/host.ts';
import { HoldfastError } from '../util/errors.ts';
import type { TensorSource } from '../util/tensor-source.ts';
import type { Decay } from './schedule.ts';
import type { TrainerOptions } from './trainer.ts';

/** Saved with a run's checkpoints, and the same when it is resumed. */
export interface RunSettings {
  config: ModelConfig;
  /** A folder or zip whose weights to start from; absent: drawn anew from the seed. */
  from?: string;
  /** Files, folders or "-"; empty: the default corpus. */
  data: string[];
  /** Text of this task instead, and at each validation problems that are not in it. */
  task?: TaskName;
  batch: number;
  seq: number;
  accumulate: number;
  steps: number;
  lr: number;
  minLr: number;
  schedule: Decay;
  warmup: number;
  clip: number;
  weightDecay: number;
  seed: number;
  /** Steps between validations, samples and checkpoints; 0: only at the end. */
  evalEvery: number;
  sampleEvery: number;
  saveEvery: number;
  /** Windows of the validation. */
  evalWindows: number;
  /** Tokens of a sample; 0: none is written, and no memory set aside for it. */
  sampleTokens: number;
}

/** Whether text is written between steps: memory is set aside for it. */
export const generates = ({ sampleTokens, task }: RunSettings): boolean => sampleTokens > 0 || task !== undefined;

/** Settings that say what a step computes; the others, when something is shown or saved. */
const DECISIVE = ['steps', 'lr', 'minLr', 'schedule', 'warmup', 'clip', 'weightDecay'] as const;

/** Whether a run computes the same under both, if its model, text and batches are the same. */
export const trainAlike = (a: RunSettings, b: RunSettings): boolean => DECISIVE.every((name) => a[name] === b[name]);

/** How its trainer is made, memory and kernel choices apart. */
export function trainerOptions(settings: RunSettings): TrainerOptions {
  const { batch, seq, accumulate, clip, weightDecay } = settings;
  const { schedule: decay, lr: peak, minLr: min, warmup, steps } = settings;
  return { batch, seq, accumulate, schedule: { decay, peak, min, warmup, steps }, optimizer: { clip, weightDecay } };
}

/** What a run learns from. */
export interface RunText {
  readonly corpus: Corpus;
  readonly identity: TextIdentity;
}

/** Of a corpus: a run goes on with the text that it began with. */
export interface TextIdentity {
  readonly bytes: number;
  readonly sha256: string;
}

/** Errors: HoldfastError where there is no text. */
export async function readText(host: Host, settings: RunSettings): Promise<RunText> {
  const corpus = await corpusOf(host, settings);
  const hash = new Uint8Array(await crypto.subtle.digest('SHA-256', corpus.bytes));
  const sha256 = [...hash].map((byte) => byte.toString(16).padStart(2, '0')).join('');
  return { corpus, identity: { bytes: corpus.bytes.length, sha256 } };
}

/** Batches from the first on. Errors: HoldfastError for text too short, or a vocabulary too small. */
export function cutText(settings: RunSettings, corpus: Corpus): { batches: RandomWindows; validation: Batch } {
  const { config, batch, seq, seed, evalWindows } = settings;
  const tokenizer = new ByteTokenizer();
  if (config.vocab_size < tokenizer.vocabulary) {
    throw new HoldfastError(
      `the model's vocabulary of ${config.vocab_size} is smaller than the ${tokenizer.vocabulary} byte tokens; use a model with at least that`,
    );
  }
  const text = split(corpus);
  return {
    batches: new RandomWindows(tokenizer.encode(text.train), batch, seq, seed, corpus.lineBytes),
    validation: evenWindows(tokenizer.encode(text.validation), seq, evalWindows, corpus.lineBytes),
  };
}

/** Errors: HoldfastError where `found` is not the text that a checkpoint in `from` was trained on. */
export function checkText(found: TextIdentity, saved: TextIdentity, from: string): void {
  if (found.sha256 === saved.sha256) return;
  throw new HoldfastError(
    `${from}: trained on a corpus of ${saved.bytes} bytes, this one has ${found.bytes} or other text; give the same --data`,
  );
}

/** The weights before the first step. Errors: HoldfastError where `settings.from` has none, or another model's. */
export async function startWeights(host: Host, { from, seed }: RunSettings, model: Model): Promise<TensorSource> {
  if (from === undefined) return initialWeights(model, seed);
  const { weights, shapes } = await loadWeights(host.files, from);
  checkWeights(shapes, model.parameters, from);
  return weights;
}
