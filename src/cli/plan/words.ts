// Figures as `holdfast plan` writes them: shares, numbers, seconds. Pure.

export const percent = (share: number): string => `${(100 * share).toFixed(share < 0.0995 && share > 0 ? 1 : 0)} %`;

export const count = (value: number): string =>
  value < 10 ? value.toPrecision(2) : Math.round(value).toLocaleString('en');

/** Three digits, in the unit that suits. */
export function duration(seconds: number): string {
  if (seconds < 0.9995) return `${Number((seconds * 1e3).toPrecision(3))} ms`;
  if (seconds < 3600) return `${Number(seconds.toPrecision(3))} s`;
  return `${Number((seconds / 3600).toPrecision(3))} h`;
}

/** What is said of a step that is not kept, where it is open if it is. */
export const LOSES_STEPS =
  'a lost GPU goes back to the last checkpoint: no plan was found that keeps each step below (--recovery step) in at most 5 % more time';
