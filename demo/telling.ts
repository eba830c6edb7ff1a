// `Telling`: a text for a model that tells texts apart: typed, and under it the classes that the run which is shown takes it
// for. Pictures are Seeing's, text that is written is Writing's.

import { type Holdfast, labelsIn, messageOf, type RunInfo, shapeOf } from '../src/browser/index.ts';
import { showGuesses } from './guesses.ts';
import { byId, setText, setUsable } from './page.ts';

type Trainer = Holdfast['trainer'];

/** Whether the model of a run tells texts apart. */
const tellsTexts = (run: RunInfo | undefined): boolean => {
  const config = run?.settings?.config;
  return config !== undefined && labelsIn(config) !== undefined && shapeOf(config).vocabulary > 0;
};

export class Telling {
  readonly #trainer: () => Trainer | undefined;
  readonly #panel = byId('telling', HTMLElement);
  readonly #text = byId('telling-text', HTMLTextAreaElement);
  readonly #tell = byId('tell', HTMLButtonElement);
  readonly #note = byId('telling-note', HTMLElement);
  readonly #guesses = byId('classes', HTMLElement);
  readonly #hint = this.#note.textContent ?? '';
  #run: RunInfo | undefined;
  #training = false;
  /** Counts texts and runs: what is told of an earlier one is not shown. */
  #version = 0;
  #telling = false;

  constructor(trainer: () => Trainer | undefined) {
    this.#trainer = trainer;
    byId('tell-form', HTMLFormElement).addEventListener('submit', (event) => {
      event.preventDefault();
      void this.#ask();
    });
    this.#text.addEventListener('input', () => this.#clear());
    this.#text.addEventListener('keydown', (event) => {
      // Shift, or a key of an input method, writes a line.
      if (event.key !== 'Enter' || event.shiftKey || event.isComposing) return;
      event.preventDefault();
      void this.#ask();
    });
  }

  /** The run that is asked; hidden where it tells no texts apart, and not asked while one trains. */
  show(run: RunInfo | undefined, training: boolean): void {
    this.#panel.hidden = !tellsTexts(run);
    if (run?.id === this.#run?.id && run?.savedStep === this.#run?.savedStep && training === this.#training) return;
    this.#run = run;
    this.#training = training;
    this.#clear();
  }

  #clear(): void {
    this.#version++;
    this.#say(this.#hint);
    showGuesses(this.#guesses, []);
  }

  async #ask(): Promise<void> {
    const [trainer, run, text] = [this.#trainer(), this.#run, this.#text.value];
    if (!trainer || !run || this.#telling) return;
    if (this.#training) return this.#say('It trains: stop it, or wait until it is done, and ask again.', true);
    if (text.trim() === '') return this.#say('There is no text yet: write one.', true);
    this.#telling = true;
    setUsable(this.#tell, false);
    const version = this.#version;
    try {
      const guesses = await trainer.classify(run.id, text);
      if (version === this.#version) {
        const [first] = guesses;
        this.#say(`“${first?.name}” is the likeliest of ${guesses.length} classes.`);
        showGuesses(this.#guesses, guesses);
      }
    } catch (error) {
      if (version === this.#version) this.#say(messageOf(error), true);
    }
    this.#telling = false;
    setUsable(this.#tell, true);
  }

  #say(note: string, isProblem = false): void {
    setText(this.#note, note);
    this.#note.classList.toggle('problem', isProblem);
  }
}
