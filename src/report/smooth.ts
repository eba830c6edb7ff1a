// A curve that noise hides, made visible: for the report and for the page that shows a run while it trains.

import { at } from '../util/at.ts';

/** One value a point; null where there is none. */
export type Column = (number | null)[];

/** Six digits are more than a screen shows; what is not a finite number is a gap. */
export function sixDigits(value: number | undefined): number | null {
  return value !== undefined && Number.isFinite(value) ? Number(value.toPrecision(6)) : null;
}

/**
 * Moving average over about a fortieth of the run, centred so that it does not lag behind a falling curve.
 * The window narrows on both sides towards the first step, where curves are steep, and on one at the last.
 */
export function smooth(values: Column): Column {
  const reach = Math.floor(values.length / 80);
  // Of the values before each point; one more for the end.
  let sum = 0;
  let count = 0;
  const before = [{ sum, count }];
  for (const value of values) {
    sum += value ?? 0;
    count += value === null ? 0 : 1;
    before.push({ sum, count });
  }
  return values.map((value, i) => {
    if (value === null) return null;
    const from = at(before, i - Math.min(reach, i));
    const to = at(before, Math.min(values.length, i + Math.min(reach, i) + 1));
    return sixDigits((to.sum - from.sum) / (to.count - from.count));
  });
}
