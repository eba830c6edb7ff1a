// The trainer as a page sees it, in a worker (workers/trainer.ts): runs that are kept in this site's files, at most one
// of them open here. The page sends settings and hears events; the engine, the GPU device and the chunk manager never
// touch its thread. Every method may be called at any time; what cannot be done then is a HoldfastError that says so.
//
// Invariant: a run that a reload, a crash, a discarded tab or a lost device cut off goes on from its latest checkpoint
// (or, budgeted, from its last step) with the losses that it would have had, bit for bit.

import { limitsOf } from '../engine/session.ts';
import { readZip, storeFile, writeZip } from '../formats/archive.ts';
import { checkpointsOf, loadWeights } from '../formats/checkpoint.ts';
import { type Device, openDevice } from '../gpu/device.ts';
import type { BrowserHost } from '../runtime/browser.ts';
import { join } from '../runtime/host.ts';
import { type RunSettings, savedState } from '../train/run.ts';
import { HoldfastError, messageOf } from '../util/errors.ts';
import { ActiveRun } from './active-run.ts';
import { comparePolicies, estimateRun } from './estimate.ts';
import { importCheckpoint } from './import.ts';
import { Outbox } from './outbox.ts';
import type {
  Candidate,
  Environment,
  Estimate,
  Fork,
  History,
  Listener,
  MemorySettings,
  NewRun,
  PolicyComparison,
  RunInfo,
  RunRecord,
  SampleRequest,
  StepPicture,
  TrainingText,
} from './protocol.ts';
import { Runs } from './runs.ts';
import { Writer } from './writer.ts';

const EXPORTS = 'exports';

export class TrainerService {
  readonly #host: BrowserHost;
  readonly #runs: Runs;
  readonly #outbox = new Outbox();
  #device: Promise<Device> | undefined;
  #active: ActiveRun | undefined;
  /** Whoever samples from a run that is not training. */
  #writer: Writer | undefined;

  static async open(host: BrowserHost): Promise<TrainerService> {
    const service = new TrainerService(host);
    await service.#runs.sweep();
    await host.files.remove(EXPORTS);
    return service;
  }

  private constructor(host: BrowserHost) {
    this.#host = host;
    this.#runs = new Runs(host);
  }

  /** Where events go from now on. */
  listen(listener: Listener): void {
    this.#outbox.listen(listener);
  }

  /** Opens the GPU device. Errors: HoldfastError where there is no WebGPU or no adapter. */
  async environment(): Promise<Environment> {
    const { adapter } = await this.#openDevice();
    const { isolated } = this.#host;
    const room = await this.#host.room();
    const notes = [
      ...(isolated
        ? []
        : ['This page is not cross-origin isolated (headers COOP and COEP): the disk tier works, slower.']),
      ...(room.persisted
        ? []
        : ['The browser may clear the runs of this site when the disk is full: export what matters.']),
      ...(adapter.software ? ['No GPU here: the software adapter computes on the CPU, slower.'] : []),
    ];
    return { adapter, isolated, room, notes };
  }

