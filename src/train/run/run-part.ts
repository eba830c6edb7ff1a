// `RunPart`: the part of a run on one device, from the run's start, or a checkpoint, to its end or the loss of the device. It
// trains, validates, samples and saves when each is due. Starting over after a loss is in run.ts, what a checkpoint holds in
// run-checkpoints.ts.
//
// Invariant: what is due at a step belongs to the run, not to the part: wherever parts begin and end, the history, the
// weights and the checkpoints of the whole run are those of a run in one part, bit for bit.

import { taskOf } from '../../data/tasks.ts';
import type { Recording } from '../../engine/observe/recording.ts';
import type { Device } from '../../gpu/device.ts';
import { parameterCount } from '../../nn/model.ts';
import { HoldfastError } from '../../util/errors.ts';
import type { SamplingOptions } from '../inference/sampling.ts';
import { accuracyOn } from '../inference/solving.ts';
import { writeText } from '../inference/writing.ts';
import { writeTogether } from '../step/rank-part.ts';
import { STEPS_AHEAD } from '../step/stepper.ts';
import type { StepMetrics, Trainer } from '../step/trainer.ts';
import { BetweenSteps } from './between-steps.ts';
import type { CallbackDetails, TrainerCallback } from './callbacks.ts';
import { Epochs } from './epochs.ts';
import { RunLog } from './huggingface-state.ts';
import { keepLearnedRates, keepTime } from './kept-time.ts';
import { Listeners } from './listeners.ts';
import { memoryOfRun, type Spent } from './memory-of-run.ts';
import { type RankRecord, rankRecord } from './rank-record.ts';
import { microBatchesOf } from './ranks.ts';
import { type Beginning, begin, type RunSetting, settled } from './run-beginning.ts';
import { RunCheckpoints, type RunPlace } from './run-checkpoints.ts';
import type { RunOptions, RunSummary } from './run-events.ts';
import { isSkipped, type Validation } from './saved-state.ts';
import { StepClock } from './step-clock.ts';

/** Problems of a task that are solved at each validation. */
const PROBLEMS = 64;
const SAMPLE: SamplingOptions = { temperature: 0.7, topP: 0.95 };
/** Skipped steps in a row that end a run. */
const MOST_SKIPPED = 10;
/** Trains on this device until the run's end, or as long as it may. `made` gets the trainer, which the caller destroys. */
export async function trainPart(
  setting: RunSetting,
  device: Device,
  options: RunOptions,
  made: (trainer: Trainer) => void,
): Promise<RunSummary> {
  const beginning = await begin(setting, device, options, made);
  return new RunPart(settled(setting, beginning.trainer), options, beginning).train();
}

/** A run on one device, in training once. */
class RunPart {
  readonly #setting: RunSetting;
  readonly #options: RunOptions;
  readonly #beginning: Beginning;
  readonly #listeners: Listeners;
  readonly #epochs: Epochs;
  readonly #log: RunLog;
  readonly #checkpoints: RunCheckpoints;
  readonly #problems;
  /** Rank 0 alone emits events and writes files. */
  readonly #isFirst: boolean;
  readonly #began = performance.now();
  /** It runs over training alone: validation, samples and saving are taken out. */
  readonly #clock: StepClock;
  /** Steps that were started, in their order. */
  readonly #underWay: Promise<void>[] = [];
  #skippedInARow = 0;
  /** The run before each step since the last that is known not to be skipped. */
  #places: RunPlace[] = [];
  #isSaveOwed = false;
  /** The best validation's checkpoint, which takes no other's place. */
  #isBestOwed = false;
  /** On any rank: an interrupt comes to each at another step. */
  #isAborted = false;
  /** Whether there are other ranks, and callbacks on one of them all. */
  #sharesRequests = false;
  readonly #between = new BetweenSteps();
  /** The first step of this part, and how all lay in memory then. */
  readonly #first;
  /** Of the run's last step, where its report shows it. */
  #lastStep: Recording | undefined;

  constructor(setting: RunSetting, options: RunOptions, beginning: Beginning) {
    const { settings, out } = setting;
    const { batch, seq } = settings;
    const { dataset, history } = beginning;
    const { ranks } = options;
    this.#setting = setting;
    this.#options = options;
    this.#beginning = beginning;
    this.#first = { step: history.steps.length, fit: beginning.trainer.session.fit };
    this.#isFirst = ranks === undefined || ranks.rank === 0;
    this.#listeners = new Listeners(options, settings, this.#isFirst, () => this.#trainer.device.status === 'works');
    this.#epochs = new Epochs(dataset, batch * microBatchesOf(settings));
    this.#log = new RunLog(settings, this.#epochs, out, history, beginning.checkpoints);
    this.#clock = new StepClock(batch * seq * microBatchesOf(settings));
    this.#problems = settings.task && taskOf(settings.task).unseen(settings.seed, PROBLEMS);
    for (const { loss, gradNorm } of history.steps) {
      // In JSON they are null.
      this.#countSkipped(isSkipped({ loss, gradNorm }));
    }
    const skips = this.#skippedInARow > 0;
    this.#checkpoints = new RunCheckpoints(setting, ranks, beginning, this.#log, skips);
    if (skips) this.#places.push(this.#checkpoints.place);
  }

