// What a model learns from: the example, a text of the person's own (pasted, dropped, chosen), or a task that is made
// up as it goes. Reads no more of a file than it needs to tell text from other things; nothing leaves the page.

import { formatBytes, TASKS, type TaskName, type TrainingText } from '../src/browser/index.ts';
import { whole } from './figures.ts';
import { byId, make, setText } from './page.ts';

type Kind = 'example' | 'own' | 'task';

/** What is looked at of a file; a text has no byte 0. */
const LOOKED_AT = 1 << 16;

export class DataPanel {
  readonly #kinds = byId('text-kinds', HTMLFieldSetElement);
  readonly #paste = byId('paste', HTMLTextAreaElement);
  readonly #files = byId('files', HTMLInputElement);
  readonly #clear = byId('clear-text', HTMLButtonElement);
  readonly #note = byId('text-note', HTMLElement);
  readonly #changed: () => void;
  readonly #task = byId('task', HTMLSelectElement);
  #chosen: readonly File[] = [];

  constructor(changed: () => void) {
    this.#changed = changed;
    for (const value of Object.keys(TASKS)) this.#task.append(make('option', { value }, value));
    this.#task.addEventListener('change', () => this.#show());
    this.#kinds.addEventListener('change', () => this.#show());
    this.#paste.addEventListener('input', () => this.#show());
    this.#files.addEventListener('change', () => {
      void this.take([...(this.#files.files ?? [])]);
      this.#files.value = '';
    });
    this.#clear.addEventListener('click', () => {
      this.#chosen = [];
      this.#paste.value = '';
      this.#show();
      this.#paste.focus();
    });
  }

  get kind(): Kind {
    return (this.#kinds.querySelector<HTMLInputElement>('input:checked')?.value ?? 'example') as Kind;
  }

  /** The task that is chosen, if one is. */
  get task(): TaskName | undefined {
    return this.kind === 'task' ? (this.#task.value as TaskName) : undefined;
  }

  /** Takes files as the text, in the order of their names; those that are no text are left out, and named. */
  async take(files: readonly File[]): Promise<void> {
    const checked = await Promise.all(files.map(async (file) => ({ file, problem: await problemOf(file) })));
    const texts = checked.filter(({ problem }) => problem === undefined).map(({ file }) => file);
    const refused = checked.flatMap(({ file, problem }) => (problem ? [`${file.name} ${problem}`] : []));
    if (texts.length > 0) {
      this.#chosen = texts.sort((a, b) => (a.name < b.name ? -1 : 1));
      const radio = this.#kinds.querySelector<HTMLInputElement>('input[value=own]');
      if (radio) radio.checked = true;
    }
    this.#show();
    if (refused.length > 0) this.problem(`${refused.join('; ')}. Choose plain text (UTF-8).`);
  }

  /** Absent: the example. Errors: an Error that says what is wrong with the text. */
  text(context: number): TrainingText | undefined {
    if (this.kind !== 'own') return undefined;
    const text = this.#chosen.length > 0 ? new Blob(this.#chosen as File[]) : new Blob([this.#paste.value]);
    // A tenth validates, and a window needs one token more than the context.
    const least = 10 * (context + 1);
    if (text.size === 0) throw new Error('There is no text yet: paste one, or choose files.');
    if (text.size < least) {
      throw new Error(
        `The text has ${whole(text.size)} bytes; a context of ${context} needs ${whole(least)}. Add text, or set a shorter context.`,
      );
    }
    return text;
  }

  problem(message: string): void {
    setText(this.#note, message);
    this.#note.classList.add('problem');
  }

  #show(): void {
    const { kind } = this;
    for (const name of ['example', 'own', 'task']) byId(`panel-${name}`, HTMLElement).hidden = name !== kind;
    const { description } = TASKS[this.#task.value as TaskName];
    setText(
      byId('task-hint', HTMLElement),
      `${description} It learns from solved problems; the share of unseen ones that it solves is shown.`,
    );
    const files = this.#chosen;
    this.#paste.hidden = files.length > 0;
    this.#clear.hidden = files.length === 0 && this.#paste.value === '';
    this.#note.classList.remove('problem');
    const bytes =
      files.length > 0 ? files.reduce((sum, { size }) => sum + size, 0) : new Blob([this.#paste.value]).size;
    const names = files.map(({ name }) => name).join(', ');
    setText(this.#note, kind === 'own' && bytes > 0 ? [names, formatBytes(bytes)].filter(Boolean).join(': ') : '');
    this.#changed();
  }
}

async function problemOf(file: File): Promise<string | undefined> {
  if (file.size === 0) return 'is empty';
  try {
    const start = new Uint8Array(await file.slice(0, LOOKED_AT).arrayBuffer());
    return start.includes(0) ? 'is no text' : undefined;
  } catch {
    return 'cannot be read';
  }
}
