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
