// `FormEstimate`: the estimate of the run that the form says, a moment after the last change: what it needs is shown at once, by
// the model and by the budgets, and its speed when that is known, which may have to be measured.

import { type Holdfast, messageOf, type RunSettings } from '../src/browser/index.ts';
import type { MemoryPanel } from './memory-panel.ts';
import type { ModelForm } from './model.ts';
import type { OwnModel } from './own-model.ts';
import type { Training } from './training.ts';
import { verdictOn } from './verdict.ts';

const WAIT_MS = 200;

interface Parts {
  readonly model: ModelForm;
  readonly own: OwnModel;
  readonly memory: MemoryPanel;
}

/** What is there by now. */
interface Opened {
  readonly holdfast: Holdfast | undefined;
  readonly training: Training | undefined;
}

export class FormEstimate {
  readonly #parts: Parts;
  readonly #opened: () => Opened;
  readonly #wanted: () => RunSettings;
  #timer: ReturnType<typeof setTimeout> | undefined;
  /** Counts what was asked: what is answered late is of what was asked before. */
  #asked = 0;

  /** `wanted`: the run as it would be made. Errors: an Error that says what is wrong with the form. */
  constructor(parts: Parts, opened: () => Opened, wanted: () => RunSettings) {
    this.#parts = parts;
    this.#opened = opened;
    this.#wanted = wanted;
  }

  changed(): void {
    clearTimeout(this.#timer);
    this.#timer = setTimeout(() => void this.now(), WAIT_MS);
  }

  /** The memory of a run that is open is its own. */
  async now(): Promise<void> {
    const { holdfast, training } = this.#opened();
    if (!holdfast) return;
    const { trainer } = holdfast;
    const { model, own, memory } = this.#parts;
    const open = training?.open ? training.run?.settings : undefined;
    const nth = ++this.#asked;
    try {
      await this.#ofForm(trainer, open === undefined, () => nth === this.#asked);
    } catch (error) {
      if (nth !== this.#asked) return;
      model.showProblem(messageOf(error));
      model.showEstimate(undefined);
      own.showVerdict();
    }
    if (!open || nth !== this.#asked) return;
    memory.showEstimate(await trainer.estimate(open, memory.memory));
    await memory.showPlan(trainer, open);
    await memory.compare(trainer, open);
  }

  /** `isFree`: no run is open, whose budgets are shown and beside which nothing is measured. */
  async #ofForm(trainer: Holdfast['trainer'], isFree: boolean, stays: () => boolean): Promise<void> {
    const { model, own, memory } = this.#parts;
    // A model of the person's own that is still to come needs nothing.
    const settings = model.isOwn && !own.info ? undefined : this.#wanted();
    model.showProblem('');
    const stored = model.isOwn ? own.info?.stored : undefined;
    const asked = isFree ? memory.memory : {};
    for (const speed of ['known', 'measured'] as const) {
      const found = settings && (await trainer.estimate(settings, asked, stored, speed));
      if (!stays()) return;
      const isMeasured = speed === 'known' && isFree && found !== undefined && !found.tokensPerSecond;
      model.showEstimate(found, settings, isMeasured);
      if (found && isFree) memory.showEstimate(found);
      own.showVerdict(found, asked, settings);
      if (found && settings && !model.isOwn) {
        const { fits, text } = verdictOn(found, asked, { ...settings, toKeep: 0, reads: true, isPreset: true });
        if (!fits) model.showProblem(text);
      }
      if (!isMeasured) break;
    }
    if (settings && isFree) await memory.showPlan(trainer, settings, stored);
  }
}
