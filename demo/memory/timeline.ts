// `Timeline`: the step from its first moment to its last: phases, what the GPU's memory held, what came up and went
// down, and the life of the chunk that is marked. A slider: the playhead is drawn over it and can be dragged, or moved
// by keys.

import { decode, drawing, formatBytes } from '../../src/browser/index.ts';
import { at } from '../at.ts';
import { open } from './cells.ts';
import type { Film } from './film.ts';

const PHASES = 20;
const AREAS = 92;
const TRAFFIC = 30;
const LIFE = 12;
const GAP = 8;
export const TIMELINE_HEIGHT = PHASES + AREAS + GAP + TRAFFIC + GAP + LIFE;

/** Moments that a key goes on by, or back. */
const KEYS: Readonly<Record<string, number>> = {
  ArrowLeft: -1,
  ArrowDown: -1,
  ArrowRight: 1,
  ArrowUp: 1,
  PageDown: -10,
  PageUp: 10,
  Home: Number.NEGATIVE_INFINITY,
  End: Number.POSITIVE_INFINITY,
};

export class Timeline {
  readonly element: HTMLElement;
  readonly #canvas = document.createElement('canvas');
  readonly #head = document.createElement('div');
  readonly #scrubbed: (moment: number) => void;
  #film: Film | undefined;
  #gutter = 0;
  #width = 0;

