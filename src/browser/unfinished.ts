// `Unfinished`: the note on a model from elsewhere whose import was cut off, by a closed tab or by the network: its
// folder, which has no record, stays, and the next import of the same model goes on in it (Runs.newPlace).
//
// Invariant: there is at most one note, and so at most one such folder: that of the import that began last. Once another
// begins, it goes; so it does when a week has passed (Runs.sweep).

import type { Files } from '../runtime/host.ts';
import { readJSON } from '../runtime/read-whole.ts';
import { accept, number, object, text } from '../util/json.ts';
import { realNumber } from '../util/range.ts';
import { isRunId } from './record.ts';

const NOTE = 'unfinished.json';
const MOST_MS = 7 * 24 * 3600 * 1000;
const SCHEMA = object({ id: text, source: text, begun: number(realNumber(0, 8.64e15)) });

export class Unfinished {
  readonly #files: Files;

  constructor(files: Files) {
    this.#files = files;
  }

  /** The run, and what it is brought from. Undefined where there is none, or it is too old. */
  async find(): Promise<{ readonly id: string; readonly source: string } | undefined> {
    if (!(await this.#files.stat(NOTE))) return undefined;
    let json: unknown;
    try {
      json = await readJSON(this.#files, NOTE, '');
    } catch {
      return undefined;
    }
    const found = accept(SCHEMA, json);
    return found && isRunId(found.id) && Date.now() - found.begun < MOST_MS ? found : undefined;
  }

  async note(id: string, source: string): Promise<void> {
    await this.#files.writeAtomic(NOTE, JSON.stringify({ id, source, begun: Date.now() }));
  }

  /** It is whole, or gone. */
  async forget(id: string): Promise<void> {
    if ((await this.find())?.id === id) await this.#files.remove(NOTE);
  }
}
