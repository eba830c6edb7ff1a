// The trainer as a page sees it, in a worker (workers/trainer.ts): runs that are kept in this site's files, at most one
// of them open here. The page sends settings and hears events; the engine, the GPU device and the chunk manager never
// touch its thread. Every method may be called at any time; what cannot be done then is a HoldfastError that says so.
//
// Invariant: a run that a reload, a crash, a discarded tab or a lost device cut off goes on from its latest checkpoint
// (or, budgeted, from its last step) with the losses that it would have had, bit for bit.

import { openText } from '../data/corpus.ts';
import type { ShapeName } from '../data/records/shapes.ts';
import { identityOf, tokenizerFrom, tokenizerOf } from '../data/tokenizer.ts';
import { trainBpe } from '../data/train-bpe.ts';
import { limitsOf } from '../engine/run/arrangement.ts';
import { isZip } from '../formats/archive.ts';
import { loadTokenizer } from '../formats/checkpoint.ts';
import { shapeOf } from '../formats/families/index.ts';
import type { TokenizerFiles } from '../formats/tokenizer-files.ts';
import { type Device, openDevice } from '../gpu/device.ts';
import { REPORT_FILE, runReport } from '../report/run-report.ts';
import type { BrowserHost } from '../runtime/browser.ts';
import { join } from '../runtime/host.ts';
import { checkSettings, type RunSettings, readSettings } from '../train/run-settings.ts';
import { savedState } from '../train/saved-state.ts';
import { HoldfastError, messageOf } from '../util/errors.ts';
import { ActiveRun } from './active-run.ts';
import { recordSettings, recordsIn, templateOf } from './conversations.ts';
import { notesOn } from './environment.ts';
import { comparePolicies, estimateRun } from './estimate.ts';
import { exportFile } from './export.ts';
import { IdleWriter } from './idle-writer.ts';
import { filesIn, importCheckpoint } from './import.ts';
import { adapterBeside, importModel, inspectFiles, inspectKept } from './models.ts';
import { Outbox } from './outbox.ts';
import type {
  Candidate,
  ChatRequest,
  ChosenFile,
  Environment,
  Estimate,
  Fork,
  History,
  Listener,
  MemorySettings,
  ModelExport,
  ModelInfo,
  NewRun,
  PolicyComparison,
  RunInfo,
  RunRecord,
  SampleRequest,
  StepPicture,
  TrainingText,
  Voice,
} from './protocol.ts';
import { readMemory } from './record.ts';
import {
  copyOut,
  EXPORTS,
  fileName,
  forkInto,
  keepText,
  keepTokenizer,
  latestOf,
  readTokenizer,
  zipOf,
} from './run-files.ts';
import { nameOf, Runs } from './runs.ts';
import { Speeds } from './speed.ts';
import type { Writer } from './writer.ts';

/** What a tokenizer is made of lies here meanwhile. */
const TOKENIZER_TEXT = 'tokenizer-text';

/**
 * Runs of this site: one at a time trains, all can be listed, written with, forked, exported. It lives in a worker; a
 * page has it as `Holdfast.trainer`, where every method returns a promise.
 */
export class TrainerService {
  readonly #host: BrowserHost;
  readonly #runs: Runs;
  readonly #speeds: Speeds;
  readonly #outbox = new Outbox();
  readonly #idle: IdleWriter;
  #device: Promise<Device> | undefined;
  #active: ActiveRun | undefined;

  /** For the worker itself: removes what a closed tab left half-done. */
  static async open(host: BrowserHost): Promise<TrainerService> {
    const service = new TrainerService(host);
    await service.#runs.sweep();
    await host.files.remove(EXPORTS);
    await host.files.remove(TOKENIZER_TEXT);
    return service;
  }

  private constructor(host: BrowserHost) {
    this.#host = host;
    this.#runs = new Runs(host);
    this.#speeds = new Speeds(host);
    this.#idle = new IdleWriter(host, this.#runs, () => this.#openDevice());
  }

  /** Where events go from now on. */
  listen(listener: Listener): void {
    this.#outbox.listen(listener);
  }

