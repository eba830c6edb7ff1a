// `Paint`: the look of a cell: colour says in which tier the chunk is or that it is an activation, fill and outline
// what it is doing, so that either reads without the other. Colours are the page's variables, read once per scheme;
// fills have the shades of the report's map.

import { CODES, type Decoded, drawing, type Tier } from '../../src/browser/index.ts';
import { at } from '../at.ts';
import { decoded } from './film.ts';

/** A left upper corner and a size. */
export type CellPlace = readonly [x: number, y: number, size: number];

/** Letters of the kinds, for cells that are large enough: the moments by Adam's names, the frozen by one however they are stored. */
const LETTERS: Readonly<Record<string, string>> = {
  parameter: 'P',
  parameterBF16: 'P',
  parameterF16: 'P',
  gradient: 'G',
  gradientBF16: 'G',
  gradientF16: 'G',
  moment1: 'm',
  moment2: 'v',
  moment1BF16: 'm',
  moment2BF16: 'v',
  activation: 'A',
};

export const letterOf = (kind: string): string => LETTERS[kind] ?? (kind.startsWith('frozen') ? 'F' : '');

const LEAST_OUTLINED = 6;
const LEAST_LETTERED = 13;

interface Look {
  readonly fill: string | undefined;
  readonly line: string | undefined;
  readonly letter: string | undefined;
  readonly dashed?: boolean;
}

export class Paint {
  readonly colors: drawing.Colors;
  readonly #looks: readonly Look[];

  constructor(colors: drawing.Colors) {
    this.colors = colors;
    this.#looks = Array.from({ length: CODES }, (_, code) => lookOf(colors, decoded(code)));
  }

  /** The colour of what has a code, where it only rests. */
  of(code: number): string {
    return this.colors[drawing.colorOf(decoded(code)) ?? 'unused'];
  }

  /** A chunk, its left upper corner at x, y. */
  chunk(context: CanvasRenderingContext2D, code: number, kind: string, x: number, y: number, size: number): void {
    const { fill, line, letter, dashed = false } = at(this.#looks, code);
    if (size < LEAST_OUTLINED) {
      if (fill) {
        context.fillStyle = fill;
        context.fillRect(x, y, size, size);
      } else this.#outline(context, line ?? '', x, y, size, 0.75, dashed);
      return;
    }
    if (fill) {
      context.fillStyle = fill;
      context.beginPath();
      context.roundRect(x, y, size, size, this.#radius(size));
      context.fill();
    }
    if (line) this.#outline(context, line, x, y, size, size < 10 ? 1 : 1.5, dashed);
    if (size < LEAST_LETTERED || !fill || !letter) return;
    context.font = `600 ${Math.round(size * 0.46)}px system-ui, sans-serif`;
    context.textAlign = 'center';
    context.textBaseline = 'middle';
    context.fillStyle = letter;
    context.fillText(letterOf(kind), x + size / 2, y + size / 2 + 0.5);
  }

  /** No bytes: what staging holds of a chunk that is elsewhere, or a chunk that leaves because its copy lies below. */
  hollow(context: CanvasRenderingContext2D, tier: Tier, x: number, y: number, size: number): void {
    const color = tier === 'none' ? this.colors.unused : this.colors[tier];
    this.#outline(context, color, x, y, size, size < LEAST_OUTLINED ? 1 : 1.5, false);
  }

  /** An empty place. */
  empty(context: CanvasRenderingContext2D, x: number, y: number, size: number): void {
    context.fillStyle = this.colors.unused;
    context.beginPath();
    if (size < LEAST_OUTLINED) context.rect(x, y, size, size);
    else context.roundRect(x, y, size, size, this.#radius(size));
    context.fill();
  }

  /** Around a cell: in use, or pointed at. */
  ring(context: CanvasRenderingContext2D, color: string, at: CellPlace, away: number, width: number): void {
    const [x, y, size] = at;
    context.strokeStyle = color;
    context.lineWidth = width;
    context.beginPath();
    context.roundRect(x - away, y - away, size + 2 * away, size + 2 * away, this.#radius(size) + away);
    context.stroke();
  }

  #outline(
    context: CanvasRenderingContext2D,
    color: string,
    x: number,
    y: number,
    size: number,
    width: number,
    dashed: boolean,
  ): void {
    if (dashed) context.setLineDash([Math.max(1.5, size / 8), Math.max(1.5, size / 8)]);
    context.strokeStyle = color;
    context.lineWidth = width;
    context.beginPath();
    const radius = size < LEAST_OUTLINED ? 0 : this.#radius(size) - width / 2;
    context.roundRect(x + width / 2, y + width / 2, size - width, size - width, radius);
    context.stroke();
    context.setLineDash([]);
  }

  #radius(size: number): number {
    return Math.min(4.5, size * 0.22);
  }
}

function lookOf(colors: drawing.Colors, decoded: Decoded): Look {
  const { tier, state, activation } = decoded;
  const { paper, ink, muted } = colors;
  // An empty place, and one that will be filled again.
  if (activation === 'absent') return { fill: colors.unused, line: undefined, letter: undefined };
  if (activation === 'given up') return { fill: undefined, line: colors.activations, letter: undefined, dashed: true };
  if (tier === 'none') return { fill: undefined, line: drawing.mix(muted, paper, 0.55), letter: ink };
  const base = colors[drawing.colorOf(decoded) ?? tier];
  const fill = drawing.shadeOf(colors, decoded) ?? base;
  const letter = contrast(fill, paper) > contrast(fill, ink) ? paper : ink;
  if (state === 'COMPUTE') return { fill, line: undefined, letter };
  if (activation === 'again') return { fill, line: colors.activations, letter };
  if (state === 'HOLD') return { fill, line: undefined, letter };
  return { fill, line: state === 'FREE' ? drawing.mix(base, paper, 0.5) : base, letter };
}

/** Roughly: the difference of lightness as the eye weighs it. */
function contrast(a: string, b: string): number {
  const lightness = (color: string) => {
    const [red, green, blue] = drawing.channels(color);
    return 0.3 * red + 0.59 * green + 0.11 * blue;
  };
  return Math.abs(lightness(a) - lightness(b));
}
