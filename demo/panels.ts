// `Panels`: which of the panels of a model's word is there for the run that is shown: what it writes, sees or tells. Its settings
// say what its model is; of weights that were brought alone the worker does, and what was shown before stays until then.

import { FAMILIES, type Holdfast, labelsIn, type RunInfo, shapeOf, type Voice } from '../src/browser/index.ts';
import { byId } from './page.ts';
import type { Seeing } from './seeing.ts';
import type { Telling } from './telling.ts';

type Talent = Pick<Voice, 'writes' | 'tells'>;

const WRITES: Talent = { writes: true };

export class Panels {
  readonly #trainer: () => Holdfast['trainer'] | undefined;
  readonly #seeing: Pick<Seeing, 'show'>;
  readonly #telling: Pick<Telling, 'show'>;
  readonly #writing = byId('writing', HTMLElement);
  #run: RunInfo | undefined;
  #training = false;
  /** Of the run that was asked last. */
  #asked: string | undefined;
  #heard = WRITES;

  constructor(
    trainer: () => Holdfast['trainer'] | undefined,
    seeing: Pick<Seeing, 'show'>,
    telling: Pick<Telling, 'show'>,
  ) {
    this.#trainer = trainer;
    this.#seeing = seeing;
    this.#telling = telling;
  }

  /** Another run, or the same with other weights. */
  show(run: RunInfo | undefined, training: boolean): void {
    this.#run = run;
    this.#training = training;
    const needsAsking = run !== undefined && !run.settings && run.status !== 'damaged';
    if (needsAsking && run.id !== this.#asked) void this.#ask(run.id);
    if (!needsAsking) {
      this.#asked = undefined;
      this.#heard = talentOf(run);
    }
    this.#apply();
  }

  async #ask(id: string): Promise<void> {
    this.#asked = id;
    const heard = await this.#trainer()
      ?.voiceOf(id)
      .catch(() => WRITES);
    if (id !== this.#asked || !heard) return;
    this.#heard = heard;
    this.#apply();
  }

  #apply(): void {
    const { writes, tells } = this.#heard;
    this.#writing.hidden = !writes;
    this.#seeing.show(tells === 'images' ? this.#run : undefined, this.#training);
    this.#telling.show(tells === 'texts' ? this.#run : undefined, this.#training);
  }
}

/** Of a run whose settings say it; where there is none, the panel of what a model writes is there. */
function talentOf(run: RunInfo | undefined): Talent {
  const config = run?.settings?.config;
  if (!config) return WRITES;
  const { writes } = FAMILIES[config.model_type];
  if (!labelsIn(config)) return { writes };
  return { writes, tells: shapeOf(config).vocabulary > 0 ? 'texts' : 'images' };
}
