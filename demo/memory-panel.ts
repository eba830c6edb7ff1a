// `MemoryPanel`: the memory of a run: its budgets, which can be changed before and while it trains, and the view of the
// chunks that move within them. Before a run the controls say what it will get; while one is open they say what it has.

import {
  type Estimate,
  formatBytes,
  type Holdfast,
  type MemorySettings,
  messageOf,
  type PolicyName,
  parseBytes,
  type RunEvent,
  type RunSettings,
  type StepPicture,
  type StoredWeights,
} from '../src/browser/index.ts';
import { PlanTable } from './memory/plan-table.ts';
import { POLICY_WORDS } from './memory/words.ts';
import { MemoryView } from './memory-view.ts';
import { byId, make, setText } from './page.ts';

/** The last position of the slider: no limit. */
const NO_LIMIT = 100;
const HINT =
  'Drag it down, now or while it trains: what does not fit moves to host memory and back. The loss stays the same to the last bit.';

/** A budget of GPU memory, in words. */
export const sayBudget = (bytes: number | undefined): string => (bytes === undefined ? 'no limit' : formatBytes(bytes));

export interface MemoryEvents {
  /** Other budgets were chosen than those that are in force. Errors are shown, and the controls go back. */
  wanted(memory: MemorySettings): Promise<void>;
  /** The next step, recorded; undefined when there is none. */
  picture(): Promise<StepPicture | undefined>;
}

export class MemoryPanel {
  readonly view = new MemoryView(byId('view', HTMLElement));
  readonly #plan = new PlanTable(byId('plan', HTMLDetailsElement));
  readonly #events: MemoryEvents;
  readonly #slider = byId('budget', HTMLInputElement);
  readonly #value = byId('budget-value', HTMLOutputElement);
  readonly #note = byId('budget-note', HTMLElement);
  readonly #limitsNote = byId('limits-note', HTMLElement);
  readonly #host = byId('host-limit', HTMLInputElement);
  readonly #disk = byId('disk', HTMLInputElement);
  readonly #diskLimit = byId('disk-limit', HTMLInputElement);
  readonly #policy = byId('policy', HTMLSelectElement);
  /** What the slider goes from and to, in bytes. */
  #range = { smallest: 1, unlimited: 1 };
  /** Where the slider was put for a budget, which may lie between two places or beyond its ends. */
  #placed: { readonly place: string; readonly gpu: number | undefined } = { place: '', gpu: undefined };
  /** Asked for, or in force. */
  #memory: MemorySettings = {};
  #inForce: MemorySettings = {};
  /** Changes that are asked for and not in force yet: the controls show the last of them. */
  #asked = 0;
  /** Resolves when the last of them is; those before it that have not begun are left out. */
  #taken: Promise<void> = Promise.resolve();
  /** Counts the plans that were asked for: what is answered late is of one before. */
  #plans = 0;
  /** Counts the runs that are looked at: what is told of an earlier one is not shown. */
  #watching = 0;

