// `ModelForm`: the choice of a model and its training: the presets and the form of all settings, which say the same.
// Choosing a preset fills the form; changing the form leaves the presets. A model of the person's own has its shape:
// the form then has the fields of its training alone.

import {
  ALL_LINEAR,
  defaultSettings,
  type Estimate,
  FAMILIES,
  FAMILY_NAMES,
  formatBytes,
  type LoraSettings,
  type RunSettings,
  shapeOf,
} from '../src/browser/index.ts';
import { longDuration, rough, short, whole } from './figures.ts';
import type { OwnModel } from './own-model.ts';
import { byId, choice, make, setText } from './page.ts';
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

/** Beside the presets. */
const OWN = 'own';
/** Of what writes text, and of what reads it. */
const OF_WRITERS: readonly string[] = ['sampleEvery'];
const OF_READERS: readonly string[] = ['context'];
/** What a model of the person's own brings along. */
const OF_SHAPE: readonly string[] = ['family', 'layers', 'width', 'heads', 'kvHeads', 'vocabulary'];
const OF_LORA: readonly string[] = ['rank', 'alpha', 'targets'];

export class ModelForm {
  readonly #presets = byId('presets', HTMLFieldSetElement);
  readonly #note = byId('model-note', HTMLElement);
  readonly #inputs = new Map<Numbers, HTMLInputElement>();
  // Of those that write, as the page shows.
  readonly #family = choice(
    Object.fromEntries(FAMILY_NAMES.flatMap((name) => (FAMILIES[name].writes ? [[name, FAMILIES[name].label]] : []))),
  );
  readonly #schedule = choice({ cosine: 'cosine', linear: 'linear', constant: 'constant' });
  readonly #rank = make('input', { type: 'number', min: '1', step: '1' });
  readonly #alpha = make('input', { type: 'number', min: '0', step: 'any' });
  readonly #targets = make('input', { autocomplete: 'off', spellcheck: false });
  readonly #rows = new Map<string, readonly HTMLElement[]>();
  readonly #own: OwnModel;
  readonly #changed: () => void;

  constructor(own: OwnModel, changed: () => void) {
    this.#own = own;
    this.#changed = changed;
    const fields = byId('fields', HTMLElement);
    const add = (label: string, input: HTMLInputElement | HTMLSelectElement, id: string) => {
      input.id = `field-${id}`;
      const text = make('label', { htmlFor: input.id }, label);
      this.#rows.set(id, [text, input]);
      fields.append(text, input);
    };
    add('Rank of the adapter', this.#rank, 'rank');
    add('Alpha', this.#alpha, 'alpha');
    add('Linears that have one', this.#targets, 'targets');
    add('Family', this.#family, 'family');
    for (const [name, [label, least, rate]] of Object.entries(NUMBERS) as [Numbers, (typeof NUMBERS)[Numbers]][]) {
      const input = make('input', { type: 'number', min: String(least), step: rate ? 'any' : '1' });
      this.#inputs.set(name, input);
      add(label, input, name);
    }
    add('Schedule', this.#schedule, 'schedule');
    this.#fill(PRESETS.tiny);
    this.#showRows();
    this.#presets.addEventListener('change', () => {
      const { value } = this.#presets.querySelector<HTMLInputElement>('input:checked') ?? {};
      if (value === OWN) this.#fillOwn();
      else if (value !== undefined) this.#fill(PRESETS[value as PresetName]);
      this.#showRows();
      changed();
    });
    fields.addEventListener('input', () => {
      this.#markPreset();
      this.#showRows();
      changed();
    });
  }

  /** Whether a model of the person's own is to be trained. */
  get isOwn(): boolean {
    return this.#presets.querySelector<HTMLInputElement>(`input[value=${OWN}]`)?.checked ?? false;
  }

  /** Another one is there: it is what is trained from now on. */
  ownChosen(): void {
    const radio = this.#presets.querySelector<HTMLInputElement>(`input[value=${OWN}]`);
    if (radio) radio.checked = true;
    this.#fillOwn();
    this.#showRows();
    this.#changed();
  }

  /** It is trained in another way: at the rate that suits that. */
  ownChanged(): void {
    const { info } = this.#own;
    if (info) this.#write('lr', this.#own.defaults(info).lr);
    this.#showRows();
    this.#changed();
  }

  /** Errors: an Error that names the field, or the HoldfastError of a shape that makes no model. */
  settings(): RunSettings {
    const shape = this.#shape();
    for (const [name, [label, least, rate]] of Object.entries(NUMBERS) as [Numbers, (typeof NUMBERS)[Numbers]][]) {
      const value = shape[name];
      if ((this.isOwn && OF_SHAPE.includes(name)) || this.#lacks.includes(name)) continue;
      if (rate ? value >= least : Number.isSafeInteger(value) && value >= least) continue;
      throw new Error(`${label} must be a ${rate ? 'number' : 'whole number'} of at least ${least}`);
    }
    return this.isOwn ? this.#ownSettings(shape) : settingsOf(shape);
  }

  get context(): number {
    return this.#shape().context;
  }

  showProblem(message: string): void {
    setText(this.#note, message);
    this.#note.classList.toggle('problem', message !== '');
  }

  /** `isMeasured`: its speed is still to come. */
  showEstimate(estimate: Estimate | undefined, settings?: RunSettings, isMeasured = false): void {
    const fact = (name: string, text: string) => setText(byId(`fact-${name}`, HTMLElement), text);
    fact('parameters', estimate ? whole(estimate.parameters) : '–');
    byId('trained', HTMLElement).hidden = estimate === undefined || estimate.trained === estimate.parameters;
    fact('trained', estimate ? whole(estimate.trained) : '–');
    fact('unlimited', estimate ? formatBytes(estimate.unlimited) : '–');
    fact('smallest', estimate ? formatBytes(estimate.smallest) : '–');
    const speed = estimate?.tokensPerSecond;
    const { batch, seq, accumulate, steps } = settings ?? { batch: 0, seq: 0, accumulate: 0, steps: 0 };
    fact(
      'speed',
      speed
        ? `${speed.from === 'run' ? short(speed.value) : `about ${rough(speed.value)}`} tokens/s`
        : isMeasured
          ? 'measuring …'
          : '–',
    );
    fact('time', speed ? `about ${longDuration((steps * batch * seq * accumulate) / speed.value)}` : '–');
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

  #write(name: Numbers, value: number): void {
    const input = this.#inputs.get(name);
    if (input) input.value = String(value);
  }

  /** The fields of its training, as they suit it; nothing where there is none yet. */
  #fillOwn(): void {
    const { info } = this.#own;
    if (!info) return;
    const { seq, ...settings } = this.#own.defaults(info);
    this.#fill({ ...PRESETS.tiny, ...settings, context: seq });
    const { rank, alpha, targets } = this.#own.lora;
    for (const [input, value] of [
      [this.#rank, rank],
      [this.#alpha, alpha],
      [this.#targets, targets.join(', ')],
    ] as const) {
      input.value = String(value);
      // What goes on from an adapter is of its shape.
      input.disabled = info.adapter !== undefined;
    }
  }

  /** Fields that say nothing of the model. */
  get #lacks(): readonly string[] {
    if (!this.isOwn) return FAMILIES[this.#family.value as Shape['family']].groupedHeads ? [] : ['kvHeads'];
    const config = this.#own.info?.config;
    return [
      ...(config && !FAMILIES[config.model_type].writes ? OF_WRITERS : []),
      ...(config && shapeOf(config).vocabulary === 0 ? OF_READERS : []),
    ];
  }

  #showRows(): void {
    const own = this.isOwn;
    this.#own.show(own);
    const lacks = this.#lacks;
    for (const [name, row] of this.#rows) {
      const hidden = own
        ? lacks.includes(name) || OF_SHAPE.includes(name) || (OF_LORA.includes(name) && this.#own.way !== 'lora')
        : lacks.includes(name) || OF_LORA.includes(name);
      for (const element of row) element.hidden = hidden;
    }
  }

  #ownSettings({ context, family: _, layers: _l, width: _w, heads: _h, kvHeads: _k, vocabulary: _v, ...rest }: Shape) {
    const { info, way } = this.#own;
    if (!info) throw new Error('There is no model yet: drop its folder, or choose it.');
    const { config, from, images } = info;
    const lora: LoraSettings = {
      ...this.#own.lora,
      rank: this.#rank.valueAsNumber,
      alpha: this.#alpha.valueAsNumber,
      targets: this.#targets.value
        .split(',')
        .map((name) => name.trim())
        .filter((name) => name !== ''),
    };
    if (lora.targets.length === 0) lora.targets = [ALL_LINEAR];
    if (way === 'lora' && !(Number.isSafeInteger(lora.rank) && lora.rank > 0))
      throw new Error('Rank of the adapter must be a whole number of at least 1');
    if (way === 'lora' && !(lora.alpha > 0)) throw new Error('Alpha must be a number above 0');
    return defaultSettings({
      ...{ ...rest, config, seq: context },
      ...(from !== undefined && { from }),
      ...(images && { images }),
      ...(way === 'lora' && { lora }),
    });
  }

  /** The preset that the form says, if it says one. */
  #markPreset(): void {
    if (this.isOwn) return;
    const shape = JSON.stringify(Object.entries(this.#shape()).sort());
    for (const input of this.#presets.querySelectorAll('input')) {
      if (input.value === OWN) continue;
      input.checked = JSON.stringify(Object.entries(PRESETS[input.value as PresetName]).sort()) === shape;
    }
  }
}
