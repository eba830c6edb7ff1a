// A run: a corpus, a model, a trainer, validation, samples and checkpoints, from the first step or from where
// a checkpoint left off. It shows nothing; it tells what happens through events. Invariant: a run that was
// stopped and resumed yields the losses and weights of one that was not, bit for bit.

import { evenWindows, RandomWindows } from '../data/batches.ts';
import { type Corpus, defaultCorpus, loadCorpus, split } from '../data/corpus.ts';
import { ByteTokenizer } from '../data/tokenizer.ts';
import { type ChoiceRecord, loadChoices, saveChoices } from '../engine/choices.ts';
import type { Pass } from '../engine/pass.ts';
import { isWhole, type Recorder } from '../engine/recording.ts';
import type { MemoryOptions } from '../engine/session.ts';
import { chromeTrace } from '../engine/timeline.ts';
import {
  type Checkpoint,
  checkpointsOf,
  checkWeights,
  loadCheckpoint,
  loadWeights,
  saveCheckpoint,
} from '../formats/checkpoint.ts';
import type { ModelConfig } from '../formats/config.ts';
import type { Device } from '../gpu/device.ts';
import { makeModel } from '../nn/index.ts';
import { initialWeights } from '../nn/initialise.ts';
import { type Model, parameterCount } from '../nn/model.ts';
import { type Host, join } from '../runtime/host.ts';
import { HoldfastError, messageOf } from '../util/errors.ts';
import { Random } from '../util/random.ts';
import { memoryBound } from './memory-bound.ts';
import { type MemoryRecord, memoryRecord } from './report/memory-record.ts';
import { type RunRecord, renderReport } from './report.ts';
import type { SamplingOptions } from './sampling.ts';
import type { Decay } from './schedule.ts';
import { StepClock } from './step-clock.ts';
import { type StepMetrics, Trainer, type TrainerState } from './trainer.ts';

