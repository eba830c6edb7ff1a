// The words of the command line for where AdamW runs, where that was chosen.

import { type Model, rowsIn } from '../nn/model.ts';
import { trainedTensors } from '../train/step/optimizer-split.ts';

/** `AdamW on the GPU for the first 30 of 148 tensors, on the host for the others: 12 % of what trains`. */
export function describeSplit(model: Model, split: number): string {
  const tensors = trainedTensors(model);
  if (split === 0 || split === tensors.length)
    return `AdamW on the ${split === 0 ? 'host' : 'GPU'} for all that trains`;
  const sizes = tensors.map(({ shape }) => shape.reduce((a, b) => a * b, 1));
  const sum = (some: readonly number[]) => some.reduce((a, b) => a + b, 0);
  const whole = Math.floor(split);
  const next = tensors[whole];
  const rows = next ? rowsIn(next, split - whole) : 0;
  const onGPU = sum(sizes.slice(0, whole)) + (next ? (rows / (next.shape[0] ?? 1)) * (sizes[whole] ?? 0) : 0);
  const first = whole > 0 || rows === 0 ? `the first ${whole} of ${tensors.length} tensors` : '';
  const part = rows > 0 ? `${rows} of the ${next?.shape[0]} rows of ${next?.name}` : '';
  const share = 1 - onGPU / sum(sizes);
  return `AdamW on the GPU for ${[first, part].filter(Boolean).join(' and ')}, on the host for the others: ${(100 * share).toFixed(0)} % of what trains`;
}
