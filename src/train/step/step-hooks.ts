// Hooks of a step: what an observer is told of it while it runs.

import type { Recording } from '../../engine/observe/recording.ts';
import { callable } from '../../util/arguments.ts';
import { closed, optional } from '../../util/json.ts';
import type { TensorSource } from '../../values/tensor-source.ts';

/** Hooks of an observer of a step while it runs. */
export interface StepHooks {
  /**
   * Called with the complete gradients, before clipping and before they are used up; where chunks are updated inside the backward
   * pass, with copies behind it. Reading them waits for the GPU. The step waits for the hook, and all else that is asked of the
   * trainer for the step: a hook that awaits a method of the trainer never returns. One that throws ends the trainer.
   */
  readonly inspect?: ((gradients: TensorSource) => Promise<void>) | undefined;
  /**
   * Called when the step is encoded, with what was recorded of it: from `arrived` on it is whole. A step of warm-up is
   * not recorded; one that a lost device took is, again. `arrived` may then never resolve. One that throws ends the trainer.
   */
  readonly recorded?: ((recording: Recording, arrived: Promise<void>) => void) | undefined;
}

export const stepHooks = closed<StepHooks>({ inspect: optional(callable), recorded: optional(callable) });