  /** Opens the GPU device. Errors: HoldfastError where there is no WebGPU or no adapter. */
  async environment(): Promise<Environment> {
    const { adapter } = await this.#openDevice();
    const found = { adapter, isolated: this.#host.isolated, room: await this.#host.room() };
    return { ...found, notes: notesOn(found) };
  }

  /**
   * Bytes that a run would need, whether they fit, and how fast it may be. While a run trains nothing is measured.
   * Errors: HoldfastError for settings that make no model.
   */
  async estimate(settings: RunSettings, memory: MemorySettings = {}): Promise<Estimate> {
    const device = this.#device && (await this.#openDevice());
    const wanted = readSettings(settings);
    const found = estimateRun(wanted, readMemory(memory), device && limitsOf(device));
    const size = { dispatches: found.dispatchesPerStep, flops: found.flopsPerStep };
    const speed = device && (await this.#speeds.of(device, wanted, size, this.#active !== undefined));
    const room = await this.#host.room();
    return { ...found, ...(speed && { tokensPerSecond: speed }), room };
  }

  /** Bytes that each policy would move in a step. Errors: HoldfastError where the budget is too small. */
  async comparePolicies(settings: RunSettings, memory: MemorySettings = {}): Promise<PolicyComparison> {
    return comparePolicies(readSettings(settings), readMemory(memory), this.#device && limitsOf(await this.#device));
  }

  // ---- Runs ---------------------------------------------------------------------------------------------------

  /** Newest first. */
  runs(): Promise<RunInfo[]> {
    return this.#runs.list();
  }

  /** Losses, validations and samples up to the latest checkpoint; empty where there is none. */
  async history(id: string): Promise<History> {
    const { savedStep } = await this.#runs.get(id);
    if (savedStep === 0) return { steps: [], validations: [], samples: [] };
    return (await savedState(this.#host, this.#runs.folder(id))).history;
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
    await this.#idle.close();
    await this.#runs.remove(id);
  }

  /** Starts a new run; resolves when it is on its way. Errors: HoldfastError where one is open here. */
  async start({ settings: given, name, memory: limits = {}, text, tokenizer, records }: NewRun): Promise<RunInfo> {
    this.#refuseSecond();
    const [settings, memory] = [readSettings(given), readMemory(limits)];
    checkSettings(settings);
    const id = this.#runs.newId();
    const release = await this.#runs.hold(id);
    try {
      const data = text === undefined ? settings.data : [await keepText(this.#host, this.#runs.folder(id), text)];
      const found = await this.#tokenizerOf(id, settings, tokenizer);
      const record: RunRecord = {
        id,
        name: name ?? nameOf(settings),
        created: Date.now(),
        settings: {
          ...settings,
          data,
          ...(found && { tokenizer: identityOf(found) }),
          ...(records && { records: await recordSettings(this.#host.files, records, found, settings.from) }),
        },
        memory,
        status: 'running',
        savedStep: 0,
      };
      await this.#runs.put(record);
      await this.#begin(record, release, false);
    } catch (error) {
      release();
      throw error;
    }
    return this.#runs.get(id);
  }

  /**
   * Goes on with a run from its latest checkpoint, or from the start where it has none. `memory` may be another than
   * before, and `steps` more; `text` is needed for a run that was imported and trains on text of its own.
   * Errors: HoldfastError where one is open here, or this one in another tab.
   */
  async resume(
    id: string,
    options: { memory?: MemorySettings; steps?: number; text?: TrainingText; paused?: boolean } = {},
  ): Promise<RunInfo> {
    this.#refuseSecond();
    const release = await this.#runs.hold(id);
    try {
      const record = await this.#runs.whole(id);
      if (!record.settings) {
        throw new HoldfastError(`run ${id} has weights alone; start a new run from them (settings.from)`);
      }
      const data =
        options.text === undefined
          ? record.settings.data
          : [await keepText(this.#host, this.#runs.folder(id), options.text)];
      const settings = readSettings({ ...record.settings, data, steps: options.steps ?? record.settings.steps });
      const { error: _, ...rest } = record;
      const next: RunRecord = {
        ...rest,
        settings,
        memory: readMemory(options.memory ?? record.memory),
        status: 'running',
      };
      await this.#runs.put(next);
      await this.#begin(next, release, options.paused ?? false);
    } catch (error) {
      release();
      throw error;
    }
    return this.#runs.get(id);
  }

  /** Pauses the run that is open here; resolves when its checkpoint is saved. */
  pause(): Promise<void> {
    return this.#need().pause();
  }

  /** Goes on with the run that is paused. */
  unpause(): void {
    this.#need().unpause();
  }

  /** One step of the run that is paused. */
  step(): Promise<void> {
    return this.#need().step();
  }

  /** Saves and ends the run that is open here; it can be resumed. */
  async stop(): Promise<void> {
    const active = this.#need();
    active.stop();
    await active.ended;
  }

  /**
   * Other budgets, or another policy, for the run that is open here: the same losses, in another place. Another GPU
   * budget is taken between two steps; for all else the run is saved and opened anew. Errors: HoldfastError naming the
   * smallest budget that works; the run goes on as it was.
   */
  async setMemory(given: MemorySettings): Promise<void> {
    const memory = readMemory(given);
    const active = this.#need();
    try {
      if (await active.setMemory(memory)) return;
    } catch (error) {
      // When the event arrives, the run is over and its lock free.
      if (active.gate.ended) await active.ended;
      throw error;
    }
    const { problem } = estimateRun(active.settings, memory, limitsOf(await this.#openDevice()));
    if (problem) throw new HoldfastError(problem);
    const { paused } = active;
    await this.stop();
    await this.resume(active.id, { memory, paused });
  }

  /**
   * Where every chunk is in the next training step of the run that is open here. While that is paused, it waits for a
   * step. Undefined when the run ends before one is whole.
   */
  async recordStep(): Promise<StepPicture | undefined> {
    return this.#need().recordStep();
  }

  /**
   * Makes a run that goes on from the latest checkpoint of another, and does not start it. One that trains here is saved
   * and goes on. Errors: HoldfastError where there is no checkpoint, and for settings that make no schedule.
   */
  async fork(id: string, { name, changes, memory }: Fork = {}): Promise<RunInfo> {
    const source = await this.#runs.whole(id);
    const from = this.#runs.folder(id);
    const fork = this.#runs.newId();
    const folder = this.#runs.folder(fork);
    const release = await this.#runs.hold(fork);
    try {
      const made = await this.#withCheckpoint(id, (checkpoint) =>
        forkInto(this.#host, folder, source, { folder: from, checkpoint }, changes),
      );
      await this.#runs.put({
        id: fork,
        name: name ?? `${source.name} fork`,
        created: Date.now(),
        memory: readMemory(memory ?? source.memory),
        status: 'stopped',
        ...(source.loss !== undefined && { loss: source.loss }),
        ...made,
        forkedFrom: { id, name: source.name, step: made.savedStep },
      });
    } catch (error) {
      await this.#host.files.remove(folder);
      throw error;
    } finally {
      release();
    }
    return this.#runs.get(fork);
  }

  // ---- Text ----------------------------------------------------------------------------------------------------

  /**
   * Text that continues the prompt, with the weights as they are. A run that trains waits while it is written.
   * `onText` gets it piece by piece.
   */
  async sample(id: string, request: SampleRequest, onText?: (text: string) => void): Promise<string> {
    return this.#write(id, (writer) => writer.sample(request, onText));
  }

  /** The likeliest next tokens after the prompt, most likely first. */
  async next(id: string, prompt: string, count = 10): Promise<Candidate[]> {
    return this.#write(id, (writer) => writer.next(prompt, count));
  }

  /** The same as an answer in a conversation, by the chat template. Errors: HoldfastError where there is none: see `voiceOf`. */
  async chat(id: string, request: ChatRequest, onText?: (text: string) => void): Promise<string> {
    return this.#write(id, (writer) => writer.chat(request, onText));
  }

  /** How a run can be written with, as far as its files say. */
  async voiceOf(id: string): Promise<Voice> {
    const record = await this.#runs.whole(id);
    const adapter = record.settings?.lora !== undefined || (await this.#adapterBeside(id)) !== undefined;
    const template = await templateOf(this.#host.files, record, this.#runs.folder(id));
    return { chats: template !== undefined, adapter };
  }

  // ---- Models ---------------------------------------------------------------------------------------------------

  /**
   * What there is to know of a model before its weights are read: files that a person chose, which are not kept yet, or a
   * run of this site. Errors: HoldfastError naming what is missing, damaged or not supported, and for a tokenizer of
   * another vocabulary.
   */
  async inspectModel(source: readonly ChosenFile[] | string): Promise<ModelInfo> {
    if (typeof source !== 'string') return inspectFiles(this.#host, source);
    const { name } = await this.#runs.whole(source);
    return inspectKept(this.#host, name, this.#runs.folder(source));
  }

  /** Keeps a model as a run that has weights alone: `settings.from` of others is `weightsOf` it. Errors: as `inspectModel`. */
  async importModel(chosen: readonly ChosenFile[], name?: string): Promise<RunInfo> {
    return this.#import(name, (folder) => importModel(this.#host, folder, chosen));
  }

  /** The shape of the records that a text holds; undefined: it is text. */
  recordsIn(text: TrainingText): Promise<ShapeName | undefined> {
    return recordsIn(text);
  }

  /** The run or model for other programs. A run that trains is saved. Errors: HoldfastError for an adapter where there is none. */
  async exportModel(id: string, wanted: ModelExport): Promise<File> {
    const { name, settings } = await this.#runs.get(id);
    const beside = await this.#adapterBeside(id);
    const base = settings?.from === undefined ? name : await this.#nameOf(settings.from);
    return this.#withCheckpoint(id, (folder) => {
      const adapter = settings?.lora ? folder : beside;
      return exportFile(this.#host, { name, folder, base, ...(adapter !== undefined && { adapter }) }, wanted);
    });
  }

  // ---- Tokenizers -----------------------------------------------------------------------------------------------

  /** The tokens of a tokenizer.json, which lies among the files: what `vocab_size` has to be at least. Errors: HoldfastError for one that cannot be used. */
  async vocabularyOf(chosen: readonly File[]): Promise<number> {
    return (await tokenizerFrom(await readTokenizer(this.#host, chosen))).vocabulary;
  }

  /** Makes a tokenizer of a text, of so many tokens or, where the text has no more to give, fewer: the files of its folder. */
  async trainTokenizer(vocabulary: number, text?: TrainingText): Promise<File[]> {
    const data = text === undefined ? [] : [await keepText(this.#host, TOKENIZER_TEXT, text)];
    try {
      const { files } = await trainBpe(await openText(this.#host, { data, seed: 0 }), vocabulary);
      return Object.entries(files).map(([name, content]) => new File([content], name));
    } finally {
      await this.#host.files.remove(TOKENIZER_TEXT);
    }
  }

  // ---- Files ----------------------------------------------------------------------------------------------------

  /** The latest checkpoint as a zip, which stays on disk: a page offers it for download. A run that trains is saved. */
  async exportZip(id: string): Promise<File> {
    const run = await this.#runs.get(id);
    return this.#withCheckpoint(id, (folder) => zipOf(this.#host, folder, fileName(run.name)));
  }

  /** The same into a folder that the person chose (showDirectoryPicker): of any size. */
  async exportFolder(id: string, target: FileSystemDirectoryHandle): Promise<void> {
    await this.#withCheckpoint(id, (folder) => copyOut(this.#host, folder, target));
  }

  /**
   * A run as one page: figures, curves, texts. Of one that is over, with its memory; else of what it has done so far, or
   * has saved where it is not open here. Errors: HoldfastError where it has no checkpoint.
   */
  async report(id: string): Promise<File> {
    const { name, status } = await this.#runs.get(id);
    const folder = this.#runs.folder(id);
    const path = join(folder, REPORT_FILE);
    const page = async () => {
      if (this.#active?.id === id) return runReport(this.#host, await this.#active.state());
      const over = status === 'finished' || status === 'stopped';
      if (over && (await this.#host.files.stat(path))) return this.#host.fileAt(path);
      return runReport(this.#host, await savedState(this.#host, await latestOf(this.#host, id, folder)));
    };
    return new File([await page()], `${fileName(name)}.html`, { type: 'text/html' });
  }

  /**
   * Makes a run of a checkpoint: the files of its folder, or one zip of them. With a training state it can be resumed,
   * without it, it can be sampled from, and started from. Errors: HoldfastError naming what is missing or damaged.
   */
  async importRun(chosen: readonly File[], name?: string): Promise<RunInfo> {
    return this.#import(name, async (folder) => {
      const [first] = chosen;
      const called = first && isZip(first.name) ? first.name.slice(0, -4) : 'imported';
      return { name: called, ...(await importCheckpoint(this.#host, folder, await filesIn(this.#host, chosen))) };
    });
  }

  /** Where a run's weights lie, as `settings.from` of a new one. */
  weightsOf(id: string): string {
    return this.#runs.folder(id);
  }

  /** Ends everything: a run that is open is saved first. */
  async close(): Promise<void> {
    if (this.#active) await this.stop();
    await this.#idle.close();
    if (this.#device) (await this.#device).close();
    this.#host.close();
  }

  // ---- Inside ---------------------------------------------------------------------------------------------------

  async #begin(record: RunRecord, release: () => void, paused: boolean): Promise<void> {
    this.#refuseSecond();
    const active = new ActiveRun(record, {
      host: this.#host,
      runs: this.#runs,
      speeds: this.#speeds,
      device: () => this.#openDevice(),
      emit: (event) => this.#outbox.push(event),
      template: () => templateOf(this.#host.files, record, this.#runs.folder(record.id)),
    });
    this.#active = active;
    try {
      // From here on, nothing else begins to compute.
      await this.#idle.close();
      await this.#openDevice();
      await this.#speeds.idle();
    } catch (error) {
      this.#active = undefined;
      throw error;
    }
    if (paused) active.gate.pause();
    void active.run().finally(() => {
      this.#active = undefined;
      release();
      active.announceEnd();
    });
  }

  /** `store` writes the files into the folder of the run. */
  async #import(
    name: string | undefined,
    store: (folder: string) => Promise<Pick<RunRecord, 'name' | 'savedStep' | 'settings' | 'loss'>>,
  ): Promise<RunInfo> {
    const id = this.#runs.newId();
    const release = await this.#runs.hold(id);
    try {
      const found = await store(this.#runs.folder(id));
      const record = { id, created: Date.now(), memory: {}, status: 'imported' as const, ...found };
      await this.#runs.put({ ...record, name: name ?? found.name });
    } catch (error) {
      await this.#host.files.remove(this.#runs.folder(id));
      throw error;
    } finally {
      release();
    }
    return this.#runs.get(id);
  }

  #adapterBeside(id: string): Promise<string | undefined> {
    return adapterBeside(this.#host.files, this.#runs.folder(id));
  }

  /** What the run in a folder is called. */
  async #nameOf(folder: string): Promise<string | undefined> {
    return (await this.#runs.list()).find(({ id }) => this.#runs.folder(id) === folder)?.name;
  }

  #refuseSecond(): void {
    if (this.#active) throw new HoldfastError(`run ${this.#active.id} is open here; stop it first`);
  }

  #need(): ActiveRun {
    if (this.#active) return this.#active;
    throw new HoldfastError('no run is open here; start one, or resume one');
  }

  /** The device in use; another one when that was lost, or something went wrong on it. */
  async #openDevice(): Promise<Device> {
    const before = this.#device;
    const device = await before?.catch(() => undefined);
    if (device?.works) return device;
    // Another call was first.
    if (this.#device && this.#device !== before) return this.#device;
    device?.close();
    this.#device = openDevice(this.#host).catch((error) => {
      throw new HoldfastError(`this browser gives no GPU: ${messageOf(error).replace(/; see holdfast devices$/, '')}`);
    });
    return this.#device;
  }

  /** With the run that is open here, which waits meanwhile, or with another where none is. */
  async #write<T>(id: string, work: (writer: Writer) => Promise<T>): Promise<T> {
    if (this.#active?.id === id) return this.#active.write(work);
    if (this.#active) throw new HoldfastError(`run ${this.#active.id} is open here; stop it before another one writes`);
    const writer = await this.#idle.open(id, () => this.#active !== undefined);
    // Since then a run may have begun.
    return writer ? work(await writer.opened) : this.#write(id, work);
  }

  /** The one that was given, which is kept with the run; else that of the weights, unless the model is one of bytes. */
  async #tokenizerOf(
    id: string,
    { from, config }: RunSettings,
    given: NewRun['tokenizer'],
  ): Promise<TokenizerFiles | undefined> {
    const { files } = this.#host;
    const vocabulary = shapeOf(config).vocabulary;
    let found: TokenizerFiles | undefined;
    if (given) found = await keepTokenizer(this.#host, this.#runs.folder(id), given);
    else if (from !== undefined && vocabulary !== 256) found = await loadTokenizer(files, from);
    if (found) await tokenizerOf(undefined, found, vocabulary, 'the model');
    return found;
  }

  /** Runs `work` on a folder that stays as it is meanwhile. */
  async #withCheckpoint<T>(id: string, work: (folder: string) => Promise<T>): Promise<T> {
    const latest = () => latestOf(this.#host, id, this.#runs.folder(id));
    if (this.#active?.id === id) return this.#active.saved(async () => work(await latest()));
    const release = await this.#runs.hold(id);
    try {
      return await work(await latest());
    } finally {
      release();
    }
  }
}
