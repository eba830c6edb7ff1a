// Data whose records or images have a class each, for a model that tells classes apart: what the worker finds in it is said
// beside the data, and is what an estimate goes by. What the data is, and what learns from it, are other files' own.

import {
  type ChosenFile,
  type ClassesFound,
  type Holdfast,
  messageOf,
  type RunSettings,
} from '../src/browser/index.ts';
import { whole } from './figures.ts';
import { byId, setText } from './page.ts';

type Data = Blob | readonly ChosenFile[];

export class ClassData {
  readonly #trainer: () => Holdfast['trainer'] | undefined;
  readonly #changed: () => void;
  readonly #note = byId('classes-note', HTMLElement);
  /** What was looked at last, and what was found. */
  #key = '';
  #found: ClassesFound | undefined;
  #problem: string | undefined;

  /** `changed`: something else was found. */
  constructor(trainer: () => Holdfast['trainer'] | undefined, changed: () => void) {
    this.#trainer = trainer;
    this.#changed = changed;
  }

  /** What was found, where it is of this model and this version of the data: looked for otherwise. */
  of(settings: RunSettings, data: Data | undefined, version: number): ClassesFound | undefined {
    const { config, lora } = settings;
    const key = JSON.stringify([config, lora, version]);
    if (key !== this.#key) {
      this.#key = key;
      this.#say(undefined);
      if (data) void this.#look(settings, data, key);
    }
    return this.#found;
  }

  /** What of the data cannot be learned. */
  get problem(): string | undefined {
    return this.#problem;
  }

  /** The model tells no classes apart. */
  clear(): void {
    this.#key = '';
    this.#say(undefined);
  }

  async #look(settings: RunSettings, data: Data, key: string): Promise<void> {
    let [found, problem]: [ClassesFound | undefined, string | undefined] = [undefined, undefined];
    try {
      found = await this.#trainer()?.classesIn(settings, data);
    } catch (error) {
      problem = messageOf(error);
    }
    if (key !== this.#key) return;
    this.#say(found, problem);
    this.#changed();
  }

  #say(found: ClassesFound | undefined, problem?: string): void {
    this.#found = found;
    this.#problem = problem;
    this.#note.hidden = !found && problem === undefined;
    const head = found?.settings.newHead ? 'a new head learns to tell them apart' : 'the model knows them';
    setText(this.#note, problem ?? (found ? `${whole(found.classes)} classes: ${found.names}; ${head}.` : ''));
    this.#note.classList.toggle('problem', problem !== undefined);
  }
}
