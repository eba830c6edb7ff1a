// The words of the command line for where AdamW runs, where that was chosen.

import type { Model } from '../nn/model.ts';
import { trainedTensors } from '../train/step/optimizer-split.ts';

/** `AdamW on the GPU for the first 30 of 148 tensors, on the host for the others: 12 % of what trains`. */
export function describeSplit(model: Model, split: number): string {
  const sizes = trainedTensors(model).map(({ shape }) => shape.reduce((a, b) => a * b, 1));
  if (split === 0 || split === sizes.length) return `AdamW on the ${split === 0 ? 'host' : 'GPU'} for all that trains`;
  const sum = (some: readonly number[]) => some.reduce((a, b) => a + b, 0);
  const share = sum(sizes.slice(split)) / sum(sizes);
  return `AdamW on the GPU for the first ${split} of ${sizes.length} tensors, on the host for the others: ${(100 * share).toFixed(0)} % of what trains`;
}
