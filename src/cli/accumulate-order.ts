// Line of the command line that says how the micro-batches of a step go through the model, and why.

import { ACCUMULATE_ORDERS, type AccumulateOrder } from '../graph/layer-major.ts';

const WORDS: Readonly<Record<AccumulateOrder, string>> = {
  batch: 'one after the other',
  layer: 'layer by layer',
};

/** `seconds`: what a step was reckoned to take in each order that was tried. */
export function describeOrder(
  order: AccumulateOrder,
  seconds: Readonly<Partial<Record<AccumulateOrder, number>>> = {},
): string {
  const other = ACCUMULATE_ORDERS.find((name) => name !== order) ?? order;
  const [own, others] = [seconds[order], seconds[other]];
  const compared =
    own && others ? `: ${WORDS[other]}, a step would take about ${(others / own).toFixed(2)} x as long` : '';
  return `micro-batches ${WORDS[order]}${compared}`;
}
