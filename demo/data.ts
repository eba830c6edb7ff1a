// `DataPanel`: the text that a model learns from: the example, a text or JSON records of the person's own (pasted,
// dropped, chosen), or a task that is made up as it goes. Reads no more of a file than it needs to tell text from other
// things; nothing leaves the page.

import {
  type ChosenFile,
  filesToTrain,
  formatBytes,
  messageOf,
  type NewRun,
  type RecordChoice,
  type ShapeName,
  TASKS,
  type TaskName,
  type TrainingText,
  type TrainOn,
  unreadForm,
  unreadRecords,
} from '../src/browser/index.ts';
import { areImages } from './drop.ts';
import { whole } from './figures.ts';
import { byId, make, setText } from './page.ts';

type Kind = 'example' | 'own' | 'task';

/** What is looked at of a file. */
const LOOKED_AT = 1 << 16;
/** Of its characters, those that may be damaged: a stray byte is no other encoding. */
const DAMAGED = 1e-3;

/** Of many files so many are named. */
const MOST_NAMED = 5;

/** What records are, to a person. */
const SHAPES: Readonly<Record<ShapeName, string>> = {
  messages: 'conversations',
  sharegpt: 'conversations',
  'prompt/completion': 'prompts and answers',
  alpaca: 'instructions and answers',
  text: 'texts, one a record',
};
const RECORD_FILE = /\.(jsonl|ndjson)$/i;

type Recognise = (text: Blob) => Promise<ShapeName | undefined>;

export class DataPanel {
  readonly #kinds = byId('text-kinds', HTMLFieldSetElement);
  readonly #paste = byId('paste', HTMLTextAreaElement);
  readonly #files = byId('files', HTMLInputElement);
  readonly #clear = byId('clear-text', HTMLButtonElement);
  readonly #note = byId('text-note', HTMLElement);
  readonly #changed: () => void;
  readonly #task = byId('task', HTMLSelectElement);
  readonly #recognise: Recognise;
  readonly #records = byId('records', HTMLElement);
  readonly #trainOn = byId('train-on', HTMLFieldSetElement);
  readonly #template = byId('template', HTMLSelectElement);
  readonly #pack = byId('pack', HTMLInputElement);
  #chosen: readonly File[] = [];
  /** Names of what was chosen with them, to validate on or to test with. */
  #leftOut = '';
  #images: readonly ChosenFile[] = [];
  /** Another one whenever the data may be another. */
  version = 0;
  /** Of the text that is there. */
  #shape: ShapeName | undefined;
  /** What keeps it from being learned, but for classes. */
  #problem: string | undefined;
  /** What there is of a person's own, in words, once it was looked at. */
  #what = '';
  #hasClasses = false;
  #looks = 0;
  /** Resolves when it is known of the text that is there whether it is records. */
  looked: Promise<void> = Promise.resolve();

