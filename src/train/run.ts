// A run: a corpus, a model, a trainer, validation, samples and checkpoints, from the first step or from where
// a checkpoint left off. It shows nothing; it tells what happens through events. Invariant: a run that was
// stopped and resumed yields the losses and weights of one that was not, bit for bit.

import { withTemplate } from '../data/records/find-template.ts';
import { taskOf } from '../data/tasks.ts';
import type { Tokenizer } from '../data/tokenizer.ts';
import { loadChoices, saveChoices } from '../engine/compile/choices.ts';
import { offloadedBytes } from '../engine/compile/pass.ts';
import type { Recording } from '../engine/observe/recording.ts';
import { chromeTrace } from '../engine/observe/timeline.ts';
import type { Ranks } from '../engine/ranks/ranks.ts';
import { limitsOf, type MemoryOptions } from '../engine/run/arrangement.ts';
import { LostForGood } from '../engine/run/device-mutex.ts';
import { checkpointsOf, loadCheckpoint, loadTokenizer, saveCheckpoint } from '../formats/checkpoint.ts';
import type { Device } from '../gpu/device.ts';
import { DEFAULT_ADAPTER } from '../nn/lora.ts';
import { type Model, parameterCount } from '../nn/model.ts';
import type { FolderClaim, Host } from '../runtime/host.ts';
import { finishing, HoldfastError, messageOf } from '../util/errors.ts';
import { Random } from '../util/random.ts';
import { restricted } from '../util/tensor-source.ts';
import { checkBase } from './base-identity.ts';
import { Callbacks, EarlyStopping, type TrainerCallback } from './callbacks.ts';
import { Epochs } from './epochs.ts';
import { RunLog } from './huggingface-state.ts';
import { memoryBound } from './memory-bound.ts';
import { type MemoryRecord, memoryRecord } from './memory-record.ts';
import { type RankRecord, rankRecord } from './rank-record.ts';
import {
  checkAlike,
  createOnRanks,
  type FirstChoices,
  layoutFacts,
  microBatchesOf,
  runFacts,
  settingsOn,
} from './ranks.ts';
import {
  checkSettings,
  checkText,
  datasetOf,
  generates,
  modelOf,
  type RunSettings,
  type RunText,
  readText,
  tokenizerFor,
  trainerOptions,
} from './run-settings.ts';
import type { SamplingOptions } from './sampling.ts';
import { type SavedState, stateOf, type Validation, withSettings } from './saved-state.ts';
import { accuracyOn } from './solving.ts';
import { checkTrained, isTrainedIn, startWeights } from './start-weights.ts';
import { StepClock } from './step-clock.ts';
import { STEPS_AHEAD } from './stepper.ts';
import { type StepMetrics, Trainer } from './trainer.ts';
import { whatIf } from './what-if.ts';
import { writeText } from './writing.ts';

/** What happens in a run, told as it happens. */
export interface RunEvents {
  /** So many bytes of the text are tokens; not told where that takes no time. */
  tokenizing?(done: number, total: number): void;
  /** All is in place for the first step. */
  ready?(run: ReadyRun): void;
  /** A training step is done; `tokensPerSecond` is the mean of the last ones. */
  step?(metrics: StepMetrics & { tokensPerSecond: number }): void;
  /** `accuracy`: of a task, the share of unseen problems that were solved; of a classifier, that of labels told right. */
  validation?(step: number, loss: number, accuracy?: number): void;
  /** Text was written, after so many steps. */
  sample?(step: number, text: string): void;
  /** A checkpoint is whole, in that folder. */
  saved?(path: string): void;
  /** The GPU device was lost, and the run goes on from its last checkpoint, or from its start. */
  lost?(why: string): void;
  /** All is done and saved. Waited for, with the run's folder still taken: so a report can be written there. */
  over?(summary: RunSummary, state: SavedState): Promise<void> | void;
}

