// Whose turn it is on a device: work on it never mixes, and what a lost device took is done again on the next one,
// in the order in which it was asked for. Knows no device.

import { HoldfastError } from '../util/errors.ts';

/** Devices that may be lost one after the other while nothing that was asked for is done. */
const MOST_LOSSES = 5;

/** What was in turn on a device before: nothing of it was done. */
export class Replaced extends Error {
  constructor() {
    super('internal: the device was replaced');
  }
}

export class Turns {
  #last: Promise<unknown> = Promise.resolve();
  /** Counts devices. */
  #era = 0;
  #moving = false;
  /** In the order of `keep`. */
  readonly #kept = new Set<() => void>();
  #losses = 0;

  /** Runs `work` behind everything before it. It fails if the device was replaced meanwhile. */
  exclusive<T>(work: () => Promise<T>): Promise<T> {
    const era = this.#era;
    const result = this.#last.then(() => {
      if (era !== this.#era) throw new Replaced();
      return work();
    });
    this.#last = result.catch(() => {});
    return result;
  }

  /** Calls `attempt`, and again whenever there is another device, until `done`. */
  keep(attempt: () => void): void {
    this.#kept.add(attempt);
    if (!this.#moving) attempt();
  }

  done(attempt: () => void): void {
    this.#losses = 0;
    this.#kept.delete(attempt);
  }

  /**
   * Has the only turn from when the work under way has ended: whoever calls this has seen to it that it ends soon,
   * and what waits behind it fails. Then whatever is kept is attempted again, before anything else, also where
   * `move` failed.
   */
  async move(move: () => Promise<void>): Promise<void> {
    const before = this.#last;
    let open: () => void = () => {};
    this.#last = new Promise<void>((resolve) => {
      open = resolve;
    });
    this.#moving = true;
    this.#era++;
    try {
      await before;
      await move();
    } finally {
      this.#moving = false;
      open();
      for (const attempt of [...this.#kept]) attempt();
    }
  }

  /** Errors: HoldfastError when device after device is lost. */
  countLoss(): void {
    if (++this.#losses <= MOST_LOSSES) return;
    throw new HoldfastError(
      `the GPU device was lost ${this.#losses} times in a row on the same work; use a smaller batch or context or another adapter, ` +
        'and resume from the last checkpoint',
    );
  }
}
