// The median of measured or counted values: a robust middle, for times and ratios in reports. Not an estimate of a
// spread. Invariant: the middle value, or the mean of the middle two; the list is left as it is.

import { at } from './at.ts';

/** The median of one value or more. */
export function median(values: readonly number[]): number {
  const sorted = values.toSorted((a, b) => a - b);
  const middle = sorted.length >> 1;
  return sorted.length % 2 === 1 ? at(sorted, middle) : (at(sorted, middle - 1) + at(sorted, middle)) / 2;
}
