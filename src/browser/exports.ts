// `Exports`: what a tab hands out as files to download, on disk in a folder of its own below EXPORTS.
//
// Invariant: the folder stays while its tab lives, which holds a lock of its name; what a tab that is gone has left, the next start
// removes.

import { holdLock } from '../runtime/browser/locks.ts';
import { type Files, join } from '../runtime/host.ts';

const EXPORTS = 'exports';
const lockName = (tab: string) => `holdfast exports ${tab}`;

export class Exports {
  readonly #files: Files;
  readonly #folder: string;

  /** Those of this tab, until its worker ends. */
  static async open(files: Files): Promise<Exports> {
    await removeLeft(files);
    const tab = crypto.randomUUID();
    await holdLock(lockName(tab));
    return new Exports(files, join(EXPORTS, tab));
  }

  private constructor(files: Files, folder: string) {
    this.#files = files;
    this.#folder = folder;
  }

  /** A path at which nothing is. */
  async newPath(): Promise<string> {
    await this.#files.makeFolder(this.#folder);
    return join(this.#folder, crypto.randomUUID());
  }
}

async function removeLeft(files: Files): Promise<void> {
  if (!(await files.stat(EXPORTS))) return;
  for (const tab of await files.list(EXPORTS)) {
    const release = await holdLock(lockName(tab));
    // What is open still goes at a later start.
    if (release) await files.remove(join(EXPORTS, tab)).catch(() => {});
    release?.();
  }
}
