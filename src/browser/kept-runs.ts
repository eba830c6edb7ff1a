// `KeptRuns`: what can be done with runs and models that lie in this site's files: imported, forked, exported, reported.
// Nothing computes here. Invariant: a folder is read while its run is held, or while the run that trains in it waits, so that it
// stays as it is; what is made and fails leaves no folder behind, but for a model from elsewhere where the network failed.

import { isZip } from '../formats/archive.ts';
import { isCutOff } from '../formats/remote/remote.ts';
import { REPORT_FILE, runReport } from '../report/run-report.ts';
import type { BrowserHost } from '../runtime/browser.ts';
import { join } from '../runtime/host.ts';
import { type SavedState, savedState } from '../train/run/saved-state.ts';
import type { ActiveRun } from './active-run.ts';
import { baseHere, type KeptModel } from './adapter-base.ts';
import { exportFile } from './export.ts';
import type { Exports } from './exports.ts';
import { filesIn, importCheckpoint } from './import.ts';
import { isBase } from './is-base.ts';
import { adapterBeside, importModel, inspectKept, type KeepProgress, type ModelFiles, openModel } from './models.ts';
import type { Fork, History, ModelExport, ModelInfo, RunInfo, RunRecord, Voice } from './protocol.ts';
import { readMemory } from './record.ts';
import { copyOut, fileName, forkInto, latestOf, zipOf } from './run-files.ts';
import { takeBackData } from './run-records.ts';
import type { Runs } from './runs.ts';
import { voiceIn } from './voice.ts';

/** What a folder that was written to says of the run in it. */
type Stored = Pick<RunRecord, 'name' | 'savedStep' | 'settings' | 'loss'>;

export class KeptRuns {
  readonly #host: BrowserHost;
  readonly #runs: Runs;
  readonly #exports: Exports;
  readonly #active: () => ActiveRun | undefined;

  /** `active`: the run that is open here, which has its folder to itself. */
  constructor(host: BrowserHost, runs: Runs, exports: Exports, active: () => ActiveRun | undefined) {
    this.#host = host;
    this.#runs = runs;
    this.#exports = exports;
    this.#active = active;
  }