  /** `scrubbed`: the playhead was moved by hand. */
  constructor(scrubbed: (moment: number) => void) {
    this.#scrubbed = scrubbed;
    this.element = document.createElement('div');
    this.element.className = 'timeline';
    this.element.style.height = `${TIMELINE_HEIGHT}px`;
    this.#head.className = 'playhead';
    this.element.append(this.#canvas, this.#head);
    this.element.setAttribute('role', 'slider');
    this.element.setAttribute('aria-label', 'Moment of the step');
    this.element.tabIndex = 0;
    this.element.addEventListener('keydown', (event) => this.#key(event));
    this.element.addEventListener('pointerdown', (event) => {
      this.element.setPointerCapture(event.pointerId);
      this.#drag(event);
    });
    this.element.addEventListener('pointermove', (event) => {
      if (this.element.hasPointerCapture(event.pointerId)) this.#drag(event);
    });
  }

  /** Without a film: the empty stage. */
  draw(
    film: Film | undefined,
    budget: number | undefined,
    colors: drawing.Colors,
    width: number,
    gutter: number,
    marked?: number,
  ) {
    this.#film = film;
    this.#gutter = gutter;
    this.#width = width;
    const context = open(this.#canvas, width, TIMELINE_HEIGHT);
    this.#head.hidden = !film;
    if (!film) return;
    this.element.ariaValueMin = '1';
    this.element.ariaValueMax = String(film.moments);
    const axis: drawing.MomentAxis = { left: gutter, right: width, from: 0, to: film.moments, x: (m) => this.#x(m) };
    const phases = { height: TIMELINE_HEIGHT, names: PHASES / 2 - 2, opens: false };
    drawing.paintPhases(context, film.history, axis, colors, phases);
    this.#drawAreas(context, film, axis, colors, budget);
    this.#drawTraffic(context, film, colors);
    this.#drawLife(context, film, colors, marked);
  }

  /** Where the film stands. `text`: what a screen reader says; one that is undefined stays the same while it plays. */
  show(moment: number, text?: string): void {
    this.#head.style.transform = `translateX(${this.#x(moment + 0.5)}px)`;
    const now = text === undefined ? '1' : String(moment + 1);
    const said = text ?? (this.#film ? 'playing' : 'nothing yet');
    if (this.element.ariaValueNow !== now) this.element.ariaValueNow = now;
    if (this.element.ariaValueText !== said) this.element.ariaValueText = said;
  }

  #x(moment: number): number {
    return this.#gutter + (moment / (this.#film?.moments ?? 1)) * (this.#width - this.#gutter);
  }

  #drag(event: PointerEvent): void {
    if (!this.#film) return;
    const x = event.clientX - this.element.getBoundingClientRect().left - this.#gutter;
    this.#scrubbed(Math.floor((x / (this.#width - this.#gutter)) * this.#film.moments));
  }

  #key(event: KeyboardEvent): void {
    const by = KEYS[event.key];
    if (by === undefined || !this.#film || event.ctrlKey || event.metaKey || event.altKey) return;
    event.preventDefault();
    this.#scrubbed(this.#film.at + by);
  }

  #drawAreas(
    context: CanvasRenderingContext2D,
    film: Film,
    axis: drawing.MomentAxis,
    colors: drawing.Colors,
    budget: number | undefined,
  ): void {
    const layers = drawing.memoryLayers(film.history, film.used, film.staged);
    const top = Math.max(layers.reserved, budget ?? 0) * 1.06;
    const bottom = PHASES + AREAS;
    const y = (bytes: number) => bottom - (bytes / top) * AREAS;
    drawing.paintMemory(context, layers, axis, y, colors);
    this.#name(context, colors, 'GPU memory', bottom - AREAS / 2);
    if (budget === undefined) return;
    context.fillStyle = colors.ink;
    context.fillRect(this.#gutter, Math.round(y(budget)) - 0.5, this.#width - this.#gutter, 1);
    const [text, x] =
      this.#gutter === 0 ? [`budget ${formatBytes(budget)}`, this.#width] : [formatBytes(budget), this.#gutter - 8];
    context.textAlign = 'right';
    // With a halo: it may stand on the areas.
    context.strokeStyle = colors.paper;
    context.lineWidth = 3;
    const line = y(budget) + (this.#gutter === 0 ? 11 : 1);
    if (this.#gutter === 0) context.strokeText(text, x, line);
    context.fillText(text, x, line);
  }

  #drawTraffic(context: CanvasRenderingContext2D, film: Film, colors: drawing.Colors): void {
    const middle = PHASES + AREAS + GAP + TRAFFIC / 2;
    // Of activations too, as many chunks as their bytes are.
    const { chunkBytes } = film.history;
    const come = (m: number) => at(film.risen, m) + at(film.fetched, m) / chunkBytes;
    const sink = (m: number) => at(film.sunk, m) + at(film.offloaded, m) / chunkBytes;
    const leave = (m: number) => sink(m) + at(film.dropped, m);
    const most = film.risen.reduce((high, _, m) => Math.max(high, come(m), leave(m)), 1);
    const pixel = Math.max(1, (this.#width - this.#gutter) / film.moments);
    const unit = (TRAFFIC / 2 - 1) / most;
    const bars = (color: string, from: (m: number) => number, to: (m: number) => number) => {
      context.fillStyle = color;
      for (let m = 0; m < film.moments; m++) {
        const [top, bottom] = [middle + from(m) * unit, middle + to(m) * unit];
        if (bottom > top) context.fillRect(this.#x(m), top, pixel, bottom - top);
      }
    };
    const host = colors.host;
    bars(
      colors.gpu,
      (m) => -come(m),
      () => 0,
    );
    bars(host, () => 0, sink);
    bars(drawing.mix(host, colors.paper, 0.5), sink, leave);
    context.fillStyle = colors.rule;
    context.fillRect(this.#gutter, middle - 0.5, this.#width - this.#gutter, 1);
    this.#name(context, colors, 'come, leave', middle);
  }

  #drawLife(context: CanvasRenderingContext2D, film: Film, colors: drawing.Colors, marked: number | undefined): void {
    const top = TIMELINE_HEIGHT - LIFE;
    if (marked === undefined) {
      context.fillStyle = colors.unused;
      context.fillRect(this.#gutter, top, this.#width - this.#gutter, LIFE);
      this.#name(context, colors, 'one cell', top + LIFE / 2);
      return;
    }
    const runs = film.rows[marked] ?? [];
    for (let i = 0, m = 0; i < runs.length; i += 2) {
      const found = decode(at(runs, i));
      const using = found.state === 'COMPUTE';
      const [from, to] = [this.#x(m), this.#x(m + at(runs, i + 1))];
      m += at(runs, i + 1);
      context.fillStyle = drawing.shadeOf(colors, found) ?? colors.unused;
      context.fillRect(from, top, Math.max(using ? 1 : 0, to - from), LIFE);
      if (found.activation !== 'given up') continue;
      // It is nowhere, and comes again.
      context.fillStyle = colors.activations;
      context.fillRect(from, top + LIFE / 2 - 1, to - from, 2);
    }
    const kind = drawing.kindOf(film.history, marked);
    const index = marked - film.history.chunks.length;
    const name = kind ? `${drawing.WORDS[kind.kind]} ${kind.index + 1}` : `activation ${index + 1}`;
    this.#name(context, colors, name, top + LIFE / 2);
  }

  /** In the gutter, where there is one. */
  #name(context: CanvasRenderingContext2D, colors: drawing.Colors, text: string, y: number): void {
    if (this.#gutter === 0) return;
    context.fillStyle = colors.muted;
    context.textAlign = 'left';
    context.fillText(text, 0, y + 1);
  }
}
