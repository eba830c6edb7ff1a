// `BetweenSteps`: the time between two steps, in which a run may be saved, or its state read, from outside. Invariant: what is begun there, one after
// the other, is over before the next step.

import { HoldfastError } from '../../util/errors.ts';

export class BetweenSteps {
  #isNow = false;
  #last: Promise<unknown> = Promise.resolve();

  /** Lets work in until this is over. */
  async during(intermission: () => Promise<void>): Promise<void> {
    this.#isNow = true;
    try {
      await intermission();
    } finally {
      this.#isNow = false;
      await this.#last;
    }
  }

  /** `work`, behind what was begun before it. Errors: HoldfastError at any other time. */
  async do<T>(work: () => Promise<T>): Promise<T> {
    if (!this.#isNow)
      throw new HoldfastError(
        'a run is saved, and its state read, between two steps: in the intermission of its options; a callback asks for a checkpoint by shouldSave',
      );
    const done = this.#last.then(work);
    this.#last = done.catch(() => {});
    return done;
  }
}
