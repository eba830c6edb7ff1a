// The choice of a model and its training: the presets and the form of all settings, which say the same. Choosing a
// preset fills the form; changing the form leaves the presets.

import { type Estimate, FAMILIES, FAMILY_NAMES, formatBytes, type RunSettings } from '../src/browser/index.ts';
import { duration, short, whole } from './figures.ts';
import { byId, make, setText } from './page.ts';
import { PRESETS, type PresetName, type Shape, settingsOf } from './presets.ts';

type Numbers = { [K in keyof Shape]: Shape[K] extends number ? K : never }[keyof Shape];

/** Label, least, and whether it is a rate rather than a count. */
const NUMBERS: Readonly<Record<Numbers, readonly [label: string, least: number, rate?: true]>> = {
  layers: ['Layers', 1],
  width: ['Width', 1],
  heads: ['Heads', 1],
  kvHeads: ['Key and value heads', 1],
  context: ['Context, tokens', 1],
  vocabulary: ['Vocabulary', 256],
  batch: ['Batch, sequences', 1],
  accumulate: ['Batches a step', 1],
  steps: ['Steps', 1],
  lr: ['Learning rate', 0, true],
  warmup: ['Warm-up, steps', 0],
  clip: ['Clip gradient norm at', 0, true],
  weightDecay: ['Weight decay', 0, true],
  seed: ['Seed', 0],
  evalEvery: ['Validate every', 0],
  evalWindows: ['Validation sequences', 1],
  sampleEvery: ['Write every', 0],
  saveEvery: ['Save every', 0],
};

export class ModelForm {
  readonly #presets = byId('presets', HTMLFieldSetElement);
  readonly #note = byId('model-note', HTMLElement);
  readonly #inputs = new Map<Numbers, HTMLInputElement>();
  // Of those that write, as the page shows.
  readonly #family = choice(
    Object.fromEntries(FAMILY_NAMES.flatMap((name) => (FAMILIES[name].writes ? [[name, FAMILIES[name].label]] : []))),
  );
  readonly #schedule = choice({ cosine: 'cosine', linear: 'linear', constant: 'constant' });

  constructor(changed: () => void) {
    const fields = byId('fields', HTMLElement);
    const add = (label: string, input: HTMLInputElement | HTMLSelectElement, id: string) => {
      input.id = `field-${id}`;
      fields.append(make('label', { htmlFor: input.id }, label), input);
    };
    add('Family', this.#family, 'family');
    for (const [name, [label, least, rate]] of Object.entries(NUMBERS) as [Numbers, (typeof NUMBERS)[Numbers]][]) {
      const input = make('input', { type: 'number', min: String(least), step: rate ? 'any' : '1' });
      this.#inputs.set(name, input);
      add(label, input, name);
    }
    add('Schedule', this.#schedule, 'schedule');
    this.#fill(PRESETS.tiny);
    this.#presets.addEventListener('change', () => {
      const chosen = this.#presets.querySelector<HTMLInputElement>('input:checked');
      if (chosen) this.#fill(PRESETS[chosen.value as PresetName]);
      changed();
    });
    fields.addEventListener('input', () => {
      this.#markPreset();
      changed();
    });
  }

  /** Errors: an Error that names the field, or the HoldfastError of a shape that makes no model. */
  settings(): RunSettings {
    const shape = this.#shape();
    for (const [name, [label, least, rate]] of Object.entries(NUMBERS) as [Numbers, (typeof NUMBERS)[Numbers]][]) {
      const value = shape[name];
      if (rate ? value >= least : Number.isSafeInteger(value) && value >= least) continue;
      throw new Error(`${label} must be a ${rate ? 'number' : 'whole number'} of at least ${least}`);
    }
    return settingsOf(shape);
  }

  get context(): number {
    return this.#shape().context;
  }

  showProblem(message: string): void {
    setText(this.#note, message);
    this.#note.classList.toggle('problem', message !== '');
  }

  showEstimate(estimate: Estimate | undefined, settings: RunSettings): void {
    const fact = (name: string, text: string) => setText(byId(`fact-${name}`, HTMLElement), text);
    fact('parameters', estimate ? whole(estimate.parameters) : '–');
    fact('unlimited', estimate ? formatBytes(estimate.unlimited) : '–');
    fact('smallest', estimate ? formatBytes(estimate.smallest) : '–');
    const speed = estimate?.tokensPerSecond;
    const { batch, seq, accumulate, steps } = settings;
    fact('speed', speed ? `${speed.from === 'run' ? '' : 'about '}${short(speed.value)} tokens/s` : '–');
    fact('time', speed ? `about ${duration((steps * batch * seq * accumulate) / speed.value)}` : '–');
  }

  #shape(): Shape {
    const numbers = Object.fromEntries([...this.#inputs].map(([name, { valueAsNumber }]) => [name, valueAsNumber]));
    return {
      ...(numbers as Record<Numbers, number>),
      family: this.#family.value as Shape['family'],
      schedule: this.#schedule.value as Shape['schedule'],
    };
  }

  #fill(shape: Shape): void {
    for (const [name, input] of this.#inputs) input.value = String(shape[name]);
    this.#family.value = shape.family;
    this.#schedule.value = shape.schedule;
  }

  /** The preset that the form says, if it says one. */
  #markPreset(): void {
    const shape = JSON.stringify(Object.entries(this.#shape()).sort());
    for (const input of this.#presets.querySelectorAll('input')) {
      input.checked = JSON.stringify(Object.entries(PRESETS[input.value as PresetName]).sort()) === shape;
    }
  }
}

export function choice<T extends string>(names: Readonly<Record<T, string>>): HTMLSelectElement {
  const options = Object.entries(names) as [T, string][];
  return make('select', {}, ...options.map(([value, text]) => make('option', { value }, text)));
}
