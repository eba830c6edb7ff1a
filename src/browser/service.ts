// `TrainerService`: the trainer as a page sees it, in a worker (workers/trainer.ts): runs that are kept in this site's files, at
// most one of them open here (open-run.ts). The page sends settings and gets events; the engine, the GPU device and the chunk
// manager never touch its thread. Every method may be called at any time; what cannot be done then is a HoldfastError that says so.
//
// Invariant: a run that a reload, a crash, a discarded tab or a lost device cut off goes on from its latest checkpoint
// (or, budgeted, from its last step) with the losses that it would have had, bit for bit.

import { openText } from '../data/corpus.ts';
import { tokenizerFrom } from '../data/open-tokenizer.ts';
import type { ShapeName } from '../data/records/shapes.ts';
import { trainBpe } from '../data/train-bpe.ts';
import type { BrowserHost } from '../runtime/browser.ts';
import type { RunForecast } from '../train/run/run-plan.ts';
import { type RunSettings, readSettings } from '../train/run/run-settings.ts';
import { HoldfastError } from '../util/errors.ts';
import type { ActiveRun } from './active-run.ts';
import { BudgetChanges } from './budget-changes.ts';
import { classesIn } from './class-settings.ts';
import { countedIn, recordsIn } from './conversations.ts';
import { CurrentDevice } from './current-device.ts';
import { notesOn } from './environment.ts';
import type { ActivationPolicyFigures, Estimate, EstimateSpeed, PolicyComparison } from './estimate-types.ts';
import { Exports } from './exports.ts';
import { KeptRuns } from './kept-runs.ts';
import { inspectFiles, isAdapterZip, type KeepProgress, type ModelFiles } from './models.ts';
import { OpenRun } from './open-run.ts';
import { Outbox } from './outbox.ts';
import type {
  Candidate,
  ChatRequest,
  ChosenFile,
  ClassesFound,
  ClassGuess,
  Environment,
  Fork,
  History,
  Listener,
  MemorySettings,
  ModelExport,
  ModelInfo,
  NewRun,
  Picture,
  RunInfo,
  SampleRequest,
  StepPicture,
  StoredWeights,
  TextListener,
  TextPair,
  TrainingText,
  Voice,
} from './protocol.ts';
import { readMemory } from './record.ts';
import { RunEstimates } from './run-estimates.ts';
import { readTokenizer } from './run-files.ts';
import { hasData, newRecord, type ResumeOptions, resumedRecord } from './run-records.ts';
import { Runs } from './runs.ts';
import { refusing } from './service-arguments.ts';
import { Speeds } from './speed.ts';

/**
 * Runs of this site: one at a time trains, all can be listed, written with, forked, exported. It lives in a worker; a
 * page has it as `Holdfast.trainer`, where every method returns a promise.
 */
export class TrainerService {
  readonly #host: BrowserHost;
  readonly #runs: Runs;
  readonly #speeds: Speeds;
  readonly #outbox = new Outbox();
  readonly #device: CurrentDevice;
  readonly #open: OpenRun;
  readonly #kept: KeptRuns;
  readonly #estimates: RunEstimates;
  readonly #budgets: BudgetChanges;

  /** For the worker itself: removes what a closed tab left half-done. */
  static async open(host: BrowserHost): Promise<TrainerService> {
    const runs = new Runs(host);
    await runs.sweep();
    return refusing(new TrainerService(host, runs, await Exports.open(host.files)));
  }

  private constructor(host: BrowserHost, runs: Runs, exports: Exports) {
    this.#host = host;
    this.#runs = runs;
    this.#speeds = new Speeds(host);
    this.#device = new CurrentDevice(host);
    this.#estimates = new RunEstimates(host, this.#device, this.#speeds);
    this.#open = new OpenRun(host, this.#runs, this.#speeds, this.#device, this.#outbox);
    this.#budgets = new BudgetChanges(this.#open, this.#estimates, (id, options) => this.resume(id, options));
    this.#kept = new KeptRuns(host, this.#runs, exports, () => this.#open.active);
  }