/** A run that is about to train. */
export interface ReadyRun {
  /** What is trained. */
  readonly model: Model;
  /** What it learns from. */
  readonly corpus: RunText['corpus'];
  /** In whose tokens it reads and writes. */
  readonly tokenizer: Tokenizer;
  /** What became of records, a line each. */
  readonly notes: readonly string[];
  /** What trains it. Its steps are the run's to start. */
  readonly trainer: Trainer;
  /** From 0; where it was resumed, the steps before it are done. */
  readonly firstStep: number;
  /** Writes a checkpoint of the steps that are done; for intermissions. */
  readonly save: () => Promise<void>;
  /** What it would say of the run. */
  readonly state: () => Promise<SavedState>;
}

/** Time between two steps for other work, which must leave the run's state as it is. */
export interface Intermission {
  /** Asked before each step. */
  readonly wanted: boolean;
  /** Called when it is wanted, with no step under way. The next step starts when it resolves. */
  run(): Promise<void>;
}

/** An observer of steps while they run. */
export interface Observer {
  /** Asked before each step. */
  readonly wanted: boolean;
  /** See StepHooks. */
  recorded(step: number, recording: Recording, arrived: Promise<void>): void;
}

/** A run that is over. */
export interface RunSummary {
  /** Steps done, those before a resume included. */
  steps: number;
  /** Of the last step; nats per token. */
  finalLoss: number;
  /** Of the last validation, nats per token; NaN before the first. */
  validationLoss: number;
  /** There for a task, and of a classifier. */
  accuracy?: number;
  /** Of this part of the run, training steps alone. */
  tokensPerSecond: number;
  /** Of the model. */
  parameters: number;
  /** The most GPU memory that was in use at once. */
  peakGpuBytes: number;
  /** Steps that changed nothing: their loss or gradient was not finite. */
  skippedSteps: number;
  /** The adapter's name. */
  adapter: string;
  /** The folder of the last checkpoint. */
  checkpoint: string;
  /** Whether it was ended before its last step, and is to be gone on with. */
  interrupted: boolean;
  /** There where a callback ended it, or early stopping. */
  stopped?: true;
  /** There where the best validation's checkpoint is kept. */
  best?: { readonly step: number; readonly loss: number; readonly checkpoint: string };
  /** There when the run had a GPU budget. */
  memory?: MemoryRecord;
  /** There when several ranks ran it. */
  ranks?: RankRecord;
}

/** What a run is beside its settings: none of it changes a result. */
export interface RunOptions {
  /** Goes on from the latest checkpoint in the run's folder. @default false */
  resume?: boolean;
  /** Ends the run after that many steps of the schedule. */
  until?: number;
  /** Ends it after the step under way. */
  signal?: AbortSignal;
  /** Told of what happens. @default none */
  events?: RunEvents;
  /** Told of what happens, in Hugging Face's events; they may ask for something. @default none */
  callbacks?: readonly TrainerCallback[];
  /** Where to write a trace of the last step, for chrome://tracing and Perfetto. */
  timeline?: string;
  /** Budgets, tiers and policy: no part of the settings, since they change no result. */
  memory?: MemoryOptions;
  /** Where a run is paused, saved on demand or sampled from. @default none */
  intermission?: Intermission;
  /** @default none */
  observer?: Observer;
  /** That of the settings, where the caller has made it already. @default made of its files */
  tokenizer?: Tokenizer | undefined;
  /** On `out`, where the caller has one already. @default the run takes one, and gives it back */
  claim?: FolderClaim | undefined;
  /** What it learns from, where the caller has read it already. @default it is read */
  text?: RunText | undefined;
  /** The processes that run it together, all with the same settings. Rank 0 alone tells and writes. @default none */
  ranks?: Ranks | undefined;
}

/** Of a task, solved at each validation. */
const PROBLEMS = 64;
const SAMPLE: SamplingOptions = { temperature: 0.7, topP: 0.95 };
/** Skipped steps in a row that end a run. */
const MOST_SKIPPED = 10;
/** For the optimum over whole chunks, where the plan is not at the bound: a tenth of the run, a minute at most. */
const exactSeconds = (spentMs: number): number => Math.min(60, Math.max(10, spentMs / 10_000));
/** Devices that a run may lose, when it has to go back, before it has saved one step more than it had. */
const MOST_LOSSES = 3;

