// Recovery of a training within a budget from the loss of its device: it costs one step, where each step's state is also kept below the
// GPU, or all steps since the last checkpoint.

import { updatesOnGPU, updatesOnHost, type Workload } from './workload.ts';

/** What keeps the state of each step may take so many times as long. */
export const WORTH_KEEPING = 1.05;

/**
 * `step`: every step's state is also kept below the GPU. `checkpoint`: it is not. `auto`: it is, where a step takes hardly longer for
 * that (fit.ts).
 */
export const RECOVERIES = ['auto', 'step', 'checkpoint'] as const;
/** One of RECOVERIES. */
export type Recovery = (typeof RECOVERIES)[number];

/**
 * Whether each step's state is kept below; by `auto`, whether it may be. Within a budget: without one, nothing goes below but what
 * the host updates, where that is all. A step finishes from its gradients; one of several ranks does not, whose others are past it.
 */
export const isDurable = (workload: Workload, recovery: Recovery): boolean =>
  workload.training &&
  !workload.inBackward &&
  (recovery !== 'checkpoint' || (updatesOnHost(workload) && !updatesOnGPU(workload) && !workload.isShared));

/** Seconds of a step. */
interface Timed {
  readonly seconds: number;
}

/** Whether `auto` keeps each step's state below: where a step takes at most a twentieth longer for that. */
export const isWorthKeeping = (keeping: Timed, without: Timed): boolean =>
  keeping.seconds <= WORTH_KEEPING * without.seconds;

/** Whether it is left to the fit if each step's state is kept below. Where the host updates some of it, that lies there anyway. */
export const isOpen = (workload: Workload, recovery: Recovery): boolean =>
  recovery === 'auto' && isDurable(workload, 'step') && !updatesOnHost(workload);
