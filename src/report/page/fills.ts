// Fills of the map for a chunk or an activation, by its code: colour says in which tier it is, lightness and hatching
// what it is doing, so that either reads without the other, and without telling red from green.

import { decode } from '../../engine/observe/chunk-codes.ts';
import { type Colors, colorOf, mix, PAPER_SHARES, shadeOf } from '../paint/colors.ts';

/** By how much the share of paper is less in the lines of hatching than between them. */
const LESS_IN_LINES = 0.24;

/** Undefined: nothing is painted. */
export type Fill = string | CanvasPattern | undefined;

export class Fills {
  readonly #colors: Colors;
  readonly #hatched: boolean;
  readonly #known = new Map<number, Fill>();

  /** `hatched`: rows are high enough for it to show. */
  constructor(colors: Colors, hatched: boolean) {
    this.#colors = colors;
    this.#hatched = hatched;
  }

  of(context: CanvasRenderingContext2D, code: number): Fill {
    if (!this.#known.has(code)) this.#known.set(code, this.#make(context, code));
    return this.#known.get(code);
  }

  #make(context: CanvasRenderingContext2D, code: number): Fill {
    const decoded = decode(code);
    const { state, activation } = decoded;
    // Given up: a line of dots where it would be.
    if (activation === 'given up') return this.#hatched ? dots(context, this.#colors) : undefined;
    const color = colorOf(decoded);
    const ground = shadeOf(this.#colors, decoded);
    const isUsed = state === 'HOLD_AFTER_FWD' || state === 'HOLD_AFTER_BWD';
    if (!this.#hatched || !isUsed || !color || !ground) return ground;
    const line = mix(this.#colors[color], this.#colors.paper, PAPER_SHARES[state] - LESS_IN_LINES);
    return hatch(context, ground, line, state === 'HOLD_AFTER_FWD');
  }
}

function dots(context: CanvasRenderingContext2D, { activations }: Colors): Fill {
  const ratio = window.devicePixelRatio;
  const tile = document.createElement('canvas');
  tile.width = Math.round(6 * ratio);
  tile.height = Math.round(4 * ratio);
  const on = tile.getContext('2d') as CanvasRenderingContext2D;
  on.fillStyle = activations;
  on.fillRect(0, ratio, 2 * ratio, ratio);
  return context.createPattern(tile, 'repeat') ?? undefined;
}

function hatch(context: CanvasRenderingContext2D, ground: string, line: string, rises: boolean): Fill {
  const ratio = window.devicePixelRatio;
  const size = Math.round(6 * ratio);
  const tile = document.createElement('canvas');
  tile.width = tile.height = size;
  const on = tile.getContext('2d') as CanvasRenderingContext2D;
  on.fillStyle = ground;
  on.fillRect(0, 0, size, size);
  on.strokeStyle = line;
  on.lineWidth = ratio;
  for (const shift of [-size, 0, size]) {
    on.beginPath();
    on.moveTo(shift, rises ? size : 0);
    on.lineTo(shift + size, rises ? 0 : size);
    on.stroke();
  }
  return context.createPattern(tile, 'repeat') ?? undefined;
}
