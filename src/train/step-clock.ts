// A clock for the speed of a run: tokens per second over the time spent training, validation and saving taken out.

import { at } from '../util/at.ts';

/** Steps over which the current speed is taken: they come in bursts where the runtime polls for results. */
const SPEED_WINDOW = 16;

/** Tokens per second over time spent training. */
export class StepClock {
  readonly #tokens: number;
  /** The moments of the last steps since the clock was started, its start first. */
  #moments: number[] = [];
  #spent = 0;
  #steps = 0;

  constructor(tokensPerStep: number) {
    this.#tokens = tokensPerStep;
  }
  start(): void {
    this.#moments = [performance.now()];
  }
  /** Steps that were started are done. */
  stop(): void {
    this.#spent += performance.now() - (this.#moments.at(-1) as number);
  }
  /** One step is done: the speed of the last ones. */
  tick(): number {
    const now = performance.now();
    this.#spent += now - (this.#moments.at(-1) as number);
    this.#steps++;
    this.#moments.push(now);
    if (this.#moments.length > SPEED_WINDOW + 1) this.#moments.shift();
    const elapsed = now - at(this.#moments, 0);
    return ((this.#moments.length - 1) * this.#tokens * 1000) / Math.max(elapsed, 1e-3);
  }
  get average(): number {
    return (this.#tokens * this.#steps * 1000) / Math.max(this.#spent, 1e-3);
  }
}
