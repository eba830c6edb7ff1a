// `Telling`: a text for a model that tells texts apart, or two of a pair: typed, and under them the classes that the run which is shown
// takes them for. Pictures are Seeing's, text that is written is Writing's.

import { type Holdfast, messageOf, type RunInfo } from '../src/browser/index.ts';
import { showGuesses } from './guesses.ts';
import { byId, setText, setUsable } from './page.ts';

type Trainer = Holdfast['trainer'];

const HINT = 'Write a text: these are the classes that it is taken for.';
/** By whether the run learned pairs. */
const HINTS = new Map<boolean | undefined, string>([
  [false, HINT],
  [true, 'Write two texts, as it learned them: these are the classes that the pair is taken for.'],
  [undefined, `${HINT} A model that learned pairs needs the second one, too.`],
]);

export class Telling {
  readonly #trainer: () => Trainer | undefined;
  readonly #panel = byId('telling', HTMLElement);
  readonly #text = byId('telling-text', HTMLTextAreaElement);
  readonly #pair = byId('telling-pair', HTMLTextAreaElement);
  readonly #pairLabel = byId('telling-pair-label', HTMLElement);
  readonly #tell = byId('tell', HTMLButtonElement);
  readonly #note = byId('telling-note', HTMLElement);
  readonly #guesses = byId('classes', HTMLElement);
  #run: RunInfo | undefined;
  /** Whether the run learned pairs; undefined where nothing says so. */
  #pairs: boolean | undefined = false;
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
    for (const field of [this.#text, this.#pair]) {
      field.addEventListener('input', () => this.#clear());
      field.addEventListener('keydown', (event) => {
        // Shift, or a key of an input method, writes a line.
        if (event.key !== 'Enter' || event.shiftKey || event.isComposing) return;
        event.preventDefault();
        void this.#ask();
      });
    }
  }

  /** The run that is asked; undefined: hidden, none tells texts apart. It is not asked while one trains. */
  show(run: RunInfo | undefined, training: boolean): void {
    this.#panel.hidden = run === undefined;
    const { id, savedStep } = this.#run ?? {};
    if (run?.id === id && run?.savedStep === savedStep && training === this.#training) return;
    this.#run = run;
    this.#training = training;
    if (run && run.id !== id) void this.#hear(run.id);
    this.#clear();
  }

  /** Hears whether a run learned pairs: of one that did not, a second text is not asked for. */
  async #hear(id: string): Promise<void> {
    this.#showPair(false);
    const voice = await this.#trainer()
      ?.voiceOf(id)
      .catch(() => undefined);
    if (id !== this.#run?.id) return;
    this.#showPair(voice?.pairs);
    this.#clear();
  }

  #showPair(pairs: boolean | undefined): void {
    this.#pairs = pairs;
    this.#pairLabel.hidden = pairs === false;
  }

  #clear(): void {
    this.#version++;
    this.#say(HINTS.get(this.#pairs) ?? HINT);
    showGuesses(this.#guesses, []);
  }

  async #ask(): Promise<void> {
    const [trainer, run, text] = [this.#trainer(), this.#run, this.#text.value];
    if (!trainer || !run || this.#telling) return;
    if (this.#training) return this.#say('It trains: stop it, or wait until it is done, and ask again.', true);
    if (text.trim() === '') return this.#say('There is no text yet: write one.', true);
    const second = this.#pairs === false ? '' : this.#pair.value;
    if (this.#pairs && second.trim() === '')
      return this.#say('It learned pairs of texts: write the second one, too.', true);
    this.#telling = true;
    setUsable(this.#tell, false);
    const version = this.#version;
    try {
      const guesses = await trainer.classify(run.id, second.trim() === '' ? text : [text, second]);
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
