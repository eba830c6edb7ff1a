// Storage of weights in the files of models kept here: what of a frozen base lies in memory as it does there, and so
// what an estimate of its run has to count. Headers alone are read.

import type { Files, FolderReader } from '../runtime/host.ts';
import type { RunSettings } from '../train/run/run-settings.ts';
import { storedIn } from '../train/run/stored-model.ts';
import { HoldfastError } from '../util/errors.ts';
import type { StoredWeights } from './protocol.ts';

/** How weights are stored that are here already. What was found for the last model is kept: a slider makes many calls for one. */
export class StoredHere {
  readonly #files: Files;
  #key = '';
  #found: Promise<StoredWeights | undefined> = Promise.resolve(undefined);

  constructor(files: Files) {
    this.#files = files;
  }

  /** How the base of a run's low-rank update is stored; undefined where the run has none, or its weights are not here. */
  of({ from, lora, config, newHead }: RunSettings): Promise<StoredWeights | undefined> {
    if (from === undefined || !lora) return Promise.resolve(undefined);
    const key = JSON.stringify([from, newHead && config]);
    if (key !== this.#key) {
      this.#key = key;
      this.#found = storedHere(this.#files, from, newHead ? config : undefined);
    }
    return this.#found;
  }
}

async function storedHere(
  files: FolderReader,
  folder: string,
  as: RunSettings['config'] | undefined,
): Promise<StoredWeights | undefined> {
  try {
    const stored = await storedIn(files, folder, as);
    return stored && Object.fromEntries(stored);
  } catch (error) {
    // A run whose model has gone says so when it is gone on with.
    if (error instanceof HoldfastError) return undefined;
    throw error;
  }
}
