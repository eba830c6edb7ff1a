// `MemoryView`: the memory at work: each recorded step plays as a film in which every chunk is a cell that moves
// between the GPU, host memory and disk, over a timeline that can be scrubbed; beside it what moved, against the least
// that can be.
//
// This file is the conductor: it has the clock, the controls and what is shown next. demo/memory/ draws and works out.
// It shows what the executor recorded and invents nothing.

import './memory-view.css';
import {
  type ActivationPolicyFigures,
  type ChunkHistory,
  drawing,
  type PolicyComparison,
  type PolicyName,
  type StepPicture,
} from '../src/browser/index.ts';
import type { Motion } from './memory/cells.ts';
import { Figures, type MemoryEvent } from './memory/figures.ts';
import { Film } from './memory/film.ts';
import { FrameMeter } from './memory/frame-meter.ts';
import { Legend } from './memory/legend.ts';
import { Playback, speedWords } from './memory/playback.ts';
import { Stage } from './memory/stage.ts';
import { Timeline } from './memory/timeline.ts';
import { contentWords, momentWords, nextUse, summary } from './memory/words.ts';
import { button, make, setText } from './page.ts';

/** Of the rings around what is in use. */
const PULSE_PERIOD = 900;
const FITS = 'Everything fits on the GPU: nothing moves. Drag the budget down.';
const OTHER_BUDGET = 'This step was within another budget. The next one within the new budget takes its place.';
const HINT = 'Point at a cell, or tap it: what becomes of it in the step shows here.';
const WAITING = 'Every square will be one chunk of the model’s memory. They move once a run trains within a budget.';

/** At once. */
const NOW: Motion = { time: 0, milliseconds: 0 };

/** Before the first picture: empty shelves. */
const EMPTY: ChunkHistory = {
  chunkBytes: 0,
  tensors: [],
  lists: (['parameter', 'gradient', 'moment1', 'moment2'] as const).map((kind, i) => ({
    kind,
    first: 12 * i,
    chunks: 12,
  })),
  phases: [],
  operators: [0],
  labels: [''],
  chunks: Array.from({ length: 48 }, () => [0, 1]),
  staged: [0, 1],
  slots: 12,
  staging: 4,
  stagingBytes: 0,
  activations: { tensors: [], codes: [], working: [] },
  activationBytes: 0,
  otherBytes: 0,
};

export class MemoryView {
  readonly #host: HTMLElement;
  readonly #stage = new Stage(() => this.#mark());
  readonly #timeline = new Timeline((moment) => this.#scrub(moment));
  readonly #legend = new Legend();
  readonly #figures = new Figures();
  readonly #playback = new Playback<StepPicture>();
  readonly #meter = new FrameMeter();
  readonly #play = button('Pause', 'Pause or play the step', () => this.#toggle());
  readonly #live = button('Live', 'Follow the newest step', () => this.#goLive());
  readonly #step = make('span', { className: 'step' });
  readonly #now = make('span', { className: 'now' });
  readonly #reading = make('p', { className: 'reading' });
  readonly #summary = make('p', { className: 'hidden-text' });
  readonly #still = matchMedia('(prefers-reduced-motion: reduce)');
  #colors: drawing.Colors;
  #width = 0;
  #film = new Film(EMPTY);
  #inView = true;
  #frame = 0;
  #last = 0;
  #wanted: (() => void)[] = [];
  /** In force, in bytes of GPU memory. */
  #budget: number | undefined;

