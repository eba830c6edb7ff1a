// `RunList`: the runs of this browser: each can be looked at, gone on with, compared, forked, renamed, exported and
// removed. The list is the worker's; this file shows it and sends requests.

import {
  formatBytes,
  type Holdfast,
  isBase,
  type ModelExport,
  type RunInfo,
  type RunSettings,
} from '../src/browser/index.ts';
import { at } from './at.ts';
import { RunCurves } from './curve-data.ts';
import type { ComparedRun } from './curves.ts';
import { ask } from './dialogs.ts';
import { ago, whole } from './figures.ts';
import { byId, make, save } from './page.ts';
import { showReport } from './report.ts';

const COLORS = ['--run-1', '--run-2', '--run-3', '--run-4'] as const;

/** The actions on a run that its buttons stand for; the page does them. */
export interface RunListEvents {
  look(run: RunInfo): Promise<void>;
  goOn(run: RunInfo): Promise<void>;
  /** Takes its weights as the model to train. */
  use(run: RunInfo): Promise<void>;
  compared(others: readonly ComparedRun[]): void;
  /** The run that is shown was removed, here or in another tab. */
  gone(): void;
  /** Runs something and says what goes wrong. */
  attempt(work: () => Promise<unknown>): Promise<void>;
  say(text: string): void;
}

type Trainer = Holdfast['trainer'];

export class RunList {
  readonly #list = byId('runs', HTMLElement);
  readonly #empty = byId('runs-empty', HTMLElement);
  readonly #trainer: () => Trainer;
  readonly #events: RunListEvents;
  readonly #compared = new Map<string, ComparedRun>();
  #runs: readonly RunInfo[] = [];
  /** The run that the page shows, and whether it is open here. */
  #shown: { id: string | undefined; open: boolean } = { id: undefined, open: false };
  #drawn = '';

  constructor(trainer: () => Trainer, events: RunListEvents) {
    this.#trainer = trainer;
    this.#events = events;
    const input = byId('import', HTMLInputElement);
    input.addEventListener('change', () => {
      const files = [...(input.files ?? [])];
      input.value = '';
      if (files.length > 0) void events.attempt(() => this.import(files));
    });
  }

  get runs(): readonly RunInfo[] {
    return this.#runs;
  }

  /** Reads the list again. */
  async refresh(): Promise<void> {
    const before = this.#shown;
    this.#runs = await this.#trainer().runs();
    const { id: shown, open } = this.#shown;
    // One that was begun since may not be in the list yet.
    if (shown !== undefined && shown === before.id && !open && !before.open && !this.#has(shown)) this.#events.gone();
    for (const [id, compared] of this.#compared) {
      const name = this.#runs.find((run) => run.id === id)?.name;
      if (name === compared.name) continue;
      if (name === undefined) this.#compared.delete(id);
      else this.#compared.set(id, { ...compared, name });
      this.#tellCompared();
    }
    this.#draw();
  }

  #has(id: string): boolean {
    return this.#runs.some((run) => run.id === id);
  }

