// The colours of the report and the page by name: CSS variables, read when drawing, since they differ by scheme. Colour
// says in which tier a chunk is, lightness what it is doing. Not where the colours are set: memory-colors.css and the
// pages' own styles do that.

import type { Decoded, Tier } from '../../engine/observe/chunk-codes.ts';
import type { State } from '../../memory/layout/states.ts';
import { at } from '../../util/at.ts';

const NAMES = [
  'paper',
  'ink',
  'muted',
  'rule',
  'first',
  'faint',
  'second',
  'gpu',
  'staging',
  'host',
  'disk',
  'activations',
  'again',
  'working',
  'other',
  'unused',
] as const;

/** A CSS variable of the page, without its dashes. */
export type Color = (typeof NAMES)[number];

/** Values of the page's variables. */
export type Colors = Readonly<Record<Color, string>>;

/** The colours as they are for an element. */
export function readColors(element: Element): Colors {
  const style = getComputedStyle(element);
  return Object.fromEntries(NAMES.map((name) => [name, style.getPropertyValue(`--${name}`).trim()])) as Colors;
}

/** Classes that set `--paint`, for a page whose policy lets no element bring styles along. */
export const PAINT_STYLE = NAMES.map((name) => `.paint-${name} { --paint: var(--${name}); }`).join('\n');

/** Red, green and blue of #rrggbb, 0 to 255. */
export function channels(hex: string): [red: number, green: number, blue: number] {
  const at = (from: number) => Number.parseInt(hex.slice(from, from + 2), 16);
  return [at(1), at(3), at(5)];
}

/** `share` of b in a; all as #rrggbb. */
export function mix(a: string, b: string, share: number): string {
  const to = channels(b);
  const mixed = channels(a).map((value, i) => Math.round(value + (at(to, i) - value) * share));
  return `#${mixed.map((value) => value.toString(16).padStart(2, '0')).join('')}`;
}

/**
 * Of what a code stands for: a chunk by its tier, and so an activation below the GPU; on the GPU activations have colours of
 * their own, and those that are made again another one. Undefined: it is nowhere.
 */
export function colorOf({ tier, activation }: Decoded): Exclude<Tier, 'none'> | 'activations' | 'again' | undefined {
  if (tier === 'none') return undefined;
  if (tier !== 'gpu' || !activation) return tier;
  return activation === 'again' ? 'again' : 'activations';
}

/** The share of ink in the colour of what an operator uses. */
const INK_IN_USE = 0.72;

/** The share of paper in the colour of what no operator uses, by its state: the sooner it is needed, the less. */
export const PAPER_SHARES: Readonly<Record<Exclude<State, 'COMPUTE'>, number>> = {
  HOLD: 0,
  HOLD_AFTER_FWD: 0.4,
  HOLD_AFTER_BWD: 0.7,
  FREE: 0.88,
};

/** The fill of a chunk or an activation, as #rrggbb: the colour of where it is in the shade of its state. Undefined: it is nowhere. */
export function shadeOf(colors: Colors, decoded: Decoded): string | undefined {
  const color = colorOf(decoded);
  if (!color) return undefined;
  const { state } = decoded;
  return state === 'COMPUTE'
    ? mix(colors[color], colors.ink, INK_IN_USE)
    : mix(colors[color], colors.paper, PAPER_SHARES[state]);
}