/**
 * Trains into the folder `out`, which no other process may write to meanwhile. With `resume`, goes on from its latest
 * checkpoint. Stopped by `until` or `signal` it is saved, to be resumed. Errors: HoldfastError; whatever was saved
 * stays whole.
 */
export async function trainRun(
  host: Host,
  device: Device,
  given: RunSettings,
  out: string,
  options: RunOptions = {},
): Promise<RunSummary> {
  const { ranks } = options;
  const settings = settingsOn(given, ranks?.size ?? 1);
  checkSettings(settings);
  const isFirst = ranks === undefined || ranks.rank === 0;
  const claim = options.claim ?? (isFirst ? await host.claimFolder?.(out) : undefined);
  let current = device;
  let resume = options.resume ?? false;
  let saved: number | undefined;
  let losses = 0;
  try {
    if (ranks) await checkAlike(ranks, await runFacts(host, ranks, settings, device.adapter.name));
    if (resume) saved = await lastSaved(host, out);
    const carried = resume ? await loadTokenizer(host.files, out) : undefined;
    const tokenizer = options.tokenizer ?? (await tokenizerFor(host.files, settings, out, carried));
    const { signal, events } = options;
    const text =
      options.text ?? (await readText(host, settings, tokenizer, { signal, onProgress: events?.tokenizing }));
    const { bytes, sha256 } = text.identity;
    if (ranks) await checkAlike(ranks, { data: `${bytes} bytes (${sha256})` });
    for (;;) {
      let trainer: Trainer | undefined;
      const made = (found: Trainer) => {
        trainer = found;
      };
      const inUse = () => trainer?.device ?? current;
      try {
        return await finishing(
          () => attempt(host, current, settings, out, text, { ...options, resume, tokenizer }, made),
          () => trainer?.destroy(),
          () => inUse() !== current && inUse().close(),
        );
      } catch (error) {
        // The others cannot go back: the job ends, and is resumed as a whole.
        if (!inUse().isLost || error instanceof LostForGood || ranks) throw error;
        const before = saved;
        saved = await lastSaved(host, out);
        losses = saved === before ? losses + 1 : 1;
        if (losses > MOST_LOSSES) {
          const where = trainer ? '' : ', while the run was made ready';
          const since = saved === undefined ? 'the start' : `the checkpoint of step ${saved}`;
          throw new LostForGood(`${messageOf(error)}${where} (${losses} times in a row since ${since})`);
        }
        // Nothing but the last checkpoint is left of the run.
        options.events?.lost?.(messageOf(error));
        current = await current.reopen();
        resume = saved !== undefined;
      }
    }
  } finally {
    if (current !== device) current.close();
    if (!options.claim) await claim?.release();
  }
}

/** The step of the latest checkpoint. */
const lastSaved = async ({ files }: Host, out: string): Promise<number | undefined> =>
  (await checkpointsOf(files, out)).at(-1)?.step;

