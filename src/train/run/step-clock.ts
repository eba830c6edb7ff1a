// A clock for the speed of a run: tokens per second over the time spent training, validation and saving taken out.

import { at } from '../../util/at.ts';

/** Steps over which the current speed is taken: they come in bursts where the runtime polls for results. */
const SPEED_WINDOW = 16;

/** Tokens per second over time spent training. */
export class StepClock {
  readonly #tokens: number;
  /** When the last steps ended since the clock was started, its start first; in milliseconds. */
  #times: number[] = [];
  #spent = 0;
  #steps = 0;

  constructor(tokensPerStep: number) {
    this.#tokens = tokensPerStep;
  }
  start(): void {
    this.#times = [performance.now()];
  }
  /** Steps that were started are done. */
  stop(): void {
    this.#spent += performance.now() - (this.#times.at(-1) as number);
  }
  /** One step is done: the speed of the last ones. */
  tick(): number {
    const now = performance.now();
    this.#spent += now - (this.#times.at(-1) as number);
    this.#steps++;
    this.#times.push(now);
    if (this.#times.length > SPEED_WINDOW + 1) this.#times.shift();
    const elapsed = now - at(this.#times, 0);
    return ((this.#times.length - 1) * this.#tokens * 1000) / Math.max(elapsed, 1e-3);
  }
  /** On average; undefined where there was none. */
  get secondsPerStep(): number | undefined {
    return this.#steps === 0 ? undefined : this.#spent / 1000 / this.#steps;
  }
  get average(): number {
    return (this.#tokens * this.#steps * 1000) / Math.max(this.#spent, 1e-3);
  }
}