  constructor(host: HTMLElement) {
    this.#host = host;
    this.#colors = drawing.readColors(host);
    host.classList.add('memory-view');
    const controls = make('div', { className: 'controls' }, this.#play, this.#live, this.#step, this.#now);
    this.#summary.id = 'memory-view-summary';
    this.#stage.element.setAttribute('aria-describedby', this.#summary.id);
    this.#stage.element.ariaLabel = 'Chunks and activations: left and right arrow keys mark one, Escape none';
    host.append(
      this.#stage.element,
      controls,
      this.#timeline.element,
      this.#reading,
      this.#legend.element,
      this.#figures.element,
      this.#summary,
    );
    this.#timeline.element.addEventListener('keydown', (event) => {
      if (event.key !== ' ') return;
      event.preventDefault();
      this.#toggle();
    });
    new ResizeObserver(() => this.#resize()).observe(this.#stage.element);
    new IntersectionObserver((entries) => {
      this.#inView = entries.at(-1)?.isIntersecting ?? true;
      this.#wake();
    }).observe(host);
    matchMedia('(prefers-color-scheme: dark)').addEventListener('change', () => this.#restyle());
    this.#restyle();
  }

  /** Called with a policy whose name was pressed among those compared. */
  set onPolicy(listener: ((name: PolicyName) => void) | undefined) {
    this.#figures.onPolicy = listener;
  }

  /** Of the last two seconds in which something moved. */
  get framesPerSecond(): number {
    return this.#meter.framesPerSecond;
  }

  /** Resolves when another picture would be looked at soon: the view is in sight, and does not stand still. */
  wanted(): Promise<void> {
    return new Promise((resolve) => {
      this.#wanted.push(resolve);
      this.#wake();
    });
  }

  /** The newest recorded step. It plays when the one before has been seen to its end. */
  show(picture: StepPicture): void {
    if (this.#playback.offer(picture) === 'at once') this.#next();
    this.#buttons();
    this.#wake();
  }

  live(event: MemoryEvent): void {
    this.#figures.live(event);
  }

  /** The budget that is in force: a step within another one is told as such, and not seen to its end before the next. */
  within(budget: number | undefined): void {
    if (budget === this.#budget) return;
    this.#budget = budget;
    this.#lay(false);
  }

  get #isOutdated(): boolean {
    const { picture } = this.#playback;
    return picture !== undefined && picture.budget !== this.#budget;
  }

  compare(comparison: PolicyComparison | undefined): void {
    this.#figures.compare(comparison);
  }

  compareActivations(policies: readonly ActivationPolicyFigures[] | undefined): void {
    this.#figures.compareActivations(policies);
  }

  /** Back to empty shelves. */
  clear(): void {
    this.#playback.clear();
    this.#film = new Film(EMPTY);
    this.#figures.clear();
    setText(this.#summary, '');
    this.#lay(false);
    this.#buttons();
  }

  // ---- What is shown --------------------------------------------------------------------------------------

  /** The newest picture begins. */
  #next(): void {
    const { picture } = this.#playback.begin() ? this.#playback : {};
    if (!picture) return;
    this.#film = new Film(picture.history, this.#film);
    this.#figures.show(picture);
    setText(this.#summary, summary(picture, this.#film));
    this.#lay(true);
  }

  /** Lays the film out anew: another film, another width, other colours. */
  #lay(glide: boolean): void {
    if (this.#width === 0) return;
    const { risen, history } = this.#film;
    const { moved, again } = drawing.activationShares(history);
    const moves = risen.some((count) => count > 0) || moved.count + again.count > 0;
    const note = this.#playback.picture ? (moves ? '' : FITS) : WAITING;
    const shown = this.#isOutdated ? OTHER_BUDGET : note;
    this.#stage.show(this.#film, this.#width, this.#colors, shown, glide ? this.#motion() : NOW);
    this.#drawTimeline();
    this.#tell();
    this.#wake();
  }

  #mark(): void {
    this.#drawTimeline();
    this.#tell();
  }

  #drawTimeline(): void {
    const { gutter, marked } = this.#stage;
    const film = this.#playback.picture && this.#film;
    this.#timeline.draw(film, this.#playback.picture?.budget, this.#colors, this.#width, gutter, marked);
    this.#timeline.show(this.#film.at);
    this.#wake();
  }

  #resize(): void {
    const width = Math.floor(this.#stage.element.clientWidth);
    if (width === this.#width) return;
    this.#width = width;
    this.#lay(false);
  }

  #restyle(): void {
    this.#colors = drawing.readColors(this.#host);
    this.#legend.draw(this.#colors);
    this.#lay(false);
    this.#buttons();
  }

  #tell(): void {
    const { at } = this.#film;
    const { marked } = this.#stage;
    const about = this.#playback.picture && marked !== undefined;
    setText(this.#reading, about ? `${nextUse(this.#film, marked)} ${contentWords(this.#film, marked)}` : HINT);
    if (!this.#playback.picture) {
      setText(this.#step, '');
      setText(this.#now, '');
      return;
    }
    const { step, milliseconds } = this.#playback.picture;
    setText(this.#step, `step ${step + 1}, ${speedWords(this.#film.moments, milliseconds)}`);
    setText(this.#now, momentWords(this.#film, at));
    // A slider that speaks while it plays cannot be listened to.
    this.#timeline.show(at, this.#playback.playing ? undefined : momentWords(this.#film, at));
  }

  // ---- Controls -------------------------------------------------------------------------------------------

  #toggle(): void {
    const { playing, atEnd } = this.#playback;
    this.#playback.playing = !playing;
    if (playing) this.#stage.recall(this.#motion());
    if (!playing && atEnd) {
      this.#go(0);
      this.#next();
    }
    this.#buttons();
    this.#tell();
    this.#wake();
  }

  #goLive(): void {
    this.#playback.playing = true;
    this.#next();
    this.#buttons();
    this.#wake();
  }

  #scrub(moment: number): void {
    if (!this.#playback.picture) return;
    this.#playback.playing = false;
    this.#stage.recall(this.#motion());
    this.#go(moment);
    this.#buttons();
    this.#tell();
    this.#wake();
  }

  #go(moment: number): void {
    this.#playback.seek(moment);
    this.#stage.seek(this.#playback.moment, this.#motion());
  }

  #buttons(): void {
    const { playing } = this.#playback;
    setText(this.#play, playing ? 'Pause' : 'Play');
    this.#play.disabled = !this.#playback.picture;
    this.#live.disabled = !this.#playback.picture;
    this.#live.ariaPressed = String(playing);
  }

  // ---- Time -----------------------------------------------------------------------------------------------

  /** A person's request for less motion is met with none. */
  #motion(time = performance.now()): Motion {
    return { time, milliseconds: this.#still.matches ? 0 : this.#playback.glide };
  }

  /** Something is to be painted, or may have to be. */
  #wake(): void {
    if (this.#frame !== 0 || !this.#inView) return;
    this.#meter.begin();
    this.#last = performance.now();
    this.#frame = requestAnimationFrame((time) => this.#tick(time));
  }

  #tick(time: number): void {
    const playback = this.#playback;
    this.#meter.frame(time);
    // A tab that was away has not missed a part of the film.
    playback.advance(Math.min(100, Math.max(0, time - this.#last)));
    this.#last = time;
    if (playback.isOver) this.#next();
    if (playback.picture && playback.moment !== this.#film.at) {
      this.#stage.seek(playback.moment, this.#motion(time));
      this.#tell();
    }
    const still = this.#still.matches || !playback.goesOn;
    if (!still) this.#stage.expect(playback, time);
    const moving = this.#stage.frame(time, still ? 0.5 : 0.5 - 0.5 * Math.cos((2 * Math.PI * time) / PULSE_PERIOD));
    if (playback.wantsNext || this.#isOutdated) for (const resolve of this.#wanted.splice(0)) resolve();
    this.#host.dataset['fps'] = this.framesPerSecond.toFixed(0);
    const goesOn = this.#inView && (moving || playback.goesOn);
    this.#frame = goesOn ? requestAnimationFrame((next) => this.#tick(next)) : 0;
  }
}