/** The run on one device; a trainer that can go on after a loss goes on with another. `made` gets it, to end it. */
async function attempt(
  host: Host,
  device: Device,
  settings: RunSettings,
  out: string,
  text: RunText,
  options: RunOptions & { readonly tokenizer: Tokenizer },
  made: (trainer: Trainer) => void,
): Promise<RunSummary> {
  const { resume = false, until = settings.steps, signal, memory = {}, ranks } = options;
  const { intermission, observer, tokenizer } = options;
  const isFirst = ranks === undefined || ranks.rank === 0;
  const { events = {}, timeline } = isFirst ? options : {};
  const { earlyStoppingPatience, earlyStoppingThreshold } = settings;
  const callbacks = new Callbacks([
    ...(earlyStoppingPatience === undefined ? [] : [new EarlyStopping(earlyStoppingPatience, earlyStoppingThreshold)]),
    ...(options.callbacks ?? []),
  ]);
  // What is asked for behind a step comes before the next one.
  const ahead = callbacks.hear('onStepEnd', 'onLog', 'onEpochEnd') ? 0 : STEPS_AHEAD;
  const end = Math.min(until, settings.steps);
  const { files } = host;
  const checkpoint = resume ? await loadCheckpoint(files, out) : undefined;
  const saved = checkpoint && stateOf(checkpoint);
  const { from, lora } = settings;

  if (saved) checkText(text.identity, saved.corpus, out);
  const dataset = datasetOf(settings, text);

  const alone = modelOf(settings);
  if (checkpoint) checkTrained(checkpoint, alone);
  const start = lora || !checkpoint ? await startWeights(host, settings, alone, checkpoint?.weights) : undefined;
  const { model } = start ?? { model: alone };
  const isTrained = isTrainedIn(model);
  const choices = saved?.choices ?? (await loadChoices(host, device));
  const create = async (first?: FirstChoices): Promise<Trainer> => {
    const created = await Trainer.create(device, model, {
      ...trainerOptions(settings),
      choices: first?.choices ?? choices,
      memory,
      generates: generates(settings),
      threads: host.threads,
      ...(ranks && { ranks: { ...ranks, chunkBytes: first?.chunkBytes } }),
    });
    made(created);
    return created;
  };
  const trainer = ranks ? await createOnRanks(ranks, create) : await create();
  if (ranks) await checkAlike(ranks, await layoutFacts(host, trainer));
  const { generator } = trainer;
  const adapter = model.adapters?.find(({ name }) => name === DEFAULT_ADAPTER);
  if (checkpoint && saved) {
    if (!lora) await trainer.setWeights(checkpoint.weights);
    await trainer.setValues('moment1', checkpoint.moment1);
    await trainer.setValues('moment2', checkpoint.moment2);
    trainer.restore(saved.trainer);
    dataset.restore(saved.batches);
  }
  let base: string | undefined;
  if (start) {
    await trainer.setWeights(start.weights);
    base = await start.base();
    if (base !== undefined) checkBase(base, saved?.base, from ?? '', out);
  }
  if (isFirst && trainer.choices.measured > 0) await saveChoices(host, device, trainer.choices.record());
  const sampling = new Random(settings.seed, 'samples');
  if (saved) sampling.restore(saved.sampling);

  const earlier = saved ? withSettings(saved, settings).earlier : undefined;
  const history = saved?.history ?? { steps: [], validations: [], samples: [] };
  const shapes = new Map(model.parameters.map(({ name, shape }) => [name, shape]));
  const epochs = new Epochs(dataset, settings.batch * microBatchesOf(settings));
  const log = new RunLog(settings, epochs, out, history);
  if (isFirst) await files.makeFolder(out);
  const firstStep = trainer.step;

  const began = performance.now();
  // The clock runs over training alone: validation, samples and saving are taken out.
  const clock = new StepClock(settings.batch * settings.seq * microBatchesOf(settings));
  let skippedInARow = 0;
  for (const { loss, gradNorm } of history.steps) {
    // In JSON they are null.
    skippedInARow = Number.isFinite(loss) && Number.isFinite(gradNorm) ? 0 : skippedInARow + 1;
  }
  let lastSaved = '';
  /** The checkpoint of a step that was not skipped: later ones do not take its place until one more is there. */
  let lastGood = resume ? (await checkpointsOf(files, out)).at(skippedInARow === 0 ? -1 : -2)?.path : undefined;
  let savedStep: number | undefined;
  let saveOwed = false;
  /** The best validation's checkpoint, which takes no other's place. */
  let bestOwed = false;
  const finish = async (pending: Promise<StepMetrics>): Promise<void> => {
    const { skipped, ...figures } = await pending;
    const tokensPerSecond = clock.tick();
    history.steps.push({ ...figures, tokensPerSecond });
    events.step?.({ ...figures, skipped, tokensPerSecond });
    skippedInARow = skipped ? skippedInARow + 1 : 0;
    const entry = log.stepped({ ...figures, tokensPerSecond });
    if (ahead === 0) {
      await callbacks.tell('onStepEnd', log.state);
      if (entry) await callbacks.tell('onLog', log.state, entry);
      if (epochs.endsWith(figures.step)) await callbacks.tell('onEpochEnd', log.state);
    }
    if (skippedInARow >= MOST_SKIPPED) {
      throw new HoldfastError(
        `${skippedInARow} steps in a row gave a loss or gradient that is not finite (step ${figures.step}); lower --lr or --clip`,
      );
    }
  };
  const problems = settings.task && taskOf(settings.task).unseen(settings.seed, PROBLEMS);
  const validate = async (): Promise<Validation> => {
    const { loss, accuracy: told } = await trainer.score(dataset.validation);
    const accuracy = problems && generator ? await accuracyOn(problems, generator, tokenizer) : told;
    const found = { step: trainer.step, loss, ...(accuracy !== undefined && { accuracy }) };
    history.validations.push(found);
    events.validation?.(trainer.step, loss, accuracy);
    const { entry, isBest } = log.evaluated(found);
    bestOwed = isBest && settings.keepBest === true;
    await callbacks.tell('onEvaluate', log.state, entry);
    return found;
  };
  const sample = async (): Promise<void> => {
    // Where parameters are gathered for use all ranks write, the same.
    if (!generator || settings.sampleTokens === 0 || !(isFirst || ranks.stage === 3)) return;
    // A task's lines begin its windows: there, what comes before the first one is not known.
    const [problem] = problems ?? [];
    const prompt = problem?.prompt ?? dataset.prompt ?? (tokenizer.addsBos ? '' : '\n');
    const options = { ...SAMPLE, tokens: settings.sampleTokens };
    let written = problem?.prompt ?? (dataset.prompt ? tokenizer.decode(dataset.prompt) : '');
    for await (const piece of writeText(generator, tokenizer, prompt, options, sampling)) written += piece;
    history.samples.push({ step: trainer.step, text: written });
    events.sample?.(trainer.step, written);
  };
  const state = async (): Promise<SavedState> => ({
    format: 'holdfast 1',
    settings,
    ...(earlier && { earlier }),
    ...(base !== undefined && { base }),
    corpus: dataset.identity,
    trainer: await trainer.state(),
    batches: dataset.state(),
    sampling: sampling.state(),
    choices: trainer.choices.record(),
    adapter: device.adapter.name,
    history,
  });
  const save = async (): Promise<void> => {
    const now = {
      config: settings.config,
      weights: restricted(trainer.values('parameter'), lora ? isTrained : () => true),
      ...(adapter && { adapter: { info: adapter, base: from } }),
      shapes,
      moment1: trainer.values('moment1'),
      moment2: trainer.values('moment2'),
      state: { ...(await state()), ...log.state },
      ...(tokenizer.files && { tokenizer: withTemplate(tokenizer.files, settings.records?.template) }),
    };
    const best = log.state.best_model_checkpoint ?? undefined;
    // Empty on the other ranks, which bring what only they have.
    lastSaved = (await trainer.collect(() => saveCheckpoint(files, out, trainer.step, now, lastGood, best))) ?? '';
    if (skippedInARow === 0) lastGood = lastSaved;
    savedStep = trainer.step;
    events.saved?.(lastSaved);
    await callbacks.tell('onSave', log.state, lastSaved);
  };

  const { notes } = dataset;
  events.ready?.({ model, corpus: text.corpus, tokenizer, notes, trainer, firstStep, save, state });
  let lastStep: Recording | undefined;
  const record = async (): Promise<MemoryRecord> => {
    const { session } = trainer;
    return memoryRecord({
      report: session.report(),
      gpuPeak: trainer.device.allocator.peak,
      fit: session.fit,
      planned: session.scheduleOf(session.fit.passes.step).moved,
      offloaded: offloadedBytes(session.fit.passes.step),
      recordings: lastStep ? [lastStep] : [],
      bound: await memoryBound(session, exactSeconds(performance.now() - began)),
      ...(!ranks && { whatIf: whatIf(session.fit, limitsOf(trainer.device), session.memory) }),
    });
  };

  // Of the whole run's course, wherever this part of it ends: what is due at an early end belongs to the run.
  const due = (every: number): boolean => every > 0 && trainer.step % every === 0 && trainer.step < settings.steps;
  const underWay: Promise<void>[] = [];
  /** On any rank: an interrupt comes to each at another step. */
  let aborted = false;
  const goesOn = async (): Promise<boolean> => {
    const asked = signal?.aborted ?? false;
    aborted = ranks ? await ranks.control.any('whether to stop', asked) : asked;
    return !aborted;
  };
  try {
    await callbacks.tell('onTrainBegin', log.state);
    clock.start();
    while (trainer.step < end && !callbacks.control.shouldTrainingStop && (await goesOn())) {
      if (intermission?.wanted) {
        await Promise.all(underWay.splice(0));
        clock.stop();
        await intermission.run();
        clock.start();
        if (!(await goesOn())) break;
      }
      const { step } = trainer;
      const isSeen = memory.gpu !== undefined || timeline !== undefined || ranks !== undefined;
      const reported = step === end - 1 && isSeen;
      const observed = observer?.wanted ?? false;
      const recorded = (recording: Recording, arrived: Promise<void>) => {
        if (reported) lastStep = recording;
        if (observed) observer?.recorded(step, recording, arrived);
      };
      if (epochs.beginsWith(step)) await callbacks.tell('onEpochBegin', log.state);
      await callbacks.tell('onStepBegin', log.state);
      const micro = Array.from({ length: microBatchesOf(settings) }, () => dataset.next());
      underWay.push(finish(trainer.start(micro, reported || observed ? { recorded } : {})));
      // A rejected step must not go unheard while others are waited for.
      underWay.at(-1)?.catch(() => {});
      if (underWay.length > ahead) await underWay.shift();
      saveOwed = callbacks.take('shouldSave') || due(settings.saveEvery) || saveOwed;
      const validates = callbacks.take('shouldEvaluate') || due(settings.evalEvery);
      if (!validates && !due(settings.sampleEvery) && !saveOwed) continue;
      await Promise.all(underWay.splice(0));
      clock.stop();
      if (validates) await validate();
      if (due(settings.sampleEvery)) await sample();
      // A run that diverges leaves the checkpoints from before. What ends or pauses it saves all the same.
      if (bestOwed || (saveOwed && skippedInARow === 0)) {
        await save();
        bestOwed = false;
        saveOwed = false;
      }
      clock.start();
    }
    await Promise.all(underWay.splice(0));
    clock.stop();
    const stopped = callbacks.control.shouldTrainingStop && !aborted;
    const interrupted = trainer.step < end && !stopped;
    // What an early end shows besides is no part of the run: it is saved without, as it would go on by itself.
    const early = trainer.step < settings.steps;
    if (early && savedStep !== trainer.step) await save();
    const last = history.validations.at(-1);
    const validated = last?.step === trainer.step || interrupted ? last : await validate();
    // A model that has diverged may fail to write: it is saved before.
    if (!early && skippedInARow > 0) await save();
    if (!interrupted && history.samples.at(-1)?.step !== trainer.step) await sample();
    if (!early) await save();
    const shared = ranks && (await rankRecord(ranks, trainer, lastStep));
    const others = (shared?.each ?? []).flatMap(({ rank, step }) => (step && rank > 0 ? [step] : []));
    if (timeline && lastStep) await files.writeAtomic(timeline, JSON.stringify(chromeTrace([lastStep], others)));
    const { best_global_step, best_metric, best_model_checkpoint } = log.state;
    const summary: RunSummary = {
      steps: trainer.step,
      finalLoss: history.steps.at(-1)?.loss ?? Number.NaN,
      validationLoss: validated?.loss ?? Number.NaN,
      ...(validated?.accuracy !== undefined && { accuracy: validated.accuracy }),
      tokensPerSecond: clock.average,
      parameters: parameterCount(model),
      peakGpuBytes: trainer.device.allocator.peak,
      skippedSteps: await trainer.skipped(),
      adapter: trainer.device.adapter.name,
      checkpoint: lastSaved,
      interrupted,
      ...(stopped && { stopped }),
      ...(best_model_checkpoint !== null && {
        best: { step: best_global_step ?? 0, loss: best_metric ?? Number.NaN, checkpoint: best_model_checkpoint },
      }),
      ...(memory.gpu === undefined || !isFirst ? {} : { memory: await record() }),
      ...(shared && { ranks: shared }),
    };
    await events.over?.(summary, await state());
    await callbacks.tell('onTrainEnd', log.state);
    return summary;
  } finally {
    await Promise.allSettled(underWay);
  }
}
