// The writer of text from a run that is not training: it has a device's memory to itself, is kept for the next text from the
// same weights, and is closed before anything else computes. Of a run that trains, that run writes (active-run.ts).
//
// Invariant: at most one is open or being opened; one that is still being opened is closed when it is.

import { tokenizerOf } from '../data/tokenizer.ts';
import type { Device } from '../gpu/device.ts';
import type { BrowserHost } from '../runtime/browser.ts';
import { withModel } from '../train/open-model.ts';
import { savedState } from '../train/saved-state.ts';
import { templateOf } from './conversations.ts';
import { memoryOptions } from './memory-options.ts';
import { adapterBeside } from './models.ts';
import type { RunInfo } from './protocol.ts';
import { latestOf } from './run-files.ts';
import type { Runs } from './runs.ts';
import { Writer } from './writer.ts';

export class IdleWriter {
  readonly #host: BrowserHost;
  readonly #runs: Runs;
  readonly #device: () => Promise<Device>;
  /** And the folder of its weights. */
  #writer: { readonly source: string; readonly opened: Promise<Writer> } | undefined;

  constructor(host: BrowserHost, runs: Runs, device: () => Promise<Device>) {
    this.#host = host;
    this.#runs = runs;
    this.#device = device;
  }

  /** The writer of a run's latest weights; undefined where `isBusy` has become true meanwhile: nothing was opened then. */
  async open(id: string, isBusy: () => boolean): Promise<{ readonly opened: Promise<Writer> } | undefined> {
    const source = await latestOf(this.#host, id, this.#runs.folder(id));
    const run = await this.#runs.get(id);
    const before = this.#writer;
    const works = (await before?.opened.catch(() => undefined))?.works ?? true;
    if (isBusy()) return undefined;
    if (this.#writer?.source !== source || (this.#writer === before && !works)) {
      const closed = this.close();
      const writer = { source, opened: closed.then(() => this.#openOn(source, run)) };
      this.#writer = writer;
      writer.opened.catch(() => {
        if (this.#writer === writer) this.#writer = undefined;
      });
    }
    return this.#writer;
  }

  async close(): Promise<void> {
    const writer = this.#writer;
    this.#writer = undefined;
    await (await writer?.opened.catch(() => undefined))?.close();
  }

  async #openOn(source: string, run: RunInfo): Promise<Writer> {
    const folder = this.#runs.folder(run.id);
    const saved = run.savedStep > 0 ? await savedState(this.#host, source) : undefined;
    const template = await templateOf(this.#host.files, run, folder);
    const beside = await adapterBeside(this.#host.files, folder);
    const adapters = beside === undefined ? {} : { adapters: { default: beside } };
    return withModel(this.#host.files, source, adapters, async ({ model, weights, tokenizer: files }) => {
      const tokenizer = await tokenizerOf(saved?.settings.tokenizer, files, model.shape.vocabulary, 'this run');
      const device = await this.#device();
      const memory = memoryOptions(this.#host, run.memory);
      // Within a budget there is room for what it trained with.
      const room = run.settings && memory.gpu !== undefined ? { capacity: run.settings.seq } : {};
      return Writer.open(device, model, weights, {
        tokenizer,
        template,
        choices: saved?.choices ?? {},
        memory,
        ...room,
      });
    });
  }
}
