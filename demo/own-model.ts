// A model of the person's own beside the presets: dropped, chosen, named on the hub, or kept here already. It is looked into at once and said
// what it is; its weights are read, and kept in the site, when it is trained. What cannot be used is said in one line, and
// what was chosen before stays.

import {
  ALL_LINEAR,
  type ChosenFile,
  type DiskRoom,
  type Estimate,
  FAMILIES,
  fineTuningSettings,
  formatBytes,
  type Holdfast,
  type LoraSettings,
  type MemorySettings,
  type ModelFiles,
  type ModelInfo,
  messageOf,
  type RunInfo,
  type RunSettings,
  shapeOf,
} from '../src/browser/index.ts';
import { short, whole } from './figures.ts';
import { byId, setText } from './page.ts';
import { verdictOn } from './verdict.ts';

type Trainer = Holdfast['trainer'];

/** Whether a low-rank update of it is trained, or all of it. */
export type Way = 'lora' | 'all';

/** A sequence is no longer, unless the form says so. */
const LONGEST = 256;
const RANK = 16;
const PACE = { steps: 200, warmup: 10, evalEvery: 50, sampleEvery: 50, saveEvery: 50 };

export class OwnModel {
  readonly #trainer: () => Promise<Trainer>;
  readonly #chosen: () => void;
  readonly #panel = byId('own', HTMLElement);
  readonly #hint = byId('own-hint', HTMLElement);
  readonly #facts = byId('own-facts', HTMLElement);
  readonly #name = byId('own-name', HTMLElement);
  readonly #note = byId('own-note', HTMLElement);
  readonly #ways = byId('own-ways', HTMLFieldSetElement);
  readonly #verdict = byId('own-verdict', HTMLElement);
  /** What it was brought as; of one that is kept here, no files. */
  #files: ModelFiles = [];
  #info: ModelInfo | undefined;
  /** The run that it is kept as. */
  #kept: string | undefined;
  #looks = 0;
  /** Whether the note is on what it takes to keep it. */
  #saysRoom = false;

  /** `chosen`: another model is there; `changed`: it is trained in another way. */
  constructor(trainer: () => Promise<Trainer>, chosen: () => void, changed: () => void) {
    this.#trainer = trainer;
    this.#chosen = chosen;
    for (const id of ['own-folder', 'own-files']) {
      const input = byId(id, HTMLInputElement);
      input.addEventListener('change', () => {
        const files = [...(input.files ?? [])].map((file) => ({ path: file.webkitRelativePath || file.name, file }));
        input.value = '';
        if (files.length > 0) void this.take(files);
      });
    }
    byId('own-hub', HTMLFormElement).addEventListener('submit', (event) => {
      event.preventDefault();
      const hub = byId('own-hub-name', HTMLInputElement).value.trim();
      // Kept by this page alone, until it is closed.
      const token = byId('own-hub-token', HTMLInputElement).value.trim();
      if (hub !== '') void this.#inspect({ hub, ...(token !== '' && { token }) });
    });
    this.#ways.addEventListener('change', changed);
  }

  get info(): ModelInfo | undefined {
    return this.#info;
  }