  /** Bytes that a run would need, and whether they fit. Errors: HoldfastError for settings that make no model. */
  async estimate(settings: RunSettings, memory: MemorySettings = {}): Promise<Estimate> {
    const limits = this.#device && limitsOf(await this.#device);
    return { ...estimateRun(settings, memory, limits), room: await this.#host.room() };
  }

  /** Bytes that each policy would move in a step. Errors: HoldfastError where the budget is too small. */
  async comparePolicies(settings: RunSettings, memory: MemorySettings = {}): Promise<PolicyComparison> {
    return comparePolicies(settings, memory, this.#device && limitsOf(await this.#device));
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

  async rename(id: string, name: string): Promise<void> {
    await this.#runs.change(id, { name });
  }

  /** Removes a run with its checkpoints. Errors: HoldfastError where it is open, here or in another tab. */
  async remove(id: string): Promise<void> {
    await this.#closeWriter();
    await this.#runs.remove(id);
  }

  /** Starts a new run; resolves when it is on its way. Errors: HoldfastError where one is open here. */
  async start({ settings, name, memory = {}, text }: NewRun): Promise<RunInfo> {
    this.#refuseSecond();
    const id = this.#runs.newId();
    const release = await this.#runs.hold(id);
    try {
      const data = text === undefined ? settings.data : [await this.#keepText(id, text)];
      const record: RunRecord = {
        id,
        name: name ?? nameOf(settings),
        created: Date.now(),
        settings: { ...settings, data },
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
      const record = await this.#runs.get(id);
      if (!record.settings) {
        throw new HoldfastError(`run ${id} has weights alone; start a new run from them (settings.from)`);
      }
      const data = options.text === undefined ? record.settings.data : [await this.#keepText(id, options.text)];
      const settings = { ...record.settings, data, steps: options.steps ?? record.settings.steps };
      const { error: _, ...rest } = record;
      const next: RunRecord = { ...rest, settings, memory: options.memory ?? record.memory, status: 'running' };
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
  goOn(): void {
    this.#need().goOn();
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

  /** Other budgets for the run that is open here: the same losses, in another place. It is saved and goes on. */
  async setMemory(memory: MemorySettings): Promise<void> {
    const active = this.#need();
    const { paused } = active;
    await this.stop();
    await this.resume(active.id, { memory, paused });
  }

  /**
   * Where every chunk is in the next training step of the run that is open here. While that is paused, it waits for a
   * step. Undefined when the run ends before one is whole.
   */
  async recordStep(): Promise<StepPicture | undefined> {
    this.#need();
    throw new HoldfastError('recordStep: not there yet');
  }

  /** Makes a run, not started, that goes on from the latest checkpoint of another. One that is open here is saved. */
  async fork(id: string, fork: Fork = {}): Promise<RunInfo> {
    throw new HoldfastError(`fork ${id} ${fork.name}: not there yet`);
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

  // ---- Files ----------------------------------------------------------------------------------------------------

  /** The latest checkpoint as a zip, which stays on disk: a page offers it for download. A run that trains is saved. */
  async exportZip(id: string): Promise<File> {
    const { files } = this.#host;
    const { name } = await this.#runs.get(id);
    return this.#withCheckpoint(id, async (folder) => {
      await files.makeFolder(EXPORTS);
      const path = join(EXPORTS, `${id}.zip`);
      await writeZip(files, folder, path);
      const file = await this.#host.fileAt(path);
      return new File([file], `${name.replace(/[^\w.-]+/g, '-')}.zip`, { type: 'application/zip' });
    });
  }

  /** What is known of a run as one page: figures, curves, texts. Errors: HoldfastError where it has no checkpoint. */
  async report(id: string): Promise<File> {
    throw new HoldfastError(`report ${id}: not there yet`);
  }

  /** The same into a folder that the person chose (showDirectoryPicker): of any size. */
  async exportFolder(id: string, target: FileSystemDirectoryHandle): Promise<void> {
    const { files } = this.#host;
    await this.#withCheckpoint(id, async (folder) => {
      for (const name of await files.list(folder)) {
        const writable = await (await target.getFileHandle(name, { create: true })).createWritable();
        await (await this.#host.fileAt(join(folder, name))).stream().pipeTo(writable);
      }
    });
  }

  /**
   * Makes a run of a checkpoint: the files of its folder, or one zip of them. With a training state it can be resumed,
   * without it, it can be sampled from, and started from. Errors: HoldfastError naming what is missing or damaged.
   */
  async importRun(chosen: readonly File[], name?: string): Promise<RunInfo> {
    const id = this.#runs.newId();
    const release = await this.#runs.hold(id);
    try {
      const zip = chosen.length === 1 && /\.zip$/i.test(chosen[0]?.name ?? '') ? chosen[0] : undefined;
      const given = zip
        ? await readZip(zip, zip.name)
        : chosen.map((file) => ({ name: file.name, bytes: file.size, open: () => file.stream() }));
      const found = await importCheckpoint(this.#host, this.#runs.folder(id), given);
      await this.#runs.put({
        id,
        name: name ?? zip?.name.replace(/\.zip$/i, '') ?? 'imported',
        created: Date.now(),
        memory: {},
        status: 'imported',
        ...found,
      });
    } catch (error) {
      await this.#host.files.remove(this.#runs.folder(id));
      throw error;
    } finally {
      release();
    }
    return this.#runs.get(id);
  }

  /** Where a run's weights lie, as `settings.from` of a new one. */
  weightsOf(id: string): string {
    return this.#runs.folder(id);
  }

  /** Ends everything: a run that is open is saved first. */
  async close(): Promise<void> {
    if (this.#active) await this.stop();
    await this.#closeWriter();
    if (this.#device) (await this.#device).close();
    this.#host.close();
  }

  // ---- Inside ---------------------------------------------------------------------------------------------------

  async #begin(record: RunRecord, release: () => void, paused: boolean): Promise<void> {
    await this.#closeWriter();
    await this.#openDevice();
    const active = new ActiveRun(record, {
      host: this.#host,
      runs: this.#runs,
      device: () => this.#openDevice(),
      emit: (event) => this.#outbox.push(event),
    });
    this.#active = active;
    if (paused) active.gate.pause();
    void active.run().finally(() => {
      this.#active = undefined;
      release();
      active.announceEnd();
    });
  }

  #refuseSecond(): void {
    if (this.#active) throw new HoldfastError(`run ${this.#active.id} is open here; stop it first`);
  }

  #need(): ActiveRun {
    if (this.#active) return this.#active;
    throw new HoldfastError('no run is open here; start one, or resume one');
  }

  /** The device in use; another one when that was lost. */
  async #openDevice(): Promise<Device> {
    const device = await this.#device?.catch(() => undefined);
    if (device && !device.isLost) return device;
    this.#device = openDevice(this.#host).catch((error) => {
      throw new HoldfastError(`this browser gives no GPU: ${messageOf(error).replace(/; see holdfast devices$/, '')}`);
    });
    return this.#device;
  }

  async #keepText(id: string, text: TrainingText): Promise<string> {
    const folder = this.#runs.folder(id);
    const path = join(folder, 'text');
    await this.#host.files.makeFolder(folder);
    const blob = typeof text === 'string' ? new Blob([text]) : text;
    await storeFile(this.#host.files, path, { name: 'the text', bytes: blob.size, open: () => blob.stream() });
    return path;
  }

  async #write<T>(id: string, work: (writer: Writer) => Promise<T>): Promise<T> {
    if (this.#active?.id === id) return this.#active.write(work);
    if (this.#active) throw new HoldfastError(`run ${this.#active.id} is open here; stop it before another one writes`);
    const latest = (await checkpointsOf(this.#host.files, this.#runs.folder(id))).at(-1)?.path ?? this.#runs.folder(id);
    if (this.#writer?.source !== latest) {
      await this.#closeWriter();
      const { weights, config } = await loadWeights(this.#host.files, latest);
      const record = await this.#runs.get(id);
      const choices = record.savedStep > 0 ? (await savedState(this.#host, latest)).choices : {};
      this.#writer = await Writer.open(await this.#openDevice(), config, weights, latest, choices);
    }
    return work(this.#writer as Writer);
  }

  async #closeWriter(): Promise<void> {
    const writer = this.#writer;
    this.#writer = undefined;
    await writer?.close();
  }

  /** Runs `work` on a folder that stays as it is meanwhile. */
  async #withCheckpoint<T>(id: string, work: (folder: string) => Promise<T>): Promise<T> {
    const folder = this.#runs.folder(id);
    const latest = async () => {
      const found = (await checkpointsOf(this.#host.files, folder)).at(-1)?.path;
      if (found) return found;
      if (await this.#host.files.stat(join(folder, 'config.json'))) return folder;
      throw new HoldfastError(`run ${id} has no checkpoint yet; train it first`);
    };
    if (this.#active?.id === id) return this.#active.saved(async () => work(await latest()));
    const release = await this.#runs.hold(id);
    try {
      return await work(await latest());
    } finally {
      release();
    }
  }
}

/** "GPT-2 2 × 64" */
function nameOf({ config }: RunSettings): string {
  return config.model_type === 'gpt2'
    ? `GPT-2 ${config.n_layer} × ${config.n_embd}`
    : `Llama ${config.num_hidden_layers} × ${config.hidden_size}`;
}
