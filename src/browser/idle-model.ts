// The model of a run that is not training, opened to write text or to tell the classes of pictures and texts: it has a device's memory to
// itself, is kept for what is asked next of the same weights, and is closed before anything else computes. Of a run that trains,
// that run writes (active-run.ts).
//
// Invariant: at most one is open or being opened; one that is still being opened is closed when it is.

import { tokenizerOf } from '../data/open-tokenizer.ts';
import { labelsIn } from '../formats/families/index.ts';
import { preparationIn } from '../formats/preprocessor.ts';
import type { Device } from '../gpu/device.ts';
import type { BrowserHost } from '../runtime/browser.ts';
import { withModel } from '../train/run/open-model.ts';
import { savedState } from '../train/run/saved-state.ts';
import { templateOf } from './conversations.ts';
import { memoryOptions } from './memory-options.ts';
import { adapterBeside } from './models.ts';
import type { RunInfo } from './protocol.ts';
import { latestOf } from './run-files.ts';
import type { Runs } from './runs.ts';
import { Teller } from './teller.ts';
import { Writer } from './writer.ts';

/** Checkpoints that may be replaced while they are opened, one after the other. */
const MOST_REPLACED = 20;

/** By what the model is for. */
type Opened = Writer | Teller;

export class IdleModel {
  readonly #host: BrowserHost;
  readonly #runs: Runs;
  readonly #device: () => Promise<Device>;
  /** The model that is open, and the folder of its weights. */
  #model: { readonly source: string; readonly opened: Promise<Opened> } | undefined;

  constructor(host: BrowserHost, runs: Runs, device: () => Promise<Device>) {
    this.#host = host;
    this.#runs = runs;
    this.#device = device;
  }

  /** Of a run's latest weights; undefined where `isBusy` has become true meanwhile: nothing was opened then. */
  async open(id: string, isBusy: () => boolean): Promise<{ readonly opened: Promise<Opened> } | undefined> {
    const source = await latestOf(this.#host, id, this.#runs.folder(id)).catch(async (error) => {
      // One that is not there any more says so.
      await this.#runs.get(id);
      throw error;
    });
    const run = await this.#runs.get(id);
    const before = this.#model;
    const works = (await before?.opened.catch(() => undefined))?.works ?? true;
    if (isBusy()) return undefined;
    if (this.#model?.source !== source || (this.#model === before && !works)) {
      const closed = this.close();
      const model = { source, opened: closed.then(() => this.#openNewest(source, run)) };
      this.#model = model;
      model.opened.catch(() => {
        if (this.#model === model) this.#model = undefined;
      });
    }
    return this.#model;
  }

  async close(): Promise<void> {
    const model = this.#model;
    this.#model = undefined;
    await (await model?.opened.catch(() => undefined))?.close();
  }

  /** A run that trains in another tab replaces its checkpoint, also while that is read: it is begun again with the one that is there then. */
  async #openNewest(source: string, run: RunInfo): Promise<Opened> {
    for (let replaced = 0; ; replaced++) {
      try {
        return await this.#openOn(source, run);
      } catch (error) {
        const newest = await latestOf(this.#host, run.id, this.#runs.folder(run.id));
        if (newest === source || replaced === MOST_REPLACED) throw error;
        source = newest;
      }
    }
  }

  async #openOn(source: string, run: RunInfo): Promise<Opened> {
    const folder = this.#runs.folder(run.id);
    const saved = run.savedStep > 0 ? await savedState(this.#host, source) : undefined;
    const template = await templateOf(this.#host.files, run, folder);
    const beside = await adapterBeside(this.#host.files, folder);
    const adapters = beside === undefined ? {} : { adapters: { default: beside } };
    return withModel(this.#host.files, source, adapters, async ({ model, weights, tokenizer: files, found }) => {
      const { config } = model;
      const tokenizer = await tokenizerOf(saved?.settings.tokenizer, files, model.shape.vocabulary, 'this run');
      const memory = memoryOptions(this.#host, run.memory);
      const { choices = {} } = saved ?? {};
      const device = await this.#device();
      if (labelsIn(config)) {
        const images = saved?.settings.images ?? (await preparationIn(found.files, found.folder, config));
        return Teller.open(device, model, weights, { images, tokenizer }, { choices, memory });
      }
      // Within a budget there is room for what it trained with.
      const room = run.settings && memory.gpu !== undefined ? { capacity: run.settings.seq } : {};
      return Writer.open(device, model, weights, {
        tokenizer,
        template,
        choices,
        memory,
        ...room,
      });
    });
  }
}
