// How a cell looks: colour says in which tier the chunk is, fill and outline what it is doing, so that either reads
// without the other. Colours are the page's variables, read once per scheme.

import { TIERS } from '../../src/engine/chunk-codes.ts';
import { STATES } from '../../src/memory/states.ts';
import { stateOf, tierOf } from './film.ts';

const NAMES = ['paper', 'ink', 'muted', 'rule', 'gpu', 'staging', 'host', 'disk', 'activations', 'other', 'unused'];

export type Colors = Readonly<Record<string, string>>;

/** The variables of the page, without their dashes. */
export function readColors(element: Element): Colors {
  const style = getComputedStyle(element);
  return Object.fromEntries(NAMES.map((name) => [name, style.getPropertyValue(`--${name}`).trim()]));
}

const channels = (hex: string): number[] => [1, 3, 5].map((at) => Number.parseInt(hex.slice(at, at + 2), 16));

/** `share` of b in a; both as #rrggbb. */
export function mix(a: string, b: string, share: number): string {
  const to = channels(b);
  const mixed = channels(a).map((value, i) => Math.round(value + ((to[i] as number) - value) * share));
  return `#${mixed.map((value) => value.toString(16).padStart(2, '0')).join('')}`;
}

/** Letters of the kinds, for cells that are large enough: the moments by Adam's names. */
export const LETTERS: Readonly<Record<string, string>> = {
  parameter: 'P',
  gradient: 'G',
  moment1: 'm',
  moment2: 'v',
  frozen: 'F',
};

const LEAST_OUTLINED = 6;
const LEAST_LETTERED = 13;

interface Look {
  readonly fill: string | undefined;
  readonly line: string | undefined;
  readonly letter: string;
}

export class Paint {
  readonly colors: Colors;
  readonly #size: number;
  readonly #looks: readonly Look[];

  constructor(colors: Colors, size: number) {
    this.colors = colors;
    this.#size = size;
    this.#looks = Array.from({ length: TIERS.length * STATES.length }, (_, code) => lookOf(colors, code));
  }

  /** A chunk, its left upper corner at x, y; `grown` times its size. */
  chunk(context: CanvasRenderingContext2D, code: number, kind: string, x: number, y: number, grown = 1): void {
    const { fill, line, letter } = this.#looks[code] as Look;
    const size = this.#size * grown;
    const [left, top] = [x - (size - this.#size) / 2, y - (size - this.#size) / 2];
    if (size < LEAST_OUTLINED) {
      context.fillStyle = fill ?? line ?? this.colors['rule'] ?? '';
      if (fill) context.fillRect(left, top, size, size);
      return;
    }
    const radius = this.#radius(size);
    context.beginPath();
    context.roundRect(left, top, size, size, radius);
    if (fill) {
      context.fillStyle = fill;
      context.fill();
    }
    if (line) {
      const width = size < 10 ? 1 : 1.5;
      context.strokeStyle = line;
      context.lineWidth = width;
      context.beginPath();
      context.roundRect(left + width / 2, top + width / 2, size - width, size - width, radius - width / 2);
      context.stroke();
    }
    if (this.#size < LEAST_LETTERED || !fill) return;
    context.font = `600 ${Math.round(this.#size * 0.46)}px system-ui, sans-serif`;
    context.textAlign = 'center';
    context.textBaseline = 'middle';
    context.fillStyle = letter;
    context.fillText(LETTERS[kind] ?? '', x + this.#size / 2, y + this.#size / 2 + 0.5);
  }

  /** A place that nobody is in. */
  empty(context: CanvasRenderingContext2D, x: number, y: number): void {
    context.fillStyle = this.colors['unused'] ?? '';
    context.beginPath();
    if (this.#size < LEAST_OUTLINED) context.rect(x, y, this.#size, this.#size);
    else context.roundRect(x, y, this.#size, this.#size, this.#radius(this.#size));
    context.fill();
  }

  /** Around a chunk: in use, or pointed at. */
  ring(context: CanvasRenderingContext2D, color: string, x: number, y: number, away: number, width: number): void {
    const size = this.#size + 2 * away;
    context.strokeStyle = color;
    context.lineWidth = width;
    context.beginPath();
    context.roundRect(x - away, y - away, size, size, this.#radius(this.#size) + away);
    context.stroke();
  }

  #radius(size: number): number {
    return Math.min(4.5, size * 0.22);
  }
}

function lookOf(colors: Colors, code: number): Look {
  const of = (name: string) => colors[name] ?? '';
  const tier = tierOf(code);
  const state = stateOf(code);
  const [paper, ink] = [of('paper'), of('ink')];
  if (tier === 'none') return { fill: undefined, line: mix(of('muted'), paper, 0.55), letter: ink };
  const base = of(tier);
  const readable = (fill: string) => (contrast(fill, paper) > contrast(fill, ink) ? paper : ink);
  if (state === 'COMPUTE') {
    const fill = mix(base, ink, 0.72);
    return { fill, line: undefined, letter: readable(fill) };
  }
  if (state === 'HOLD') return { fill: base, line: undefined, letter: readable(base) };
  const fill = mix(base, paper, state === 'HOLD_AFTER_FWD' ? 0.5 : state === 'HOLD_AFTER_BWD' ? 0.8 : 1);
  return { fill, line: state === 'FREE' ? mix(base, paper, 0.5) : base, letter: readable(fill) };
}

/** Roughly: the difference of lightness as the eye weighs it. */
function contrast(a: string, b: string): number {
  const lightness = (color: string) => {
    const [red, green, blue] = channels(color) as [number, number, number];
    return 0.3 * red + 0.59 * green + 0.11 * blue;
  };
  return Math.abs(lightness(a) - lightness(b));
}
