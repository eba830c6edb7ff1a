// Numbers and tables of `holdfast bench`.

import { at } from '../../util/at.ts';

/** Three significant digits; nothing for what was not measured. */
export function digits(value: number | undefined): string {
  if (value === undefined) return '';
  return value >= 100 ? Math.round(value).toLocaleString('en') : String(Number(value.toPrecision(3)));
}

export const percentage = (fraction: number): string => `${(fraction * 100).toFixed(1)} %`;

/** Lines of columns two spaces apart; those in `right` (default: all but the first) are flush right. */
export function table(
  header: readonly string[],
  rows: readonly string[][],
  right = header.map((_, i) => i).slice(1),
): string {
  const all = [header, ...rows];
  const widths = header.map((_, i) => Math.max(...all.map((row) => at(row, i).length)));
  const line = (row: readonly string[]) =>
    row.map((cell, i) => (right.includes(i) ? cell.padStart(at(widths, i)) : cell.padEnd(at(widths, i))));
  return all.map((row) => `  ${line(row).join('  ').trimEnd()}\n`).join('');
}
