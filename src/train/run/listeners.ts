// `Listeners`: the program's side of a run: its events, callbacks, intermission and observer. What one of them throws ends the run as
// an abort does, behind the step under way: it is saved, and the error is thrown then (run-part.ts). Of a device that is lost
// meanwhile the error is that of the device, and thrown at once. Of several ranks all end as that one does.
//
// Invariant: once one has failed, nothing more is told but what is saved.

import type { Recording } from '../../engine/observe/recording.ts';
import { LostForGood } from '../../engine/run/device-mutex.ts';
import { HoldfastError, messageOf } from '../../util/errors.ts';
import { type CallbackDetails, Callbacks, EarlyStopping, type TrainerCallback } from './callbacks.ts';
import type { HuggingFaceState } from './huggingface-state.ts';
import { failTogether } from './ranks.ts';
import type { ReadyRun, RunEvents, RunOptions } from './run-events.ts';
import type { RunSettings } from './run-settings.ts';

/** Events that are not waited for. */
type Told = 'step' | 'validation' | 'sample' | 'saved';
type Given<E extends keyof RunEvents> = Parameters<Required<RunEvents>[E]>;

export class Listeners {
  readonly #options: RunOptions;
  readonly #events: RunEvents;
  readonly #callbacks: Callbacks;
  readonly #deviceWorks: () => boolean;
  #failed: { readonly error: unknown } | undefined;
  #isOver = false;

  /** `isFirst`: of several ranks, the one that tells events. */
  constructor(options: RunOptions, settings: RunSettings, isFirst: boolean, deviceWorks: () => boolean) {
    const { earlyStoppingPatience: patience, earlyStoppingThreshold: threshold } = settings;
    const stopping = patience === undefined ? [] : [new EarlyStopping(patience, threshold)];
    this.#options = options;
    this.#events = (isFirst && options.events) || {};
    this.#callbacks = new Callbacks([...stopping, ...(options.callbacks ?? [])]);
    this.#deviceWorks = deviceWorks;
  }

  /** Whether one has thrown: the run is to end. */
  get failed(): boolean {
    return this.#failed !== undefined;
  }

  /** What callbacks have asked for. */
  get asked(): Callbacks {
    return this.#callbacks;
  }

  /** Whether it hears of the run's last step. */
  get hearsLastStep(): boolean {
    return this.#events.lastStep !== undefined;
  }

  /** The run is over; all ranks come here. Errors: as `raise`. */
  async end(): Promise<void> {
    this.#isOver = true;
    await this.raise();
  }

  /** The run is over by an error. Errors: that one; where a listener has thrown, it is why the run could not be saved behind that. */
  endBy(reason: unknown): never {
    this.#isOver = true;
    if (!this.#failed || reason === this.#failed.error) throw reason;
    const { error } = this.#failed;
    // A run whose device was lost as well does not go on with another.
    const Kind = this.#deviceWorks() ? HoldfastError : LostForGood;
    throw new Kind(`${messageOf(reason)} (${endedBy(error)})`, { cause: error });
  }

  /** All ranks come here. Errors: what a listener has thrown; of one on another rank, FailedElsewhere. */
  async raise(): Promise<void> {
    const { ranks } = this.#options;
    const failed = this.#failed;
    if (ranks) await failTogether(ranks, failed && { ...failed, message: endedBy(failed.error) });
    else if (failed) throw failed.error;
  }

  /** Before anything is done. */
  ready(run: ReadyRun): void {
    try {
      this.#events.ready?.(run);
    } catch (error) {
      this.#fail(error);
    }
  }

  /** Nothing is waited for: a promise that a handler returns may be rejected later. */
  tell<E extends Told>(event: E, ...given: Given<E>): void {
    if (this.#failed && event !== 'saved') return;
    try {
      const told = this.#call(event, given);
      if (told instanceof Promise) told.catch((error: unknown) => this.#failLate(error));
    } catch (error) {
      this.#fail(error);
    }
  }

  /** As `tell`, and the handler is waited for. */
  waitFor<E extends 'lastStep' | 'over'>(event: E, ...given: Given<E>): Promise<void> {
    return this.#guarded(false, () => this.#call(event, given));
  }

  /** Calls the handlers of callbacks. */
  emit<E extends keyof TrainerCallback>(
    event: E,
    state: HuggingFaceState,
    ...details: CallbackDetails<E>
  ): Promise<void> {
    return this.#guarded(event === 'onSave', () => this.#callbacks.emit(event, state, ...details));
  }

  /** Lets others work between two steps. */
  intermit(): Promise<void> {
    return this.#guarded(false, () => this.#options.intermission?.run());
  }

  /** Gives a step's recording to the observer. */
  observe(step: number, recording: Recording, arrived: Promise<void>): void {
    try {
      if (!this.#failed) this.#options.observer?.recorded(step, recording, arrived);
    } catch (error) {
      this.#fail(error);
    }
  }

  #call<E extends Told | 'lastStep' | 'over'>(event: E, given: Given<E>): unknown {
    const events = this.#events as Readonly<Record<E, ((...given: Given<E>) => unknown) | undefined>>;
    return events[event]?.(...given);
  }

  async #guarded(always: boolean, work: () => unknown): Promise<void> {
    if (this.#failed && !always) return;
    try {
      await work();
    } catch (error) {
      this.#fail(error);
    }
  }

  #fail(error: unknown): void {
    if (!this.#deviceWorks()) throw error;
    this.#failed ??= { error };
  }

  /** Behind the end of the run it is told as any unhandled rejection. */
  #failLate(error: unknown): void {
    if (this.#isOver) throw error;
    this.#failed ??= { error };
  }
}

const endedBy = (error: unknown): string => `the run ended by an error of the program’s: ${messageOf(error)}`;