/** What a run is made of; saved with its checkpoints, and the same when it is resumed. */
export interface RunSettings {
  config: ModelConfig;
  /** A folder whose weights to start from; absent: drawn anew from the seed. */
  from?: string;
  /** Files, folders or "-"; empty: the default corpus. */
  data: string[];
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

export interface RunEvents {
  ready?(run: ReadyRun): void;
  step?(metrics: StepMetrics & { tokensPerSecond: number }): void;
  validation?(step: number, loss: number): void;
  sample?(step: number, text: string): void;
  saved?(path: string): void;
  /** The GPU device was lost, and the run goes on from its last checkpoint, or from its start. */
  lost?(why: string): void;
}

export interface ReadyRun {
  readonly model: Model;
  readonly corpus: Corpus;
  readonly trainer: Trainer;
  readonly firstStep: number;
  /** Writes a checkpoint of the steps that are done; for intermissions. */
  readonly save: () => Promise<void>;
}

/** Time between two steps for others, who must leave the run's state as it is. */
export interface Intermission {
  /** Asked before each step. */
  readonly wanted: boolean;
  /** Called when it is wanted, with no step under way. The next step starts when it resolves. */
  run(): Promise<void>;
}

export interface RunSummary {
  steps: number;
  finalLoss: number;
  validationLoss: number;
  tokensPerSecond: number;
  parameters: number;
  peakGpuBytes: number;
  skippedSteps: number;
  adapter: string;
  checkpoint: string;
  interrupted: boolean;
  /** There when the run had a GPU budget. */
  memory?: MemoryRecord;
}

export interface RunOptions {
  resume?: boolean;
  /** Ends the run after that many steps of the schedule. */
  until?: number;
  /** Ends it after the step under way. */
  signal?: AbortSignal;
  events?: RunEvents;
  /** Where to write a trace of the last step, for chrome://tracing and Perfetto. */
  timeline?: string;
  /** Budgets, tiers and policy: no part of the settings, since they change no result. */
  memory?: MemoryOptions;
  /** Where a run is paused, saved on demand or sampled from. @default none */
  intermission?: Intermission;
}

/** The parts of trainer_state.json. */
export interface SavedState {
  format: 'holdfast 1';
  settings: RunSettings;
  corpus: { bytes: number; sha256: string };
  trainer: TrainerState;
  batches: number[];
  sampling: number[];
  choices: ChoiceRecord;
  adapter: string;
  history: Pick<RunRecord, 'steps' | 'validations' | 'samples'>;
}

const SAMPLE: SamplingOptions = { temperature: 0.7, topP: 0.95 };
/** Steps started before the first of them is waited for. */
const STEPS_AHEAD = 2;
/** Skipped steps in a row that end a run. */
const MOST_SKIPPED = 10;
/** Devices that a run may lose without a budget, when it has to go back. */
const MOST_LOSSES = 3;

/** The settings that a checkpoint was made with. */
export async function savedSettings(host: Host, out: string): Promise<RunSettings> {
  if ((await checkpointsOf(host.files, out)).length === 0) {
    throw new HoldfastError(`${out}: there is no checkpoint to resume; start without --resume`);
  }
  return (await savedState(host, out)).settings;
}

/** What the latest checkpoint says of its run. */
export async function savedState(host: Host, out: string): Promise<SavedState> {
  return stateOf(await loadCheckpoint(host.files, out), out);
}

function stateOf(checkpoint: Checkpoint, from: string): SavedState {
  const state = checkpoint.state as SavedState;
  if (state?.format !== 'holdfast 1') {
    throw new HoldfastError(`${from}: its trainer_state.json is not one of Holdfast's; start without --resume`);
  }
  return state;
}

/**
 * Trains into the folder `out`. With `resume`, goes on from its latest checkpoint. Stopped by `until` or `signal` it
 * is saved, to be resumed. Errors: HoldfastError; whatever was saved stays whole.
 */
export async function trainRun(
  host: Host,
  device: Device,
  settings: RunSettings,
  out: string,
  options: RunOptions = {},
): Promise<RunSummary> {
  const corpus = settings.data.length > 0 ? await loadCorpus(host, settings.data) : await defaultCorpus(host);
  let current = device;
  let resume = options.resume ?? false;
  try {
    for (let losses = 0; ; losses++) {
      try {
        return await attempt(host, current, settings, out, corpus, { ...options, resume });
      } catch (error) {
        if (!current.isLost || losses === MOST_LOSSES) throw error;
        // Nothing but the last checkpoint is left of the run.
        options.events?.lost?.(messageOf(error));
        current = await current.reopen();
        resume = (await checkpointsOf(host.files, out)).length > 0;
      }
    }
  } finally {
    if (current !== device) current.close();
  }
}

/** The run on one device; a trainer that can go on after a loss goes on with another. */
async function attempt(
  host: Host,
  device: Device,
  settings: RunSettings,
  out: string,
  corpus: Corpus,
  options: RunOptions,
): Promise<RunSummary> {
  const { resume = false, until = settings.steps, signal, events = {}, memory = {}, timeline, intermission } = options;
  const end = Math.min(until, settings.steps);
  const { files } = host;
  const checkpoint = resume ? await loadCheckpoint(files, out) : undefined;
  const saved = checkpoint && stateOf(checkpoint, out);

  const sha256 = await digest(corpus.bytes);
  if (saved && saved.corpus.sha256 !== sha256) {
    throw new HoldfastError(
      `${out}: trained on a corpus of ${saved.corpus.bytes} bytes, this one has ${corpus.bytes.length} or other text; give the same --data`,
    );
  }
  const tokenizer = new ByteTokenizer();
  if (settings.config.vocab_size < tokenizer.vocabulary) {
    throw new HoldfastError(
      `the model's vocabulary of ${settings.config.vocab_size} is smaller than the ${tokenizer.vocabulary} byte tokens; use a model with at least that`,
    );
  }
  const text = split(corpus.bytes);
  const batches = new RandomWindows(tokenizer.encode(text.train), settings.batch, settings.seq, settings.seed);
  const validation = evenWindows(tokenizer.encode(text.validation), settings.seq, settings.evalWindows);

  const model = makeModel(settings.config);
  const choices = saved?.choices ?? (await loadChoices(host, device));
  const trainer = await Trainer.create(device, model, {
    batch: settings.batch,
    seq: settings.seq,
    accumulate: settings.accumulate,
    schedule: {
      decay: settings.schedule,
      peak: settings.lr,
      min: settings.minLr,
      warmup: settings.warmup,
      steps: settings.steps,
    },
    optimizer: { clip: settings.clip, weightDecay: settings.weightDecay },
    choices,
    memory,
    generates: settings.sampleTokens > 0,
  });
  const { generator } = trainer;
  if (checkpoint && saved) {
    checkWeights(checkpoint.shapes, model.parameters, out);
    await trainer.setWeights(checkpoint.weights);
    await trainer.setValues('moment1', checkpoint.moment1);
    await trainer.setValues('moment2', checkpoint.moment2);
    trainer.restore(saved.trainer);
    batches.restore(saved.batches);
  } else if (settings.from) {
    const { weights, shapes } = await loadWeights(files, settings.from);
    checkWeights(shapes, model.parameters, settings.from);
    await trainer.setWeights(weights);
  } else await trainer.setWeights(initialWeights(model, settings.seed));
  if (trainer.choices.measured > 0) await saveChoices(host, device, trainer.choices.record());
  const sampling = new Random(settings.seed, 'samples');
  if (saved) sampling.restore(saved.sampling);

  const history = saved?.history ?? { steps: [], validations: [], samples: [] };
  const shapes = new Map(model.parameters.map(({ name, shape }) => [name, shape]));
  await files.makeFolder(out);
  const firstStep = trainer.step;

  // The clock runs over training alone: validation, samples and saving are taken out.
  const clock = new StepClock(settings.batch * settings.seq * settings.accumulate);
  let skippedInARow = 0;
  let lastSaved = '';
  const finish = async (pending: Promise<StepMetrics>): Promise<void> => {
    const metrics = await pending;
    const tokensPerSecond = clock.tick();
    history.steps.push({
      step: metrics.step,
      loss: metrics.loss,
      lr: metrics.lr,
      gradNorm: metrics.gradNorm,
      tokensPerSecond,
    });
    events.step?.({ ...metrics, tokensPerSecond });
    skippedInARow = metrics.skipped ? skippedInARow + 1 : 0;
    if (skippedInARow >= MOST_SKIPPED) {
      throw new HoldfastError(
        `${skippedInARow} steps in a row gave a loss or gradient that is not finite (step ${metrics.step}); lower --lr or --clip`,
      );
    }
  };
  const validate = async (): Promise<number> => {
    const loss = await trainer.evaluate(validation);
    history.validations.push({ step: trainer.step, loss });
    events.validation?.(trainer.step, loss);
    return loss;
  };
  const sample = async (): Promise<void> => {
    if (!generator) return;
    const prompt = tokenizer.encode('\n');
    const decoder = tokenizer.stream();
    let written = '';
    for await (const id of generator.generate(prompt, settings.sampleTokens, SAMPLE, sampling))
      written += decoder.push(id % 256);
    written += decoder.end();
    history.samples.push({ step: trainer.step, text: written });
    events.sample?.(trainer.step, written);
  };
  const save = async (): Promise<void> => {
    const state: SavedState = {
      format: 'holdfast 1',
      settings,
      corpus: { bytes: corpus.bytes.length, sha256 },
      trainer: await trainer.state(),
      batches: batches.state(),
      sampling: sampling.state(),
      choices: trainer.choices.record(),
      adapter: device.adapter.name,
      history,
    };
    lastSaved = await saveCheckpoint(files, out, trainer.step, {
      config: settings.config,
      weights: trainer.values('parameter'),
      shapes,
      moment1: trainer.values('moment1'),
      moment2: trainer.values('moment2'),
      state,
    });
    events.saved?.(lastSaved);
  };

  events.ready?.({ model, corpus, trainer, firstStep, save });
  let recorder: Recorder | undefined;
  const record = async (): Promise<MemoryRecord> => {
    const { session } = trainer;
    return memoryRecord({
      report: session.report(),
      gpuPeak: trainer.device.allocator.peak,
      fit: session.fit,
      planned: session.scheduleOf(session.fit.passes[0] as Pass).moved,
      // After a lost device the last of them may be cut short.
      recordings: recorder?.recordings.filter(isWhole) ?? [],
      bound: await memoryBound(session),
    });
  };

  const due = (every: number): boolean => every > 0 && trainer.step % every === 0 && trainer.step < end;
  const underWay: Promise<void>[] = [];
  try {
    clock.start();
    while (trainer.step < end && !signal?.aborted) {
      if (intermission?.wanted) {
        await Promise.all(underWay.splice(0));
        clock.stop();
        await intermission.run();
        clock.start();
        if (signal?.aborted) break;
      }
      if ((memory.gpu !== undefined || timeline) && trainer.step === end - 1) {
        await Promise.all(underWay.splice(0));
        recorder = trainer.record();
      }
      const micro = Array.from({ length: settings.accumulate }, () => batches.next());
      underWay.push(finish(trainer.start(micro)));
      // A rejected step must not go unheard while others are waited for.
      underWay.at(-1)?.catch(() => {});
      if (underWay.length > STEPS_AHEAD) await underWay.shift();
      if (!due(settings.evalEvery) && !due(settings.sampleEvery) && !due(settings.saveEvery)) continue;
      await Promise.all(underWay.splice(0));
      clock.stop();
      if (due(settings.evalEvery)) await validate();
      if (due(settings.sampleEvery)) await sample();
      if (due(settings.saveEvery)) await save();
      clock.start();
    }
    await Promise.all(underWay.splice(0));
    clock.stop();
    const interrupted = trainer.step < end;
    const last = history.validations.at(-1);
    const validationLoss = last?.step === trainer.step || interrupted ? last?.loss : await validate();
    if (!interrupted && history.samples.at(-1)?.step !== trainer.step) await sample();
    await save();
    if (timeline && recorder) {
      await files.writeAtomic(timeline, JSON.stringify(chromeTrace(recorder.recordings.filter(isWhole))));
    }
    const summary: RunSummary = {
      steps: trainer.step,
      finalLoss: history.steps.at(-1)?.loss ?? Number.NaN,
      validationLoss: validationLoss ?? Number.NaN,
      tokensPerSecond: clock.average,
      parameters: parameterCount(model),
      peakGpuBytes: trainer.device.allocator.peak,
      skippedSteps: await trainer.skipped(),
      adapter: trainer.device.adapter.name,
      checkpoint: lastSaved,
      interrupted,
      ...(memory.gpu === undefined ? {} : { memory: await record() }),
    };
    await files.writeAtomic(join(out, 'report.html'), renderReport(reportOf(host, settings, summary, history, corpus)));
    return summary;
  } finally {
    await Promise.allSettled(underWay);
    await trainer.destroy();
    if (trainer.device !== device) trainer.device.close();
  }
}

async function digest(bytes: Uint8Array<ArrayBuffer>): Promise<string> {
  const hash = new Uint8Array(await crypto.subtle.digest('SHA-256', bytes));
  return [...hash].map((byte) => byte.toString(16).padStart(2, '0')).join('');
}

function reportOf(
  host: Host,
  settings: RunSettings,
  summary: RunSummary,
  history: SavedState['history'],
  corpus: Corpus,
): RunRecord {
  const { config, from, data, ...numbers } = settings;
  const { checkpoint, interrupted, memory, ...figures } = summary;
  return {
    title: `${config.model_type}, ${summary.parameters.toLocaleString('en')} parameters`,
    settings: {
      ...numbers,
      corpus: `${data.length > 0 ? data.join(', ') : 'TypeScript declarations'} (${corpus.bytes.length} bytes)`,
      ...(from ? { from } : {}),
      runtime: host.name,
    },
    summary: figures,
    ...history,
    ...(memory && { memory }),
  };
}