  get way(): Way {
    return (this.#ways.querySelector<HTMLInputElement>('input:checked')?.value ?? 'lora') as Way;
  }

  show(visible: boolean): void {
    this.#panel.hidden = !visible;
  }

  /** Whether a run of it fits; nothing without an estimate. */
  showVerdict(estimate?: Estimate, memory: MemorySettings = {}, settings?: RunSettings): void {
    const info = this.#info;
    this.#verdict.hidden = !estimate || !settings || !info;
    if (!estimate || !settings || !info) return;
    if (this.#saysRoom) this.#sayRoom(info, estimate.room);
    const toKeep = info.from === undefined ? info.bytes : 0;
    const { fits, text } = verdictOn(estimate, memory, {
      ...settings,
      ...{ toKeep, reads: shapeOf(info.config).vocabulary > 0 },
    });
    setText(this.#verdict, text);
    this.#verdict.classList.toggle('problem', !fits);
  }

  /** Takes files that were dropped or chosen; an adapter alone goes with the model that is there. */
  async take(files: readonly ChosenFile[]): Promise<void> {
    const names = files.map(({ file }) => file.name);
    const isAdapter =
      (names.includes('adapter_config.json') && !names.includes('config.json')) || (await this.isAdapterZip(files));
    const beside = isAdapter && !('hub' in this.#files) ? this.#files : [];
    await this.#inspect([...beside, ...files]);
  }

  /** Whether it is one zip with an adapter alone: one that cannot be read is none, and says so when it is taken. */
  async isAdapterZip(files: readonly ChosenFile[]): Promise<boolean> {
    const [zip, ...others] = files;
    if (!zip || others.length > 0) return false;
    return this.#trainer()
      .then((trainer) => trainer.isAdapterZip(zip.file))
      .catch(() => false);
  }

  /** Takes a model, or the end of a run, that is kept here. */
  async use(run: RunInfo): Promise<void> {
    await this.#inspect(run.id);
  }

  /**
   * The model, kept here; where another was chosen meanwhile, that one stays. Errors: an Error without a model;
   * HoldfastError where there is no room, or a file is damaged.
   */
  async keep(): Promise<ModelInfo> {
    const [info, files, kept] = [this.#info, this.#files, this.#kept];
    if (!info) throw new Error('There is no model yet: drop its folder, or choose it.');
    const trainer = await this.#trainer();
    if ((await trainer.runs()).some(({ id }) => id === kept)) return info;
    if (!('hub' in files) && files.length === 0)
      throw new Error(`“${info.name}” is not here any more: bring it again.`);
    const word = 'hub' in files ? 'Fetching' : 'Keeping';
    const progress = (done: number, total: number) => {
      if (this.#info === info) this.#say(`${word} ${info.name}: ${formatBytes(done)} of ${formatBytes(total)}`);
    };
    try {
      const { id } = await trainer.importModel(files, info.name, progress);
      const found = await trainer.inspectModel(id);
      if (this.#info !== info) return found;
      this.#info = found;
      this.#kept = id;
      await this.#describe(found, trainer);
      return found;
    } catch (error) {
      const { room } = await trainer.environment();
      if (this.#info === info) this.#sayRoom(info, room);
      throw error;
    }
  }

  /** What suits it, by the library's defaults of fine-tuning. */
  defaults({ config }: ModelInfo): RunSettings {
    const { lora, way } = this;
    return fineTuningSettings({
      // An image is as long as its patches say.
      ...(shapeOf(config).vocabulary > 0 && { seq: Math.min(shapeOf(config).context, LONGEST) }),
      ...{ config, ...PACE, evalWindows: FAMILIES[config.model_type].writes ? 16 : 64 },
      ...(way === 'lora' && { lora }),
    });
  }

  /** An adapter that came along is gone on with: its numbers stay. The model beside it lies in memory as in its files. */
  get lora(): LoraSettings {
    const { adapter } = this.#info ?? {};
    const begun = { rank: RANK, alpha: 2 * RANK, targets: [ALL_LINEAR], dropout: 0, rslora: false };
    return adapter ?? begun;
  }

  /** What goes wrong is shown here; where that cannot be seen, it is an error. */
  async #inspect(source: ModelFiles | string): Promise<void> {
    const look = ++this.#looks;
    this.#say(
      typeof source === 'object' && 'hub' in source ? `Asking the hub for ${source.hub} …` : 'Looking into it …',
    );
    try {
      const trainer = await this.#trainer();
      const info = await trainer.inspectModel(source);
      if (look !== this.#looks) return;
      this.#files = typeof source === 'string' ? [] : source;
      this.#kept = typeof source === 'string' ? source : undefined;
      this.#info = info;
      await this.#describe(info, trainer);
      const [lora] = this.#ways.querySelectorAll('input');
      if (info.adapter && lora) lora.checked = true;
      this.showVerdict();
      this.#chosen();
    } catch (error) {
      if (look !== this.#looks) return;
      this.#say(messageOf(error), true);
      if (this.#panel.hidden) throw error;
    }
  }

  async #describe(info: ModelInfo, trainer: Trainer): Promise<void> {
    const { name, config, parameters, tokens, chats, adapter, classes, dropout } = info;
    // First: what is shown of it is then shown at once, the fields of its training with it.
    const { room } = await trainer.environment();
    const { layers, width } = shapeOf(config);
    setText(this.#name, name);
    setText(byId('own-kind', HTMLElement), `${short(parameters)} parameters`);
    const parts = [
      `${FAMILIES[config.model_type].label} ${layers} × ${width}`,
      shapeOf(config).vocabulary === 0
        ? 'looks at images'
        : tokens === undefined
          ? 'bytes as tokens'
          : `${whole(tokens)} tokens of its own`,
      ...(classes === undefined ? [] : [`${whole(classes)} classes`]),
      ...(chats ? ['chat template'] : []),
      ...(adapter ? [`adapter of rank ${adapter.rank}`] : []),
      ...(dropout ? [`dropout: none; its config.json has ${dropout.join(', ')}`] : []),
    ];
    setText(this.#facts, parts.join(' · '));
    this.#hint.hidden = true;
    this.#facts.hidden = false;
    this.#ways.hidden = false;
    this.#sayRoom(info, room);
  }

  #sayRoom({ bytes, from }: ModelInfo, room: DiskRoom): void {
    const free = Math.max(0, room.quota - room.used);
    if (from !== undefined) this.#say(`${formatBytes(bytes)}, kept here.`);
    else if (bytes <= free) this.#say(`${formatBytes(bytes)} to keep here; ${formatBytes(free)} are free.`);
    else
      this.#say(
        `${formatBytes(bytes)} to keep here, and this site may keep ${formatBytes(free)} more: remove runs, or make room.`,
        true,
      );
    this.#saysRoom = true;
  }

  #say(text: string, problem = false): void {
    this.#saysRoom = false;
    this.#note.hidden = false;
    setText(this.#note, text);
    this.#note.classList.toggle('problem', problem);
  }
}