  show(id: string | undefined, open: boolean): void {
    this.#shown = { id, open };
    if (id !== undefined && this.#compared.delete(id)) this.#tellCompared();
    this.#draw();
  }

  async import(files: readonly File[]): Promise<void> {
    const run = await this.#trainer().importRun([...files]);
    this.#events.say(`Imported “${run.name}”`);
    await this.refresh();
    if (!this.#shown.open) await this.#events.look(run);
    if (!run.settings) await this.#events.use(run);
  }

  #draw(): void {
    const ages = this.#runs.map(({ created }) => ago(created));
    const drawn = JSON.stringify([this.#runs, ages, this.#shown, [...this.#compared.keys()]]);
    if (drawn === this.#drawn) return;
    this.#drawn = drawn;
    this.#empty.hidden = this.#runs.length > 0;
    const { key, place } = this.#focused();
    const opened = new Set(
      [...this.#list.querySelectorAll('details[open]')].map((d) => (d as HTMLElement).dataset['run']),
    );
    this.#list.replaceChildren(...this.#runs.map((run) => this.#row(run, opened.has(run.id))));
    if (key !== undefined) this.#focus(key, place);
  }

  /** What has the focus in the list, and in which row. */
  #focused(): { readonly key: string | undefined; readonly place: number } {
    const focused = document.activeElement?.closest<HTMLElement>('[data-key]');
    const place = [...this.#list.children].findIndex((row) => row.contains(focused ?? null));
    return { key: focused?.dataset['key'], place };
  }

  /** As `ask`; where the list was drawn anew meanwhile, what asked has the focus again all the same. */
  async #ask(...question: Parameters<typeof ask>): Promise<string[] | undefined> {
    const asker = document.activeElement;
    const { key, place } = this.#focused();
    const answer = await ask(...question);
    if (key !== undefined && !asker?.isConnected) this.#focus(key, place);
    return answer;
  }

  /** What had the focus has it again; where it is gone or out of use, the run in its place, or what is left. */
  #focus(key: string, place: number): void {
    const same = this.#list.querySelector<HTMLButtonElement>(`[data-key="${key}"]`);
    const row = this.#list.children[Math.min(place, this.#list.childElementCount - 1)];
    const next = row?.querySelector<HTMLElement>('.name') ?? byId('import', HTMLElement);
    (same && !same.disabled ? same : next).focus();
  }

  #row(run: RunInfo, opened: boolean): HTMLElement {
    const { id, name, savedStep, settings, open } = run;
    const isShown = id === this.#shown.id;
    const openHere = isShown && this.#shown.open;
    const free = open === 'no' && !this.#shown.open;
    // Buttons of the same words are told apart by the run's name.
    const key = (what: string) => ({ 'data-key': `${id} ${what}`, 'aria-describedby': `name-${id}` });
    const action = (text: string, work: () => Promise<unknown>, enabled = true) =>
      this.#button(text, key(text), enabled, work);
    const color = this.#compared.get(id)?.color;
    const compare = make('input', {
      type: 'checkbox',
      checked: color !== undefined,
      disabled: isShown || savedStep === 0,
    });
    for (const [name, value] of Object.entries(key('compare'))) compare.setAttribute(name, value);
    compare.addEventListener(
      'change',
      () =>
        void this.#events.attempt(async () => {
          try {
            await this.#compare(run, () => compare.checked);
          } catch (error) {
            compare.checked = this.#compared.has(id);
            throw error;
          }
        }),
    );
    const swatch = make('i');
    if (color) swatch.style.background = `var(${color})`;
    const goOn = settings !== undefined && savedStep < settings.steps;
    const summary = make('summary', {}, 'More');
    for (const [name, value] of Object.entries(key('more'))) summary.setAttribute(name, value);
    const more = make(
      'details',
      { open: opened },
      summary,
      make(
        'div',
        { className: 'row' },
        action('Fork', () => this.#forkAlone(run), savedStep > 0 && settings !== undefined),
        action('Rename', () => this.#rename(run), run.status !== 'damaged'),
        ...(settings ? [action('Use as model', () => this.#events.use(run), isBase(run))] : []),
        action('Export model', () => this.#exportModel(run), savedStep > 0 || run.status === 'imported'),
        action('Export zip', () => this.#export(run), savedStep > 0 || run.status === 'imported'),
        ...('showDirectoryPicker' in globalThis
          ? [action('Export to folder', () => this.#exportFolder(run), savedStep > 0)]
          : []),
        action('Report', () => this.#report(run), savedStep > 0),
        action('Remove', () => this.#remove(run), open === 'no'),
      ),
    );
    more.dataset['run'] = id;
    return make(
      'li',
      { className: isShown ? 'shown' : '' },
      this.#button(
        name,
        {
          ...{ id: `name-${id}`, 'data-key': `${id} look`, class: 'name' },
          ...(isShown && { 'aria-current': 'true' }),
        },
        true,
        () => this.#events.look(run),
      ),
      make('p', { className: 'hint' }, describe(run, openHere)),
      make(
        'div',
        { className: 'row' },
        settings
          ? goOn
            ? action(savedStep > 0 ? 'Go on' : 'Start again', () => this.#events.goOn(run), free)
            : action('Train further', () => this.#trainFurther(run), !this.#shown.open)
          : action('Use as model', () => this.#events.use(run), isBase(run)),
        make('label', { className: 'compare' }, compare, ' Compare', swatch),
      ),
      more,
    );
  }

  #button(text: string, attributes: Record<string, string>, enabled: boolean, work: () => Promise<unknown>) {
    const button = make('button', { type: 'button', disabled: !enabled }, text);
    for (const [name, value] of Object.entries(attributes)) button.setAttribute(name, value);
    button.addEventListener('click', () => void this.#events.attempt(work));
    return button;
  }

  // ---- What can be done with a run ------------------------------------------------------------------------------

  /** `wanted`: it is still to be compared, once its curves are here. */
  async #compare(run: RunInfo, wanted: () => boolean): Promise<void> {
    if (!wanted()) this.#compared.delete(run.id);
    else {
      const curves = RunCurves.of(await this.#trainer().history(run.id));
      if (!wanted() || run.id === this.#shown.id) return;
      const taken = new Set([...this.#compared.values()].map(({ color }) => color));
      const color = COLORS.find((candidate) => !taken.has(candidate));
      if (!color) throw new Error(`${COLORS.length} runs are compared already: leave one of them out first`);
      this.#compared.set(run.id, { name: run.name, color, curves });
    }
    this.#tellCompared();
    this.#draw();
  }

  #tellCompared(): void {
    this.#events.compared([...this.#compared.values()]);
  }

  /** One that has all its steps goes on as a fork with more of them. */
  async #trainFurther(run: RunInfo): Promise<void> {
    const fork = await this.#fork(run, 'Train');
    if (fork) await this.#events.goOn(fork);
  }

  async #forkAlone(run: RunInfo): Promise<void> {
    const fork = await this.#fork(run, 'Fork');
    if (!fork) return;
    const from = `from step ${whole(fork.savedStep)} of “${run.name}”`;
    this.#events.say(`“${fork.name}” goes on ${from} once you press its Go on`);
  }

  async #fork(run: RunInfo, yes: string): Promise<RunInfo | undefined> {
    const { steps, lr, minLr } = run.settings as RunSettings;
    const isOver = run.savedStep >= steps;
    const values = await this.#ask(
      `Fork “${run.name}”`,
      `${isOver ? `It has all its ${whole(steps)} steps. ` : ''}Another run from where this one is, with the same past. Both can be compared.`,
      [
        { label: 'Name', value: `${run.name}, forked` },
        { label: 'Learning rate', value: String(lr), type: 'number' },
        { label: 'Steps in all', value: String(isOver ? 2 * run.savedStep : steps), type: 'number' },
      ],
      yes,
    );
    if (!values) return undefined;
    const [name, newLr, newSteps] = values as [string, string, string];
    const rates = newLr === String(lr) ? { lr, minLr } : { lr: Number(newLr), minLr: Number(newLr) / 10 };
    const changes = { ...rates, steps: Math.round(Number(newSteps)) };
    const fork = await this.#trainer().fork(run.id, { name, changes });
    await this.refresh();
    return fork;
  }

  async #rename(run: RunInfo): Promise<void> {
    const values = await this.#ask('Rename', '', [{ label: 'Name', value: run.name }], 'Rename');
    if (!values) return;
    await this.#trainer().rename(run.id, at(values, 0));
    await this.refresh();
  }

  async #export(run: RunInfo): Promise<void> {
    this.#save(await this.#written(this.#trainer().exportZip(run.id)));
  }

  async #exportModel(run: RunInfo): Promise<void> {
    const { adapter } = await this.#trainer().voiceOf(run.id);
    const values = await this.#ask(
      `Export “${run.name}” for other programs`,
      adapter ? 'A model and a GGUF file have the adapter made a part of them.' : '',
      [{ label: 'As', value: adapter ? 'adapter' : 'model f32', options: adapter ? { ...ADAPTER, ...FORMS } : FORMS }],
      'Export',
    );
    const [form, type] = values?.[0]?.split(' ') ?? [];
    if (form === undefined) return;
    const wanted = { form, ...(type && { [form === 'gguf' ? 'type' : 'dtype']: type }) } as ModelExport;
    this.#save(await this.#written(this.#trainer().exportModel(run.id, wanted)));
  }

  /** Says that it is under way: it may take minutes. */
  #written<T>(files: Promise<T>): Promise<T> {
    this.#events.say('Writing the files …');
    return files;
  }

  #save(file: File): void {
    save(file);
    this.#events.say(`${file.name}: ${formatBytes(file.size)}`);
  }

  async #exportFolder(run: RunInfo): Promise<void> {
    type Picker = { showDirectoryPicker(options: { mode: 'readwrite' }): Promise<FileSystemDirectoryHandle> };
    const target = await (globalThis as unknown as Picker)
      .showDirectoryPicker({ mode: 'readwrite' })
      .catch((error: Error) => {
        if (error.name === 'AbortError') return undefined;
        throw error;
      });
    if (!target) return;
    await this.#written(this.#trainer().exportFolder(run.id, target));
    this.#events.say(`“${run.name}” is in the folder ${target.name}`);
  }

  async #report(run: RunInfo): Promise<void> {
    await showReport(run.name, this.#trainer().report(run.id));
  }

  async #remove(run: RunInfo): Promise<void> {
    const sure = await this.#ask(
      `Remove “${run.name}”?`,
      'Its checkpoints go with it. Export it first to keep them.',
      [],
      'Remove',
    );
    if (!sure) return;
    await this.#trainer().remove(run.id);
    this.#events.say(`“${run.name}” is removed`);
    await this.refresh();
  }
}

const ADAPTER = { adapter: 'the adapter, in PEFT’s files (zip)' };
const FORMS = {
  'model f32': 'model, safetensors in F32 (zip)',
  'model bf16': 'model, safetensors in BF16 (zip)',
  'gguf F16': 'GGUF in F16, for llama.cpp',
  'gguf Q8_0': 'GGUF in Q8_0, for llama.cpp',
  'gguf F32': 'GGUF in F32, for llama.cpp',
};

function describe(
  { savedStep, settings, status, open, created, loss, error, forkedFrom }: RunInfo,
  openHere: boolean,
): string {
  const steps = settings
    ? `${whole(savedStep)} of ${whole(settings.steps)} steps`
    : status === 'damaged'
      ? `${whole(savedStep)} steps saved`
      : 'weights alone';
  const parts = [openHere ? 'open here' : open === 'in another tab' ? 'open in another tab' : WORDS[status], steps];
  if (!openHere && loss !== undefined)
    parts.push(Number.isFinite(loss) ? `loss ${loss.toFixed(3)}` : 'last step skipped');
  if (forkedFrom) parts.push(`from “${forkedFrom.name}” at ${whole(forkedFrom.step)}`);
  if (created > 0) parts.push(ago(created));
  return `${parts.join(' · ')}${error && !openHere ? `. ${error}` : ''}`;
}

const WORDS: Readonly<Record<RunInfo['status'], string>> = {
  running: 'cut off',
  paused: 'paused',
  stopped: 'stopped',
  finished: 'finished',
  failed: 'failed',
  imported: 'imported',
  damaged: 'damaged',
};