  get #trainer(): Trainer {
    return this.#beginning.trainer;
  }

  /** To the end of the run, or as far as it may go: then it is saved, to be resumed. */
  async train(): Promise<RunSummary> {
    const { host, settings, out, text, tokenizer } = this.#setting;
    const { until = settings.steps } = this.#options;
    const { dataset } = this.#beginning;
    const trainer = this.#trainer;
    if (this.#isFirst) await host.files.makeFolder(out);
    this.#listeners.ready({
      model: trainer.model,
      corpus: text.corpus,
      tokenizer,
      notes: dataset.notes,
      trainer,
      firstStep: trainer.step,
      save: () => this.#between.do(() => this.#save()),
      state: () => this.#between.do(() => this.#checkpoints.state()),
    });
    const end = Math.min(until, settings.steps);
    try {
      await this.#emit('onTrainBegin');
      // With no step to lose.
      await this.#listeners.raise();
      const { ranks } = this.#options;
      const { areThere } = this.#listeners.asked;
      this.#sharesRequests = (await ranks?.control.any('whether it has callbacks', areThere)) ?? false;
      this.#clock.start();
      await this.#steps(end);
      await this.#settle();
      const summary = await this.#conclude(end);
      await this.#listeners.end();
      return summary;
    } catch (error) {
      return this.#listeners.endBy(error);
    } finally {
      await Promise.allSettled(this.#underWay);
    }
  }

  #emit<E extends keyof TrainerCallback>(event: E, ...details: CallbackDetails<E>): Promise<void> {
    return this.#listeners.emit(event, this.#log.state, ...details);
  }

  /** Steps up to that one, and between them what is due. */
  async #steps(end: number): Promise<void> {
    const { settings } = this.#setting;
    const { intermission, ranks } = this.#options;
    const trainer = this.#trainer;
    const { asked } = this.#listeners;
    // What is asked for behind a step comes before the next one.
    const ahead = this.#handlesEachStep ? 0 : STEPS_AHEAD;
    while (trainer.step < end) {
      if (intermission?.wanted && !this.#isToEnd && !asked.control.shouldTrainingStop) {
        await this.#settle();
        await this.#between.during(() => this.#listeners.intermit());
        this.#clock.start();
      }
      // Once a step: an intermission may be of one rank alone.
      if (!(await this.#goesOn())) break;
      await this.#start(end);
      if (this.#underWay.length > ahead) await this.#underWay.shift();
      if (ranks && this.#sharesRequests) await asked.shareRequests(ranks);
      this.#isSaveOwed = asked.take('shouldSave') || this.#isDue(settings.saveEvery) || this.#isSaveOwed;
      const validates = asked.take('shouldEvaluate') || this.#isDue(settings.evalEvery);
      if (!validates && !this.#isDue(settings.sampleEvery) && !this.#isSaveOwed) continue;
      await this.#settle();
      if (validates) await this.#validate();
      if (this.#isDue(settings.sampleEvery)) await this.#sample();
      // Behind skipped steps, what is due waits. The best validation's weights are those from before them.
      if (this.#isBestOwed || (this.#isSaveOwed && this.#skippedInARow === 0)) {
        await this.#save();
        this.#isBestOwed = false;
        this.#isSaveOwed &&= this.#skippedInARow > 0;
      }
      this.#clock.start();
    }
  }

  /** Of the whole run's course, wherever this part of it ends: what is due at an early end belongs to the run. */
  #isDue(every: number): boolean {
    const { step } = this.#trainer;
    return every > 0 && step % every === 0 && step < this.#setting.settings.steps;
  }

  get #handlesEachStep(): boolean {
    return this.#listeners.asked.handles('onStepEnd', 'onLog', 'onEpochEnd');
  }

  /** Whether it is to be saved and left, on this rank. */
  get #isToEnd(): boolean {
    return (this.#options.signal?.aborted ?? false) || this.#listeners.failed;
  }

  /** Whether another step is to come; all ranks come here. */
  async #goesOn(): Promise<boolean> {
    const { ranks } = this.#options;
    const { control } = this.#listeners.asked;
    const own = [this.#isToEnd, control.shouldTrainingStop];
    const [isToEnd = false, isEnough = false] = ranks ? await ranks.control.anyOf('whether to stop', own) : own;
    this.#isAborted = isToEnd && !isEnough;
    control.shouldTrainingStop = isEnough;
    return !isToEnd && !isEnough;
  }

  /** All steps that were started are done, and the clock stands. */
  async #settle(): Promise<void> {
    // Where one of them fails, the others are waited for at the end.
    await Promise.all(this.#underWay);
    this.#underWay.length = 0;
    await this.#trainer.settle();
    this.#clock.stop();
  }

  async #start(end: number): Promise<void> {
    const { memory = {}, observer, ranks } = this.#options;
    const { settings } = this.#setting;
    const { dataset } = this.#beginning;
    const trainer = this.#trainer;
    const { step } = trainer;
    const isSeen = memory.gpu !== undefined || this.#listeners.hearsLastStep || ranks !== undefined;
    const isReported = step === end - 1 && isSeen;
    const isObserved = observer?.wanted ?? false;
    const recorded = (recording: Recording, arrived: Promise<void>) => {
      if (isReported) this.#lastStep = recording;
      if (isObserved) this.#listeners.observe(step, recording, arrived);
    };
    this.#places.push(this.#checkpoints.place);
    if (this.#epochs.beginsWith(step)) await this.#emit('onEpochBegin');
    await this.#emit('onStepBegin');
    const micro = await Promise.all(Array.from({ length: microBatchesOf(settings) }, () => dataset.next()));
    const done = this.#finish(trainer.start(micro, isReported || isObserved ? { recorded } : {}));
    this.#underWay.push(done);
    // Its rejection is thrown where it is awaited; until then it is no unhandled one.
    done.catch(() => {});
  }

  /** What comes behind a step. */
  async #finish(pending: Promise<StepMetrics>): Promise<void> {
    const { skipped, ...figures } = await pending;
    const tokensPerSecond = this.#clock.tick();
    this.#beginning.history.steps.push({ ...figures, tokensPerSecond });
    this.#listeners.tell('step', { ...figures, skipped, tokensPerSecond });
    this.#countSkipped(skipped);
    if (!skipped) this.#places = this.#places.filter((place) => place.step > figures.step);
    const entry = this.#log.stepped({ ...figures, tokensPerSecond });
    if (this.#handlesEachStep) {
      await this.#emit('onStepEnd');
      if (entry) await this.#emit('onLog', entry);
      if (this.#epochs.endsWith(figures.step)) await this.#emit('onEpochEnd');
    }
    if (this.#skippedInARow >= MOST_SKIPPED) {
      const more = this.#setting.settings.activationDtype === 'f16' ? ', or keep activations in bf16' : '';
      const { last } = this.#checkpoints;
      throw new HoldfastError(
        `${this.#skippedInARow} steps in a row gave a loss or gradient that is not finite (up to step ${figures.step + 1}); lower --lr or --clip${more}; ${last ? `the checkpoint of before is ${last}` : 'nothing was saved'}`,
      );
    }
  }

  #countSkipped(isSkipped: boolean): void {
    this.#skippedInARow = isSkipped ? this.#skippedInARow + 1 : 0;
  }

  async #validate(): Promise<Validation> {
    const { settings, tokenizer } = this.#setting;
    const { dataset, history } = this.#beginning;
    const { generator, step } = this.#trainer;
    const { loss, accuracy: told } = await this.#trainer.score(dataset.validation);
    const accuracy = this.#problems && generator ? await accuracyOn(this.#problems, generator, tokenizer) : told;
    const found = { step, loss, ...(accuracy !== undefined && { accuracy }) };
    history.validations.push(found);
    this.#listeners.tell('validation', step, loss, accuracy);
    const { entry, isBest } = this.#log.evaluated(found);
    this.#isBestOwed = isBest && settings.keepBest === true;
    await this.#emit('onEvaluate', entry);
    return found;
  }

  async #sample(): Promise<void> {
    const { settings, tokenizer } = this.#setting;
    const { ranks } = this.#options;
    const { dataset, history, sampling } = this.#beginning;
    const { generator, step } = this.#trainer;
    // Where a forward pass exchanges something all ranks write, the same.
    if (!generator || settings.sampleTokens === 0 || !(this.#isFirst || (ranks && writeTogether(ranks)))) return;
    // A task's lines begin its windows: there, what comes before the first one is not known.
    const [problem] = this.#problems ?? [];
    const prompt = problem?.prompt ?? dataset.prompt ?? (tokenizer.addsBos ? '' : '\n');
    const options = { ...SAMPLE, tokens: settings.sampleTokens };
    let written = problem?.prompt ?? (dataset.prompt ? tokenizer.decode(dataset.prompt) : '');
    for await (const piece of writeText(generator, tokenizer, prompt, options, sampling)) written += piece;
    history.samples.push({ step, text: written });
    this.#listeners.tell('sample', step, written);
  }

  /** With no step under way. Behind skipped steps it is the run before them that is saved, where it is not yet. */
  async #save(): Promise<void> {
    const [place] = this.#places;
    if (place && this.#checkpoints.has(place.step)) return;
    const folder = await this.#checkpoints.save(place);
    this.#listeners.tell('saved', folder);
    await this.#emit('onSave', folder);
  }

  /** What is done when no step follows: validation, a last sample, a checkpoint, the summary. */
  async #conclude(end: number): Promise<RunSummary> {
    const { settings } = this.#setting;
    const { history } = this.#beginning;
    const trainer = this.#trainer;
    const stopped = this.#listeners.asked.control.shouldTrainingStop && !this.#isAborted;
    const interrupted = trainer.step < end && !stopped;
    // What an early end shows besides is no part of the run: it is saved without, as it would go on by itself.
    const isEarly = trainer.step < settings.steps;
    if (isEarly && !this.#checkpoints.has(trainer.step)) await this.#save();
    const last = history.validations.at(-1);
    const validated = last?.step === trainer.step || interrupted ? last : await this.#validate();
    // A model that is about to diverge may fail to write: it is saved before.
    if (!isEarly && this.#skippedInARow > 0) await this.#save();
    // One that has diverged has nothing to write.
    const writes = !interrupted && Number.isFinite(validated?.loss);
    if (writes && history.samples.at(-1)?.step !== trainer.step) await this.#sample();
    if (!isEarly) await this.#save();
    await this.#listeners.raise();
    const { ranks } = this.#options;
    const shared = ranks && (await rankRecord(ranks, trainer, this.#lastStep));
    const others = (shared?.each ?? []).flatMap(({ rank, step }) => (step && rank > 0 ? [step] : []));
    if (this.#lastStep) await this.#listeners.waitFor('lastStep', this.#lastStep, others);
    const summary = await this.#summary(validated, interrupted, stopped, shared);
    await this.#keepTime();
    await this.#listeners.waitFor('over', summary, await this.#checkpoints.state());
    await this.#emit('onTrainEnd');
    return summary;
  }

  /** Of one that had another budget on its way, or shares its steps with others, nothing is kept. */
  async #keepTime(): Promise<void> {
    const { host, settings } = this.#setting;
    const { step, fit } = this.#first;
    await keepLearnedRates(host, this.#trainer);
    if (this.#options.ranks || this.#trainer.session.fit !== fit) return;
    const speeds = this.#beginning.history.steps.slice(step).map(({ tokensPerSecond }) => tokensPerSecond);
    await keepTime(host, this.#trainer, settings, speeds);
  }

  #spent(): Spent {
    const [lastStep, secondsPerStep] = [this.#lastStep, this.#clock.secondsPerStep];
    return { milliseconds: performance.now() - this.#began, lastStep, secondsPerStep, isAlone: !this.#options.ranks };
  }

  async #summary(
    validated: Validation | undefined,
    interrupted: boolean,
    stopped: boolean,
    ranks: RankRecord | undefined,
  ): Promise<RunSummary> {
    const { memory = {} } = this.#options;
    const { history } = this.#beginning;
    const trainer = this.#trainer;
    const { arenas, alive } = trainer.session.fit.nonModel;
    const { best_global_step, best_metric, best_model_checkpoint } = this.#log.state;
    return {
      steps: trainer.step,
      finalLoss: history.steps.at(-1)?.loss ?? Number.NaN,
      validationLoss: validated?.loss ?? Number.NaN,
      ...(validated && { validationStep: validated.step }),
      ...(validated?.accuracy !== undefined && { accuracy: validated.accuracy }),
      tokensPerSecond: this.#clock.average,
      parameters: parameterCount(trainer.model),
      peakGpuBytes: trainer.device.allocator.peak,
      activations: { arenas, alive },
      skippedSteps: await trainer.skipped(),
      adapter: trainer.device.adapter.name,
      checkpoint: this.#checkpoints.last,
      interrupted,
      ...(stopped && { stopped }),
      ...(best_model_checkpoint !== null && {
        best: { step: best_global_step ?? 0, loss: best_metric ?? Number.NaN, checkpoint: best_model_checkpoint },
      }),
      ...(memory.gpu !== undefined && this.#isFirst && { memory: await memoryOfRun(trainer, this.#spent()) }),
      ...(ranks && { ranks }),
    };
  }
}
