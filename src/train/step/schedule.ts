// The learning rate of each step: a linear warm-up to the peak, then constant, or down to a minimum along a
// line or half a cosine. A pure function of the step, so that resuming needs no state.
//
// Steps count from 0. Invariant: the rate lies in (0, peak] through the warm-up and in [min, peak] after it.

import { HoldfastError } from '../../util/errors.ts';
import { anything, check, closed, show } from '../../util/json.ts';
import { inRange, realNumber } from '../../util/range.ts';

/** How the learning rate comes down after the warm-up. */
export type Decay = 'constant' | 'linear' | 'cosine';

export const DECAYS: readonly Decay[] = ['constant', 'linear', 'cosine'];

/** The learning rate over a run. Errors where it is used: HoldfastError for what is no schedule. */
export interface LearningRateSchedule {
  /** From the peak to the minimum. */
  readonly decay: Decay;
  /** The highest rate, reached at the end of the warm-up. */
  readonly peak: number;
  /** The rate at step `steps` and beyond; a constant schedule does not use it. */
  readonly min: number;
  /** Steps of warm-up; 0 for none. */
  readonly warmup: number;
  /** The step at which the decay ends. */
  readonly steps: number;
}

/** The rate of step `step`, counted from 0. */
export function learningRate({ decay, peak, min, warmup, steps }: LearningRateSchedule, step: number): number {
  if (step < warmup) return (peak * (step + 1)) / warmup;
  if (decay === 'constant') return peak;
  if (step >= steps) return min;
  if (decay === 'linear') return min + ((peak - min) * (steps - step)) / (steps - warmup);
  return min + 0.5 * (peak - min) * (1 + Math.cos((Math.PI * (step - warmup)) / (steps - warmup)));
}

/** Its numbers are looked into below. */
const scheduleNames = closed<LearningRateSchedule>({
  decay: anything,
  peak: anything,
  min: anything,
  warmup: anything,
  steps: anything,
});

/** Errors: HoldfastError for a schedule that is not one. */
export function checkSchedule(schedule: LearningRateSchedule): void {
  check(scheduleNames, schedule, 'the schedule of the learning rate');
  const { decay, peak, min, warmup, steps } = schedule;
  if (!DECAYS.includes(decay)) {
    throw new HoldfastError(`learning rate schedule ${show(decay)}: choose one of ${DECAYS.join(', ')}`);
  }
  if (!(inRange(realNumber(0), peak) && peak > 0)) {
    throw new HoldfastError(
      `learning rate ${show(peak)}: must be above 0, for example 0.001, and a number that float32 holds`,
    );
  }
  if (!inRange(realNumber(0, peak), min)) {
    throw new HoldfastError(`minimum learning rate ${show(min)}: must lie between 0 and the peak, ${peak}`);
  }
  if (!(Number.isSafeInteger(warmup) && warmup >= 0)) {
    throw new HoldfastError(`warm-up of ${show(warmup)} steps: must be a whole number, 0 for none`);
  }
  if (!(Number.isSafeInteger(steps) && steps > 0)) {
    throw new HoldfastError(`${show(steps)} training steps: must be a whole number above 0`);
  }
}
