// Callbacks: the events of a run under the names of Hugging Face's Trainer, with its state and its way to steer. The port,
// what passes events on in order, and early stopping, which is one. What else happens in a run is RunEvents (run.ts).
//
// Invariant: each callback gets events in the order in which they happened; where one takes time, the run waits.

import type { Ranks } from '../../engine/ranks/ranks.ts';
import { check, figure, handlers, list, number, object, optional } from '../../util/json.ts';
import type { HuggingFaceState, LogEntry } from './huggingface-state.ts';
import { EARLY_STOPPING_RANGES } from './run-settings.ts';

/** The requests of a callback to the run: what is set to true is done once the event is over. */
export interface TrainerControl {
  /** Ends the run: it is saved, and may be gone on with. */
  shouldTrainingStop: boolean;
  /** Validates before the next step. */
  shouldEvaluate: boolean;
  /** Saves a checkpoint before the next step. */
  shouldSave: boolean;
}

type Heard = void | Promise<void>;

/** The handlers of a run's events. `state` is the run's own: to be read, not to be changed. One that throws ends the run: see RunEvents. */
export interface TrainerCallback {
  /** Before the first step; also where the run goes on, or back to a checkpoint. */
  onTrainBegin?(state: HuggingFaceState, control: TrainerControl): Heard;
  /** Behind the last step, with all saved. */
  onTrainEnd?(state: HuggingFaceState, control: TrainerControl): Heard;
  /** Before the first step of an epoch. */
  onEpochBegin?(state: HuggingFaceState, control: TrainerControl): Heard;
  /** Behind the last step of an epoch. */
  onEpochEnd?(state: HuggingFaceState, control: TrainerControl): Heard;
  /** Before a step; `state.global_step` steps are done. */
  onStepBegin?(state: HuggingFaceState, control: TrainerControl): Heard;
  /** Behind a step; `state.global_step` counts it. */
  onStepEnd?(state: HuggingFaceState, control: TrainerControl): Heard;
  /** Behind every `state.logging_steps` steps; the entry is the last in `state.log_history`. */
  onLog?(state: HuggingFaceState, control: TrainerControl, entry: LogEntry): Heard;
  /** Behind a validation; the entry is the last in `state.log_history`. */
  onEvaluate?(state: HuggingFaceState, control: TrainerControl, entry: LogEntry): Heard;
  /** A checkpoint is whole, in that folder. */
  onSave?(state: HuggingFaceState, control: TrainerControl, path: string): Heard;
}

/** Of a callback. Errors, of `check`: for a function by another name than an event's, which would never be told. */
export const trainerCallback = handlers<TrainerCallback>({
  ...{ onTrainBegin: true, onTrainEnd: true, onEpochBegin: true, onEpochEnd: true, onStepBegin: true, onStepEnd: true },
  ...{ onLog: true, onEvaluate: true, onSave: true },
});

type Event = keyof TrainerCallback;
/** What a handler is told besides the state. */
export type CallbackDetails<E extends Event> =
  Parameters<Required<TrainerCallback>[E]> extends [unknown, unknown, ...infer D] ? D : [];

/** `Callbacks`: those of one run, and what they have requested. */
export class Callbacks {
  /** What they have requested and is not done yet. */
  readonly control: TrainerControl = { shouldTrainingStop: false, shouldEvaluate: false, shouldSave: false };
  readonly #all: readonly TrainerCallback[];

  constructor(all: readonly TrainerCallback[]) {
    this.#all = all;
  }

  /** Whether there is one. */
  get areThere(): boolean {
    return this.#all.length > 0;
  }

  /** Whether one of them has a handler of any of these. */
  handles(...events: Event[]): boolean {
    return this.#all.some((callback) => events.some((event) => callback[event]));
  }

  /** Calls their handlers, one after the other. */
  async emit<E extends Event>(event: E, state: HuggingFaceState, ...details: CallbackDetails<E>): Promise<void> {
    for (const callback of this.#all) {
      const handler = callback[event] as
        | ((state: HuggingFaceState, control: TrainerControl, ...details: CallbackDetails<E>) => Heard)
        | undefined;
      await handler?.call(callback, state, this.control, ...details);
    }
  }

  /** What those of any rank have requested is requested of all. All ranks call it. */
  async shareRequests(ranks: Ranks): Promise<void> {
    const { shouldTrainingStop, shouldEvaluate, shouldSave } = this.control;
    const own = [shouldTrainingStop, shouldEvaluate, shouldSave];
    const [stop = false, evaluate = false, save = false] = await ranks.control.anyOf('what callbacks request', own);
    Object.assign(this.control, { shouldTrainingStop: stop, shouldEvaluate: evaluate, shouldSave: save });
  }

  /** Whether it was asked for; it then counts as done. */
  take(what: 'shouldEvaluate' | 'shouldSave'): boolean {
    const asked = this.control[what];
    this.control[what] = false;
    return asked;
  }
}

const logged = object({ log_history: list(object({ eval_loss: optional(figure) })) });

/** Ends a run whose validations do not get better any more. */
export class EarlyStopping implements TrainerCallback {
  readonly #patience: number;
  readonly #threshold: number;

  /** After `patience` validations in a row, none of which is better than the best before them by more than `threshold` nats. */
  constructor(patience: number, threshold = 0) {
    check(number(EARLY_STOPPING_RANGES.earlyStoppingPatience), patience, 'patience');
    check(number(EARLY_STOPPING_RANGES.earlyStoppingThreshold), threshold, 'threshold');
    this.#patience = patience;
    this.#threshold = threshold;
  }

  /** Of a run that goes on, and had come to its end. */
  onTrainBegin(state: HuggingFaceState, control: TrainerControl): void {
    this.onEvaluate(state, control);
  }

  /** From the log alone, so that a run which was stopped and goes on ends where it would have. */
  onEvaluate(state: HuggingFaceState, control: TrainerControl): void {
    const { log_history } = check(logged, state, 'the state of the run');
    check(object({}), control, 'the control of the run');
    const losses = log_history.flatMap(({ eval_loss }) => (eval_loss === undefined ? [] : [eval_loss]));
    if (staleness(losses, this.#threshold) >= this.#patience) control.shouldTrainingStop = true;
  }
}

/** Losses behind the last one that was the best so far, by more than a threshold. */
export function staleness(losses: readonly number[], threshold = 0): number {
  let best = Number.POSITIVE_INFINITY;
  let stale = 0;
  for (const loss of losses) {
    if (loss < best - threshold) {
      best = loss;
      stale = 0;
    } else stale++;
  }
  return stale;
}
