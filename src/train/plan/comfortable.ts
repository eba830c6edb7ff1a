// A comfortable budget: the least, about, within which a step takes hardly longer than the fastest one.

/** It costs no more than this, as a share of the fastest step. */
export const COMFORT = 0.05;
/** Halvings of the way from the smallest budget to all. */
const HALVINGS = 4;

/** `isComfortable`: of what is in between. Undefined where no budget up to `most` is. */
export function leastComfortable(
  smallest: number,
  most: number,
  isComfortable: (budget: number) => boolean,
): number | undefined {
  let [less, enough] = [smallest, Math.max(smallest, most)];
  if (!isComfortable(enough)) return undefined;
  for (let i = 0; i < HALVINGS; i++) {
    const middle = Math.floor((less + enough) / 2);
    if (isComfortable(middle)) enough = middle;
    else less = middle;
  }
  return enough;
}
