// `Gate`: the stop between two steps of a run, where it is paused, goes on by single steps, and where others use its trainer.

import type { Intermission } from '../train/run/run-events.ts';
import { type Deferred, deferred } from '../util/deferred.ts';
import { HoldfastError } from '../util/errors.ts';

export class Gate implements Intermission {
  readonly #jobs: { work: () => Promise<void>; refuse: (error: Error) => void }[] = [];
  #paused = false;
  /** Steps that may be taken although it is paused, and the one under way. */
  readonly #steps: Deferred<void>[] = [];
  #step: Deferred<void> | undefined;
  #wake: Deferred<void> | undefined;
  #ended = false;

  get ended(): boolean {
    return this.#ended;
  }

  get paused(): boolean {
    return this.#paused;
  }

  get wanted(): boolean {
    return this.#paused || this.#jobs.length > 0;
  }

  async run(): Promise<void> {
    this.#step?.resolve();
    this.#step = undefined;
    for (;;) {
      for (let job = this.#jobs.shift(); job; job = this.#jobs.shift()) await job.work();
      if (!this.#paused || this.#ended) return;
      this.#step = this.#steps.shift();
      if (this.#step) return;
      this.#wake = deferred();
      await this.#wake.promise;
    }
  }

  pause(): void {
    this.#paused = true;
  }

  /** What was asked of single steps is taken as part of the run: none is left for the next pause. */
  unpause(): void {
    this.#paused = false;
    for (const { resolve } of this.#steps.splice(0)) resolve();
    this.#wake?.resolve();
  }

  /** Lets one step through while paused; resolves when it is done. */
  step(): Promise<void> {
    if (this.#ended) return Promise.reject(over());
    const step = deferred<void>();
    this.#steps.push(step);
    this.#wake?.resolve();
    return step.promise;
  }

  /** Runs `work` when no step is under way. Errors: those of `work`, and HoldfastError when the run ends before. */
  do<T>(work: () => Promise<T>): Promise<T> {
    if (this.#ended) return Promise.reject(over());
    return new Promise<T>((resolve, reject) => {
      this.#jobs.push({ work: () => work().then(resolve, reject), refuse: reject });
      this.#wake?.resolve();
    });
  }

  /** Nothing is let through any more but the end. */
  end(): void {
    this.#ended = true;
    this.#wake?.resolve();
    this.#step?.resolve();
    for (const { reject } of this.#steps.splice(0)) reject(over());
    for (const { refuse } of this.#jobs.splice(0)) refuse(over());
  }
}

const over = () => new HoldfastError('the run has ended; nothing more can be done between its steps');
