// The fewest of something that suffice, found by halving.

import { at } from './at.ts';

/** The fewest, from 0 to `most`, for which it holds, where it then holds for more as well; `most` if it never does. */
export function fewest(most: number, holds: (count: number) => boolean): number {
  let [low, high] = [0, most];
  while (low < high) {
    const middle = (low + high) >> 1;
    if (holds(middle)) high = middle;
    else low = middle + 1;
  }
  return low;
}

/** How many of some ascending numbers are not above a given one. */
export const countTo = (ascending: readonly number[], most: number): number =>
  fewest(ascending.length, (count) => at(ascending, count) > most);