  /** See TrainerService.importRun. */
  importRun(chosen: readonly File[], name: string | undefined): Promise<RunInfo> {
    return this.#import(name, async (folder) => {
      const [first] = chosen;
      const called = (first && isZip(first.name) && first.name.slice(0, -4).trim()) || 'imported';
      const given = await filesIn(this.#host, chosen);
      const baseOf = async (state: SavedState) => baseHere(this.#host, state, await this.#bases());
      return { name: called, ...(await importCheckpoint(this.#host, folder, given, baseOf)) };
    });
  }

  /** See TrainerService.importModel. */
  async importModel(chosen: ModelFiles, name: string | undefined, progress?: KeepProgress): Promise<RunInfo> {
    const model = await openModel(this.#host, chosen);
    return this.#import(name, (folder) => importModel(this.#host, folder, model, progress), model.source);
  }

  /** See TrainerService.fork. */
  async fork(id: string, { name, changes, memory }: Fork): Promise<RunInfo> {
    const source = await this.#runs.whole(id);
    const from = this.#runs.folder(id);
    return this.#make(async (folder) => {
      await takeBackData(this.#host, from);
      const made = await this.#withCheckpoint(id, (checkpoint) =>
        forkInto(this.#host, folder, source, { folder: from, checkpoint }, changes),
      );
      return {
        name: name ?? `${source.name} fork`,
        memory: readMemory(memory ?? source.memory),
        status: 'stopped',
        ...(source.loss !== undefined && { loss: source.loss }),
        ...made,
        forkedFrom: { id, name: source.name, step: made.savedStep },
      };
    });
  }

  /** See TrainerService.exportModel. */
  async exportModel(id: string, wanted: ModelExport): Promise<File> {
    const { name, settings } = await this.#runs.get(id);
    const beside = await this.#adapterBeside(id);
    const base = settings?.from === undefined ? name : await this.#nameOf(settings.from);
    return this.#withCheckpoint(id, (folder) => {
      const adapter = settings?.lora ? folder : beside;
      const exported = { name, folder, base, ...(adapter !== undefined && { adapter }) };
      return exportFile(this.#host, this.#exports, exported, wanted);
    });
  }

  /** See TrainerService.exportZip. */
  async exportZip(id: string): Promise<File> {
    const run = await this.#runs.get(id);
    return this.#withCheckpoint(id, (folder) => zipOf(this.#host, this.#exports, folder, fileName(run.name)));
  }

  /** See TrainerService.exportFolder. */
  exportFolder(id: string, target: FileSystemDirectoryHandle): Promise<void> {
    return this.#withCheckpoint(id, (folder) => copyOut(this.#host, folder, target));
  }

  /** See TrainerService.report. */
  async report(id: string): Promise<File> {
    const { name, status } = await this.#runs.get(id);
    const folder = this.#runs.folder(id);
    const path = join(folder, REPORT_FILE);
    const page = async () => {
      const active = this.#active();
      if (active?.id === id) return runReport(this.#host, await active.state());
      return this.#runs.reading(id, async () => {
        const isOver = status === 'finished' || status === 'stopped';
        // Its bytes, which the file that is handed out has whatever becomes of the run.
        if (isOver && (await this.#host.files.stat(path))) return (await this.#host.fileAt(path)).arrayBuffer();
        return runReport(this.#host, await savedState(this.#host, await latestOf(this.#host, id, folder)));
      });
    };
    return new File([await page()], `${fileName(name)}.html`, { type: 'text/html' });
  }

  /** See TrainerService.voiceOf. */
  async voiceOf(id: string): Promise<Voice> {
    const record = await this.#runs.whole(id);
    const voice = () => voiceIn(this.#host, record, this.#runs.folder(id));
    return this.#active()?.id === id ? voice() : this.#runs.reading(id, voice);
  }

  /** See TrainerService.history. */
  async history(id: string): Promise<History> {
    const run = await this.#runs.get(id);
    if (run.savedStep === 0) return { steps: [], validations: [], samples: [] };
    return this.#asSaved(run, async () => (await savedState(this.#host, this.#runs.folder(id))).history);
  }

  /** See TrainerService.inspectModel. */
  async inspect(id: string): Promise<ModelInfo> {
    const run = await this.#runs.whole(id);
    return this.#asSaved(run, () => inspectKept(this.#host, run.name, this.#runs.folder(id)));
  }

  /** What `read` finds in a run's files. One that is open, in another tab too, or exported is held by that, and is read as it was saved. */
  #asSaved<T>({ id, open }: RunInfo, read: () => Promise<T>): Promise<T> {
    return open === 'no' ? this.#runs.reading(id, read) : read();
  }

  #import(name: string | undefined, store: (folder: string) => Promise<Stored>, source?: string): Promise<RunInfo> {
    return this.#make(async (folder) => {
      const found = await store(folder);
      return { memory: {}, status: 'imported', ...found, name: name ?? found.name };
    }, source);
  }

  /** A run that does not train: `store` writes its files into its folder, and says the rest. `source`: see Runs.newPlace. */
  async #make(
    store: (folder: string) => Promise<Omit<RunRecord, 'id' | 'created'>>,
    source?: string,
  ): Promise<RunInfo> {
    const { id, release } = await this.#runs.newPlace(source);
    try {
      await this.#runs.put({ id, created: Date.now(), ...(await store(this.#runs.folder(id))) });
    } catch (error) {
      // What fails of itself would fail again.
      if (!isCutOff(error)) await this.#runs.discard(id);
      throw error;
    } finally {
      release();
    }
    await this.#runs.finished(id);
    return this.#runs.get(id);
  }

  #adapterBeside(id: string): Promise<string | undefined> {
    return adapterBeside(this.#host.files, this.#runs.folder(id));
  }

  /** What the run in a folder is called. */
  async #nameOf(folder: string): Promise<string | undefined> {
    return (await this.#runs.list()).find(({ id }) => this.#runs.folder(id) === folder)?.name;
  }

  /** Models that a low-rank update may belong to. */
  async #bases(): Promise<KeptModel[]> {
    return (await this.#runs.list()).filter(isBase).map(({ id, name }) => ({ name, folder: this.#runs.folder(id) }));
  }

  /** Runs `work` on a folder that stays as it is meanwhile. */
  async #withCheckpoint<T>(id: string, work: (folder: string) => Promise<T>): Promise<T> {
    const latest = () => latestOf(this.#host, id, this.#runs.folder(id));
    const active = this.#active();
    if (active?.id === id) return active.saved(async () => work(await latest()));
    const release = await this.#runs.hold(id);
    try {
      return await work(await latest());
    } finally {
      release();
    }
  }
}