  /** Where events go from now on. */
  listen(listener: Listener): void {
    this.#outbox.listen(listener);
  }

  /** Opens the GPU device. Errors: HoldfastError where there is no WebGPU or no adapter. */
  async environment(): Promise<Environment> {
    const { adapter } = await this.#device.open();
    const found = { adapter, isolated: this.#host.isolated, room: await this.#host.room() };
    return { ...found, notes: notesOn(found) };
  }

  /**
   * Bytes that a run would need, whether they fit, and how fast it may be. `stored`: of a model that is not kept here yet, as
   * `inspectModel` says it. `speed`: where it is not known yet, it is measured, which takes seconds, or left out; while a run trains
   * nothing is measured. Errors: HoldfastError for settings that make no model.
   */
  async estimate(
    settings: RunSettings,
    memory: MemorySettings = {},
    stored?: StoredWeights,
    speed: EstimateSpeed = 'measured',
  ): Promise<Estimate> {
    const isQuiet = speed === 'known' || this.#open.active !== undefined;
    return this.#estimates.of(readSettings(settings), readMemory(memory), isQuiet, stored);
  }

  /**
   * Where the bytes of a run would lie, what a step of it would move over each link, compute and take, and its budgets: the figures
   * of `holdfast plan`. `stored`: see `estimate`. Errors: HoldfastError for settings that make no model, and where the budget is too small.
   */
  async plan(settings: RunSettings, memory: MemorySettings = {}, stored?: StoredWeights): Promise<RunForecast> {
    return this.#estimates.plan(readSettings(settings), readMemory(memory), stored);
  }

  /** Bytes that each policy would move in a step. Errors: HoldfastError where the budget is too small. */
  async comparePolicies(settings: RunSettings, memory: MemorySettings = {}): Promise<PolicyComparison> {
    return this.#estimates.policies(readSettings(settings), readMemory(memory));
  }

  /**
   * What each policy for activations would need, and move and compute again in a step within the budget. Errors:
   * HoldfastError for settings that make no model.
   */
  async compareActivations(settings: RunSettings, memory: MemorySettings = {}): Promise<ActivationPolicyFigures[]> {
    return this.#estimates.activationPolicies(readSettings(settings), readMemory(memory));
  }

  // ---- Runs ---------------------------------------------------------------------------------------------------

  /** Newest first. */
  runs(): Promise<RunInfo[]> {
    return this.#runs.list();
  }

  /** Losses, validations and samples up to the latest checkpoint; empty where there is none. */
  history(id: string): Promise<History> {
    return this.#kept.history(id);
  }

  /** Gives a run another name. Errors: HoldfastError where there is no such run. */
  async rename(id: string, name: string): Promise<void> {
    await this.#runs.change(id, { name });
  }

  /**
   * Removes a run with its checkpoints. Errors: HoldfastError where it is open, here or in another tab, and where another
   * run still needs its weights.
   */
  async remove(id: string): Promise<void> {
    const folder = this.#runs.folder(id);
    const needing = (await this.#runs.list()).find(
      ({ settings, savedStep }) => settings?.from === folder && (settings.lora !== undefined || savedStep === 0),
    );
    if (needing) throw new HoldfastError(`“${needing.name}” needs its weights; remove that first, or keep both`);
    await this.#open.closeIdle();
    await this.#runs.remove(id);
  }

  /** Starts a new run; resolves when it is on its way. Errors: HoldfastError where one is open here; nothing of it is kept then. */
  start(wanted: NewRun): Promise<RunInfo> {
    const id = this.#runs.newId();
    return this.#open.train(id, () => newRecord(this.#host, id, this.#runs.folder(id), wanted));
  }

  /**
   * Goes on with a run from its latest checkpoint, or from the start where it has none. `memory` may be another than
   * before, and `steps` more; `text` or `images` are needed for a run that was imported and learns from its own: see `hasData`.
   * Errors: HoldfastError where one is open here, or this one in another tab, and for data that it did not learn from.
   */
  resume(id: string, options: ResumeOptions & { readonly paused?: boolean } = {}): Promise<RunInfo> {
    const next = async () => resumedRecord(this.#host, this.#runs.folder(id), await this.#runs.whole(id), options);
    return this.#open.train(id, next, options.paused);
  }

  /** Whether what a run learns from is in this browser; of one that was imported it may have to be brought. */
  async hasData(id: string): Promise<boolean> {
    return hasData(this.#host, await this.#runs.whole(id));
  }

  /** Pauses the run that is open here, behind other budgets that were asked for before; resolves when its checkpoint is saved and its record says so. */
  async pause(): Promise<void> {
    return (await this.#settled()).pause();
  }

  /** Goes on with the run that is paused. */
  async unpause(): Promise<void> {
    return (await this.#settled()).unpause();
  }

  /** One step of the run that is paused. */
  async step(): Promise<void> {
    return (await this.#settled()).step();
  }

  /** The run that is open here, once it is none that other budgets are about to end and open anew. */
  async #settled(): Promise<ActiveRun> {
    await this.#budgets.settled;
    return this.#open.needed;
  }

  /** Saves and ends the run that is open here; it can be resumed. One whose data is still read ends with nothing new to save. */
  async stop(): Promise<void> {
    await this.#budgets.stop();
  }

  /**
   * Other budgets, or another policy, for the run that is open here: the same losses, in another place. Another GPU
   * budget is taken between two steps; for all else the run is saved and opened anew. Of several one is taken after the
   * other. Errors: HoldfastError naming the smallest budget that works; the run goes on as it was.
   */
  async setMemory(given: MemorySettings): Promise<void> {
    return this.#budgets.take(readMemory(given));
  }

  /**
   * Where every chunk is in the next training step of the run that is open here. While that is paused, it waits for a
   * step. Undefined when the run ends before one is whole.
   */
  async recordStep(): Promise<StepPicture | undefined> {
    return this.#open.needed.recordStep();
  }

  /**
   * Makes a run that goes on from the latest checkpoint of another, and does not start it. One that trains here is saved
   * and goes on. Errors: HoldfastError where there is no checkpoint, and for settings that make no schedule.
   */
  fork(id: string, wanted: Fork = {}): Promise<RunInfo> {
    return this.#kept.fork(id, wanted);
  }

  // ---- Text ----------------------------------------------------------------------------------------------------

  /**
   * Text that continues the prompt, with the weights as they are. A run that trains waits while it is written.
   * Errors: those of `onText`, too.
   */
  async sample(id: string, request: SampleRequest, onText?: TextListener): Promise<string> {
    return this.#open.write(id, (writer) => writer.sample(request, onText));
  }

  /** The likeliest next tokens after the prompt, most likely first. */
  async next(id: string, prompt: string, count = 10): Promise<Candidate[]> {
    return this.#open.write(id, (writer) => writer.next(prompt, count));
  }

  /** Writes the answer to a conversation, by the chat template. Errors: HoldfastError where there is none: see `voiceOf`. */
  async chat(id: string, request: ChatRequest, onText?: TextListener): Promise<string> {
    return this.#open.write(id, (writer) => writer.chat(request, onText));
  }

  /** How a run can be asked, as far as its files say. Errors: HoldfastError where it is open in another tab. */
  voiceOf(id: string): Promise<Voice> {
    return this.#kept.voiceOf(id);
  }

  /**
   * The classes of a picture, a text or a pair of texts, by a run that learned to tell such apart: the likeliest first. What of them a
   * run takes `voiceOf` says. Errors: HoldfastError while a run is open here, for a run that tells no classes apart, and for a picture
   * where it reads texts, or the other way round.
   */
  async classify(id: string, given: Picture | string | TextPair): Promise<ClassGuess[]> {
    return this.#open.tell(id, (teller) => teller.tell(given));
  }

  // ---- Models ---------------------------------------------------------------------------------------------------

  /**
   * What there is to know of a model before its weights are read: files that a person chose, which are not kept yet, or a
   * run of this site. Errors: HoldfastError naming what is missing, damaged or not supported, and for a tokenizer of
   * another vocabulary.
   */
  async inspectModel(source: ModelFiles | string): Promise<ModelInfo> {
    return typeof source === 'string' ? this.#kept.inspect(source) : inspectFiles(this.#host, source);
  }

  /** Whether a zip is an adapter alone, which goes with its model (`inspectModel` of both), and no run. Errors: HoldfastError for what is no zip. */
  isAdapterZip(file: File): Promise<boolean> {
    return isAdapterZip(this.#host, file);
  }

  /**
   * Keeps a model as a run that has weights alone: `settings.from` of others is `weightsOf` it. `progress` is told how far it is.
   * Errors: as `inspectModel`.
   */
  importModel(chosen: ModelFiles, name?: string, progress?: KeepProgress): Promise<RunInfo> {
    return this.#kept.importModel(chosen, name, progress);
  }

  /** The shape of the records that a text holds; undefined: it is text. */
  recordsIn(text: TrainingText): Promise<ShapeName | undefined> {
    return recordsIn(text);
  }

  /**
   * The classes that a model would learn of labelled records, or of images, and its settings then; undefined where it learns
   * something else. Errors: HoldfastError naming what of the data cannot be used.
   */
  classesIn(settings: RunSettings, data: TrainingText | readonly ChosenFile[]): Promise<ClassesFound | undefined> {
    return classesIn(this.#host, readSettings(settings), data);
  }

  /** The run or model for other programs. A run that trains is saved. Errors: HoldfastError for an adapter where there is none. */
  exportModel(id: string, wanted: ModelExport): Promise<File> {
    return this.#kept.exportModel(id, wanted);
  }

  // ---- Tokenizers -----------------------------------------------------------------------------------------------

  /** The tokens of a tokenizer.json, which lies among the files: what `vocab_size` has to be at least. Errors: HoldfastError for one that cannot be used. */
  async vocabularyOf(chosen: readonly File[]): Promise<number> {
    return (await tokenizerFrom(await readTokenizer(this.#host, chosen))).vocabulary;
  }

  /**
   * Makes a tokenizer of a text, or of what its records say, of so many tokens or, where that has no more to give, fewer: the files
   * of its folder. Errors: HoldfastError for an empty text, a record that cannot be used, and a vocabulary that is out of range.
   */
  async trainTokenizer(vocabulary: number, text?: TrainingText): Promise<File[]> {
    const source = await (text === undefined ? openText(this.#host, { data: [], seed: 0 }) : countedIn(text));
    const { files } = await trainBpe(source, vocabulary);
    return Object.entries(files).map(([name, content]) => new File([content], name));
  }

  // ---- Files ----------------------------------------------------------------------------------------------------

  /** The latest checkpoint as a zip, which stays on disk: a page offers it for download. A run that trains is saved. */
  exportZip(id: string): Promise<File> {
    return this.#kept.exportZip(id);
  }

  /** Exports a run as `exportZip` does, but into a folder that the person chose (showDirectoryPicker): of any size. */
  exportFolder(id: string, target: FileSystemDirectoryHandle): Promise<void> {
    return this.#kept.exportFolder(id, target);
  }

  /**
   * A run as one page: figures, curves, texts. Of one that is over, with its memory; else of what it has done so far, or
   * has saved where it is not open here. Errors: HoldfastError where it has no checkpoint, or is open in another tab.
   */
  report(id: string): Promise<File> {
    return this.#kept.report(id);
  }

  /**
   * Makes a run of a checkpoint: the files of its folder, or one zip of them. With a training state it can be resumed,
   * without it, it can be sampled from, and started from. Errors: HoldfastError naming what is missing or damaged.
   */
  importRun(chosen: readonly File[], name?: string): Promise<RunInfo> {
    return this.#kept.importRun(chosen, name);
  }

  /** Where a run's weights lie, as `settings.from` of a new one. */
  weightsOf(id: string): string {
    return this.#runs.folder(id);
  }

  /** Ends everything: a run that is open is saved first. */
  async close(): Promise<void> {
    if (this.#budgets.hasRun) await this.stop();
    await this.#open.closeIdle();
    await this.#device.close();
    this.#host.close();
  }
}