  constructor(events: MemoryEvents) {
    this.#events = events;
    for (const [value, text] of Object.entries(POLICY_WORDS)) this.#policy.append(make('option', { value }, text));
    // Until what it goes from and to is known.
    this.#slider.disabled = true;
    this.#slider.addEventListener('input', () => this.#showValue());
    for (const control of [this.#slider, this.#host, this.#disk, this.#diskLimit, this.#policy]) {
      control.addEventListener('change', () => void this.#take(control === this.#slider));
    }
    this.view.onPolicy = (name) => {
      this.#policy.value = name;
      void this.#take(false);
    };
  }

  /** What was asked for. */
  get memory(): MemorySettings {
    return this.#memory;
  }

  /** What the model needs at least, and at most. The slider keeps its budget, not its place. */
  showEstimate({ smallest, unlimited, fit, problem }: Estimate): void {
    this.#range = { smallest, unlimited };
    this.#slider.disabled = false;
    this.#place();
    const { gpu } = this.#memory;
    if (problem) this.#say(problem, true);
    else if (gpu === undefined || !fit) this.#say(HINT);
    else this.#say(`${fit.slots} of ${fit.chunks} chunks of ${formatBytes(fit.chunkBytes)} fit on the GPU at once.`);
  }

  /** The budgets that are in force, once no others are asked for. */
  show(memory: MemorySettings): void {
    this.#inForce = memory;
    if (this.#asked > 0) return;
    this.#memory = memory;
    this.view.within(memory.gpu);
    this.#place();
    if (memory.host === undefined) this.#host.value = '';
    else sayLimit(this.#host, memory.host);
    this.#disk.checked = memory.disk !== undefined;
    if (memory.disk !== undefined) sayLimit(this.#diskLimit, memory.disk);
    this.#diskLimit.disabled = memory.disk === undefined;
    this.#policy.value = memory.policy ?? 'planned';
  }

  live(event: Extract<RunEvent, { type: 'memory' }>): void {
    this.view.live(event);
  }

  /** Shows a run's steps, as fast as they are looked at, until it ends. */
  async watch(): Promise<void> {
    const watching = ++this.#watching;
    for (;;) {
      await this.view.wanted();
      if (watching !== this.#watching) return;
      // A run that has just ended has no next step.
      const picture = await this.#events.picture().catch(() => undefined);
      if (!picture || watching !== this.#watching) return;
      this.view.show(picture);
    }
  }

  /** The figures of a plan of this run within the budgets that are asked for, now if they are looked at, else once they are. */
  async showPlan(trainer: Holdfast['trainer'], settings: RunSettings, stored?: StoredWeights): Promise<void> {
    const nth = ++this.#plans;
    const show = async () => {
      const plan = await trainer.plan(settings, this.#memory, stored).catch(messageOf);
      if (nth === this.#plans) this.#plan.show(plan);
    };
    this.#plan.onOpen = () => void show();
    if (this.#plan.isOpen) await show();
  }

  /** What each policy would move within the budget that is in force, for chunks and then for activations. */
  async compare(trainer: Holdfast['trainer'], settings: RunSettings): Promise<void> {
    const memory = this.#memory;
    const watching = this.#watching;
    const stays = () => memory === this.#memory && watching === this.#watching;
    const within = memory.gpu !== undefined;
    const chunks = within ? await trainer.comparePolicies(settings, memory).catch(() => undefined) : undefined;
    if (!stays()) return;
    this.view.compare(chunks);
    const activations = within ? await trainer.compareActivations(settings, memory).catch(() => undefined) : undefined;
    if (stays()) this.view.compareActivations(activations);
  }

  /** Empties the view, for another run. */
  clear(): void {
    this.#watching++;
    this.view.clear();
  }

  /** `moved`: the slider was; otherwise the GPU's budget stays, also between two places of the slider or beyond its ends. */
  async #take(moved: boolean): Promise<void> {
    this.#diskLimit.disabled = !this.#disk.checked;
    this.#asked++;
    let problem: string | undefined;
    try {
      setText(this.#limitsNote, '');
      const memory = this.#wanted(moved ? this.#budget : this.#memory.gpu);
      if (JSON.stringify(memory) === JSON.stringify(this.#memory)) return;
      this.#memory = memory;
      const taken = this.#taken.then(async () => {
        if (this.#memory !== memory) return;
        await this.#events.wanted(memory);
        this.#inForce = memory;
      });
      this.#taken = taken.catch(() => {});
      await taken;
    } catch (error) {
      problem = `${messageOf(error).replace(/\.?$/, '.')} The budgets stay as they were.`;
    } finally {
      this.#asked--;
      this.show(this.#inForce);
    }
    if (problem !== undefined) this.#say(problem, true);
  }

  #wanted(gpu: number | undefined): MemorySettings {
    const host = this.#host.value.trim() === '' ? undefined : parseBytes(this.#host.value);
    const disk = this.#disk.checked ? parseBytes(this.#diskLimit.value) : undefined;
    const policy = this.#policy.value as PolicyName;
    if (gpu === undefined && (host !== undefined || disk !== undefined || policy !== 'planned')) {
      setText(this.#limitsNote, 'These count once the GPU has a budget.');
    }
    return {
      ...(gpu !== undefined && { gpu }),
      ...(host !== undefined && { host }),
      ...(disk !== undefined && { disk }),
      ...(policy !== 'planned' && { policy }),
    };
  }

  /** By the slider: from the smallest that works, each place a little more than the one before. Where it was put, what it was put for. */
  get #budget(): number | undefined {
    if (this.#slider.value === this.#placed.place) return this.#placed.gpu;
    const at = this.#slider.valueAsNumber;
    if (at >= NO_LIMIT) return undefined;
    const { smallest, unlimited } = this.#range;
    return Math.ceil(smallest * (unlimited / smallest) ** (at / NO_LIMIT));
  }

  #place(): void {
    const { gpu } = this.#memory;
    const { smallest, unlimited } = this.#range;
    const share = gpu === undefined ? 1 : Math.log(gpu / smallest) / Math.log(unlimited / smallest);
    const at = Number.isFinite(share) ? Math.floor(share * NO_LIMIT + 1e-6) : NO_LIMIT;
    this.#slider.value = String(gpu === undefined ? NO_LIMIT : Math.min(NO_LIMIT - 1, Math.max(0, at)));
    this.#placed = { place: this.#slider.value, gpu };
    this.#showValue(gpu);
  }

  #showValue(budget = this.#budget): void {
    const text = sayBudget(budget);
    setText(this.#value, text);
    this.#slider.setAttribute('aria-valuetext', text);
  }

  #say(text: string, problem = false): void {
    setText(this.#note, text);
    this.#note.classList.toggle('problem', problem);
  }
}

/** Writes a limit into its field so that the same bytes are read from it: as it was typed, in few digits, or in all. */
function sayLimit(field: HTMLInputElement, bytes: number): void {
  const says = (text: string) => {
    try {
      return parseBytes(text) === bytes;
    } catch {
      return false;
    }
  };
  const short = formatBytes(bytes);
  if (!says(field.value)) field.value = says(short) ? short : `${bytes} B`;
}
