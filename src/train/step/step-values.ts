// Values that a step is given beside its batches: the optimizer's numbers, and keys of what is random in it. Each is a function of the
// seed and of the place in the run alone, so that a step that is done again, or behind a resume, is the same one.

import { keyNumbers } from '../../kernels/moments.ts';
import { HYPER, ROUNDING } from '../../kernels/step-control.ts';
import { Random } from '../../util/random.ts';
import type { FullOptions } from './trainer-options.ts';

/** A step, by its number; `lossScale`: 1 / the targets of all its micro-batches. */
interface StepNumbers {
  readonly step: number;
  readonly lr: number;
  readonly lossScale: number;
}

/** The values of a tensor of so many: HYPER, and ROUNDING where moments are rounded by chance. */
export function hyperValues(
  { optimizer, seed }: Pick<FullOptions, 'optimizer' | 'seed'>,
  { step, lr, lossScale }: StepNumbers,
  size: number,
): Float32Array<ArrayBuffer> {
  const { beta1, beta2, epsilon, weightDecay, clip } = optimizer;
  const hyper = new Float32Array(size);
  if (size === ROUNDING.size) {
    const random = new Random(seed, `moments ${step}`);
    hyper.set(keyNumbers([random.uint32(), random.uint32()]), ROUNDING.roundingKey);
  }
  hyper[HYPER.learningRate] = lr;
  hyper[HYPER.oneMinusBeta1] = 1 - beta1;
  hyper[HYPER.oneMinusBeta2] = 1 - beta2;
  hyper[HYPER.epsilon] = epsilon;
  hyper[HYPER.weightDecay] = weightDecay;
  hyper[HYPER.maxNorm] = clip;
  hyper[HYPER.lossScale] = lossScale;
  return hyper;
}

/** The key of dropout in a micro-batch, by its number among those of all ranks: (2) u32. */
export function dropoutValues(seed: number, step: number, micro: number): Uint32Array<ArrayBuffer> {
  const random = new Random(seed, `dropout ${step} ${micro}`);
  return Uint32Array.of(random.uint32(), random.uint32());
}
