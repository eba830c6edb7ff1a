// What a model writes: the samples of its training, texts that are asked for, and what it expects after a prompt.

import { type Candidate, callback, type Holdfast, messageOf } from '../src/browser/index.ts';
import type { RunCurves } from './curve-data.ts';
import { whole } from './figures.ts';
import { byId, make, setText } from './page.ts';

const CANDIDATES = 8;
/** Between two looks at what comes next, while a run trains: each costs it a moment. */
const LOOK_MS = 2000;
/** A look that cannot be yet is tried again, so often at most. */
const AGAIN_MS = 100;

export class Writing {
  readonly #trainer: () => Holdfast['trainer'] | undefined;
  readonly #sample = byId('sample', HTMLElement);
  readonly #title = byId('sample-title', HTMLElement);
  readonly #earlier = byId('sample-earlier', HTMLButtonElement);
  readonly #later = byId('sample-later', HTMLButtonElement);
  readonly #write = byId('write', HTMLButtonElement);
  readonly #prompt = byId('prompt', HTMLInputElement);
  readonly #temperature = byId('temperature', HTMLInputElement);
  readonly #length = byId('length', HTMLInputElement);
  readonly #next = byId('next', HTMLElement);
  readonly #nextPrompt = byId('next-prompt', HTMLElement);
  readonly #nothing = this.#sample.cloneNode(true).childNodes;
  #run: string | undefined;
  #curves: RunCurves | undefined;
  /** Which sample is shown: of the run's, or the newest. */
  #at: number | 'newest' = 'newest';
  /** A text that was asked for is shown instead. */
  #own = false;
  #writing = false;
  #inView = false;
  #looked = Number.NEGATIVE_INFINITY;
  #looking = false;
  #again: ReturnType<typeof setTimeout> | undefined;

  constructor(trainer: () => Holdfast['trainer'] | undefined) {
    this.#trainer = trainer;
    byId('write-form', HTMLFormElement).addEventListener('submit', (event) => {
      event.preventDefault();
      void this.#writeText();
    });
    this.#earlier.addEventListener('click', () => this.#turn(-1));
    this.#later.addEventListener('click', () => this.#turn(1));
    this.#prompt.addEventListener('input', () => this.#lookAnew());
    for (let i = 0; i < CANDIDATES; i++) {
      const bar = make('span', { className: 'bar' });
      this.#next.append(
        make('li', {}, make('code', {}, '–'), make('span', { className: 'track' }, bar), make('output')),
      );
    }
    new IntersectionObserver((entries) => {
      this.#inView = entries.at(-1)?.isIntersecting ?? false;
      this.look();
    }).observe(this.#next);
  }

  /** Another run, or the same with more samples. */
  show(run: string | undefined, curves: RunCurves): void {
    if (run !== this.#run) {
      this.#run = run;
      this.#own = false;
      this.#at = 'newest';
      this.#showNext([]);
      this.#lookAnew();
    }
    this.#curves = curves;
    this.#write.disabled = run === undefined || this.#writing;
    this.#showSample();
    this.look();
  }

  /** Looks at what comes next, if somebody sees it: now, or once the last look is a while ago and nothing is written. */
  look(): void {
    const [trainer, run, prompt] = [this.#trainer(), this.#run, this.#prompt.value];
    if (!trainer || !run || !this.#inView) return;
    const wait = this.#looked + LOOK_MS - performance.now();
    if (this.#looking || this.#writing || wait > 0) {
      this.#again ??= setTimeout(
        () => {
          this.#again = undefined;
          this.look();
        },
        Math.max(AGAIN_MS, wait),
      );
      return;
    }
    this.#looking = true;
    this.#looked = performance.now();
    const asked = prompt === '' ? '\n' : prompt;
    trainer
      .next(run, asked, CANDIDATES)
      .then((candidates) => {
        if (run !== this.#run) return;
        setText(this.#nextPrompt, prompt);
        this.#showNext(candidates);
      })
      // A run without a checkpoint, or one that has just ended: there will be another look.
      .catch(() => {})
      .finally(() => {
        this.#looking = false;
      });
  }

  /** As soon as can be: what was looked at is another prompt's, or another run's. */
  #lookAnew(): void {
    clearTimeout(this.#again);
    this.#again = undefined;
    this.#looked = Number.NEGATIVE_INFINITY;
    this.look();
  }

  async #writeText(): Promise<void> {
    const [trainer, run] = [this.#trainer(), this.#run];
    if (!trainer || !run || this.#writing) return;
    this.#writing = true;
    this.#own = true;
    this.#write.disabled = true;
    const prompt = this.#prompt.value === '' ? '\n' : this.#prompt.value;
    const text = document.createTextNode('');
    this.#sample.replaceChildren(make('b', {}, prompt), text);
    setText(this.#title, 'writing …');
    const request = {
      prompt,
      tokens: this.#length.valueAsNumber || 200,
      temperature: Number.isFinite(this.#temperature.valueAsNumber) ? this.#temperature.valueAsNumber : 0.7,
      seed: 1 + Math.floor(Math.random() * 2 ** 31),
    };
    try {
      await trainer.sample(
        run,
        request,
        callback((piece: string) => {
          text.appendData(piece);
          this.#sample.scrollTop = this.#sample.scrollHeight;
        }),
      );
      setText(this.#title, `asked for, at temperature ${request.temperature}`);
    } catch (error) {
      setText(this.#title, messageOf(error));
    }
    this.#writing = false;
    this.#write.disabled = this.#run === undefined;
  }

  #turn(by: number): void {
    const samples = this.#curves?.samples ?? [];
    const at = this.#at === 'newest' || this.#own ? samples.length - (this.#own && by < 0 ? 0 : 1) : this.#at;
    this.#own = false;
    this.#at = Math.min(samples.length - 1, Math.max(0, at + by));
    if (this.#at === samples.length - 1) this.#at = 'newest';
    this.#showSample();
  }

  #showSample(): void {
    const samples = this.#curves?.samples ?? [];
    const index = this.#at === 'newest' ? samples.length - 1 : this.#at;
    const sample = samples[index];
    this.#earlier.disabled = samples.length === 0 || (!this.#own && index === 0);
    this.#later.disabled = samples.length === 0 || (!this.#own && index === samples.length - 1);
    if (this.#own) return;
    setText(this.#title, sample ? `after ${whole(sample.step)} steps` : 'no sample yet');
    if (sample) setText(this.#sample, sample.text);
    else this.#sample.replaceChildren(...[...this.#nothing].map((node) => node.cloneNode(true)));
  }

  #showNext(candidates: readonly Candidate[]): void {
    [...this.#next.children].forEach((row, i) => {
      const [code, track, output] = row.children as unknown as [HTMLElement, HTMLElement, HTMLElement];
      const candidate = candidates[i];
      setText(code, candidate ? shown(candidate.text) : '–');
      setText(output, candidate ? `${(100 * candidate.probability).toFixed(1)} %` : '');
      (track.firstElementChild as HTMLElement).style.transform = `scaleX(${candidate?.probability ?? 0})`;
    });
  }
}

const shown = (text: string): string => (text === ' ' ? 'space' : text);
