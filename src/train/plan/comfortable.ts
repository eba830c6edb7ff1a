// A comfortable budget: the least, about, within which a step takes hardly longer than the fastest one.

/** It costs no more than this, as a share of the fastest step. */
export const COMFORT = 0.05;
/** Halvings of the way from the smallest budget to all. */
const HALVINGS = 4;

/** `efficiency`: the seconds of the fastest step in those of one within a budget. Undefined where no budget up to `most` is comfortable. */
export function leastComfortable(
  smallest: number,
  most: number,
  efficiency: (budget: number) => number,
): number | undefined {
  const isComfortable = (budget: number) => efficiency(budget) * (1 + COMFORT) >= 1;
  let [less, enough] = [smallest, Math.max(smallest, most)];
  if (!isComfortable(enough)) return undefined;
  for (let i = 0; i < HALVINGS; i++) {
    const middle = Math.floor((less + enough) / 2);
    if (isComfortable(middle)) enough = middle;
    else less = middle;
  }
  return enough;
}