  /** `recognise` tells records from text. */
  constructor(recognise: Recognise, changed: () => void) {
    this.#recognise = recognise;
    this.#changed = changed;
    for (const control of [this.#trainOn, this.#template, this.#pack]) control.addEventListener('change', changed);
    for (const value of Object.keys(TASKS)) this.#task.append(make('option', { value }, value));
    this.#task.addEventListener('change', () => this.#show());
    this.#kinds.addEventListener('change', () => this.#show());
    this.#paste.addEventListener('input', () => this.#show());
    this.#files.addEventListener('change', () => {
      void this.take([...(this.#files.files ?? [])].map((file) => ({ path: file.name, file })));
      this.#files.value = '';
    });
    const folder = byId('image-folder', HTMLInputElement);
    folder.addEventListener('change', () => {
      this.takeImages([...(folder.files ?? [])].map((file) => ({ path: file.webkitRelativePath || file.name, file })));
      folder.value = '';
    });
    this.#clear.addEventListener('click', () => {
      this.#chosen = [];
      this.#images = [];
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

  /** Takes files as the text, in the order of their names; those that are no text, or no part of a folder's that trains, are left out, and named. */
  async take(given: readonly ChosenFile[]): Promise<void> {
    const { files, leftOut } = filesToTrain(given);
    const checked = await Promise.all(
      files.map(async ({ file }) => ({
        ...{ file, problem: await problemOf(file) },
        form: await unreadForm(file).catch(() => undefined),
      })),
    );
    const texts = checked.filter(({ problem, form }) => (form ?? problem) === undefined).map(({ file }) => file);
    const refused = checked.flatMap(({ file, problem, form }) => {
      const what = form === undefined ? problem : 'is not read';
      return what ? [`${file.name}, which ${what}`] : [];
    });
    if (texts.length > 0) {
      this.#chosen = texts.sort((a, b) => (a.name < b.name ? -1 : 1));
      this.#leftOut = someOf([...leftOut.map(({ file }) => file.name), ...refused], ', ');
      this.#images = [];
      this.#checkOwn();
    }
    this.#show();
    if (texts.length > 0 || refused.length === 0) return;
    // What is said of the text that is there does not follow, and replace, this.
    await this.looked;
    const forms = checked.flatMap(({ file, form }) => (form ? [`${file.name}: ${form}.`] : []));
    const problems = checked.flatMap(({ file, problem, form }) => (form ? [] : [`${file.name} ${problem}`]));
    const others = someOf(problems, '; ');
    const otherwise = others && `${others}. Choose plain text in UTF-8, or save it as that.`;
    this.problem([someOf(forms, ' '), otherwise].join(' ').trim());
  }

  /** Takes images, below the folders of their classes. */
  takeImages(files: readonly ChosenFile[]): void {
    const found = areImages(files);
    if (found) {
      this.#chosen = [];
      // What systems leave beside files begins with a dot.
      this.#images = files.filter(({ file }) => !file.name.startsWith('.'));
      this.#checkOwn();
    }
    this.#show();
    if (!found)
      this.problem('There is no image in it: PNG files below a folder for each class, or the files of MNIST or CIFAR.');
  }

  #checkOwn(): void {
    const radio = this.#kinds.querySelector<HTMLInputElement>('input[value=own]');
    if (radio) radio.checked = true;
  }

  /** The images, where they are what is learned from. */
  get images(): readonly ChosenFile[] | undefined {
    return this.kind === 'own' && this.#images.length > 0 ? this.#images : undefined;
  }

  /** What a run is given that learned from a person's own data, and does not have it here. */
  get own(): Pick<NewRun, 'text' | 'images'> {
    const { images } = this;
    if (images) return { images };
    const text = this.#blob;
    return this.kind === 'own' && text.size > 0 ? { text } : {};
  }

  /** What has a class each, as far as a model that tells classes apart is concerned. */
  get labelled(): Blob | readonly ChosenFile[] | undefined {
    if (this.kind !== 'own') return undefined;
    if (this.images) return this.images;
    const text = this.#blob;
    return text.size > 0 ? text : undefined;
  }

  /** How the text is learned from, where it holds records. */
  get records(): RecordChoice | undefined {
    if (this.kind !== 'own' || this.#shape === undefined || this.images) return undefined;
    const { value = 'answers' } = this.#trainOn.querySelector<HTMLInputElement>('input:checked') ?? {};
    return {
      trainOn: value as TrainOn,
      pack: this.#pack.checked ? 'yes' : 'no',
      ...(this.#template.value === 'chatml' && { template: 'chatml' }),
    };
  }

  /** Whether the model has a chat template of its own. */
  modelChats(chats: boolean): void {
    const [own] = this.#template.options;
    if (!own || own.disabled === !chats) return;
    own.disabled = !chats;
    this.#template.value = chats ? 'model' : 'chatml';
  }

  /** Absent: the example. Errors: an Error that says what is wrong with the text. */
  text(context: number, hasClasses = false): TrainingText | undefined {
    if (this.kind !== 'own' || this.images) return undefined;
    const text = this.#blob;
    // A tenth validates, and a window needs one token more than the context.
    const least = 10 * (context + 1);
    if (text.size === 0) throw new Error('There is no text yet: paste one, or choose files.');
    if (this.#problem !== undefined && !hasClasses) throw new Error(this.#problem);
    if (this.#shape === undefined && !hasClasses && text.size < least) {
      throw new Error(
        `The text has ${whole(text.size)} bytes; a context of ${context} needs ${whole(least)}. Add text, or set a shorter context.`,
      );
    }
    return text;
  }

  /** By the names of the files. */
  get #areRecords(): boolean {
    return this.#chosen.length > 0 && this.#chosen.every(({ name }) => RECORD_FILE.test(name));
  }

  /** Records end with their line. */
  get #blob(): Blob {
    if (this.#chosen.length === 0) return new Blob([this.#paste.value]);
    return new Blob(this.#chosen.flatMap((file) => (this.#areRecords ? [file, '\n'] : [file])));
  }

  problem(message: string): void {
    setText(this.#note, message);
    this.#note.classList.add('problem');
  }

  #show(): void {
    this.version++;
    // What is found out yet of the text before is not said of this.
    this.#looks++;
    const { kind } = this;
    for (const name of ['example', 'own', 'task']) byId(`panel-${name}`, HTMLElement).hidden = name !== kind;
    const { description } = TASKS[this.#task.value as TaskName];
    setText(
      byId('task-hint', HTMLElement),
      `${description} It learns from solved problems; the share of unseen ones that it solves is shown.`,
    );
    const files = this.#images.length > 0 ? this.#images.map(({ file }) => file) : this.#chosen;
    this.#paste.hidden = files.length > 0;
    this.#clear.hidden = files.length === 0 && this.#paste.value === '';
    this.#note.classList.remove('problem');
    const bytes =
      files.length > 0 ? files.reduce((sum, { size }) => sum + size, 0) : new Blob([this.#paste.value]).size;
    const names =
      this.#images.length > 0
        ? `${whole(files.length)} ${files.length === 1 ? 'file' : 'files'}`
        : someOf(
            files.map(({ name }) => name),
            ', ',
          );
    const own = [names, formatBytes(bytes)].filter(Boolean).join(': ');
    const isPart = this.#chosen.length > 0 && this.#leftOut !== '';
    const what = kind === 'own' && bytes > 0 ? own + (isPart ? ` (not ${this.#leftOut})` : '') : '';
    setText(this.#note, what);
    this.#shape = undefined;
    this.#problem = undefined;
    this.#what = '';
    this.#hasClasses = false;
    this.#records.hidden = true;
    this.#changed();
    if (what !== '' && this.#images.length === 0) this.looked = this.#look(what);
  }

  /** Sees whether it is records. */
  async #look(what: string): Promise<void> {
    const look = this.#looks;
    const text = this.#blob;
    const shape = await this.#recognise(text).catch(() => undefined);
    const problem =
      (await unreadRecords(this.#chosen).catch(messageOf)) ??
      (shape === undefined && this.#areRecords ? 'They could not be looked at: choose them again' : undefined);
    if (look !== this.#looks) return;
    this.#shape = shape;
    this.#problem = problem;
    this.#records.hidden = shape === undefined || shape === 'text';
    this.#what = what;
    this.#sayShape();
    this.#changed();
  }

  /** Whether the model was found to learn classes of it: pairs of texts with a label are of no other use. */
  classesFound(found: boolean): void {
    if (found === this.#hasClasses) return;
    const said = this.#sayingShape;
    this.#hasClasses = found;
    // What was said since, of other files, stays.
    if (this.#what !== '' && this.#note.textContent === said) this.#sayShape();
  }

  /** What the text is, or what is wrong with it. */
  get #sayingShape(): string {
    const shape = this.#shape;
    if (this.#problem === undefined) return shape === undefined ? this.#what : `${this.#what}, ${SHAPES[shape]}`;
    return this.#hasClasses ? `${this.#what}, records with labels` : `${this.#what}. ${this.#problem}.`;
  }

  #sayShape(): void {
    setText(this.#note, this.#sayingShape);
    this.#note.classList.toggle('problem', this.#problem !== undefined && !this.#hasClasses);
  }
}

/** The first of them, and how many more there are. */
function someOf(said: readonly string[], separator: string): string {
  const more = said.length - MOST_NAMED;
  return said.slice(0, MOST_NAMED).join(separator) + (more > 0 ? ` and ${whole(more)} more` : '');
}

/** What is wrong with a file as a text in UTF-8, where `unreadForm` knows of nothing. */
export async function problemOf(file: File): Promise<string | undefined> {
  if (file.size === 0) return 'is empty';
  try {
    const start = new Uint8Array(await file.slice(0, LOOKED_AT).arrayBuffer());
    // The last character may go on behind it.
    const text = new TextDecoder().decode(start, { stream: true });
    return text.split('\ufffd').length - 1 > DAMAGED * text.length ? 'is not in UTF-8' : undefined;
  } catch {
    return 'cannot be read';
  }
}
