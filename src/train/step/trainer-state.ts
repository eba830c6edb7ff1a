// The state of a trainer beside its weights and moments, as plain JSON: what a checkpoint keeps, and `Trainer.restore` takes.

import { SCALER, STATE } from '../../kernels/step-control.ts';
import { HoldfastError } from '../../util/errors.ts';
import { check, figure, list, number, object } from '../../util/json.ts';
import { wholeNumber } from '../../util/range.ts';

/** The state of the optimizer besides the moments. */
export interface TrainerState {
  /** The next step's number. */
  step: number;
  /** The step-control numbers, exactly. */
  control: number[];
}

/** As long as the step-control numbers are: without a scale of gradients, or with one. */
export const CONTROL_LENGTHS: readonly number[] = [STATE.size, SCALER.size];

const trainerState = object({ step: number(wholeNumber(0)), control: list(figure) });

/** Errors: HoldfastError for a step that is no whole number, and for what are no step-control numbers. */
export function checkState(state: TrainerState): void {
  const { control } = check(trainerState, state, 'the state of a trainer');
  if (CONTROL_LENGTHS.includes(control.length)) return;
  throw new HoldfastError(
    `the state of a trainer: control is a list of ${control.length}; it must be a list of ${CONTROL_LENGTHS.join(' or ')}`,
  );
}
