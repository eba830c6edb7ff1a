// `DeviceMutex`: a mutex over the device, plus the list of work that is done again on the next one after a device loss, in
// the order in which it was asked for. Knows no device.
//
// Invariant: losses are counted against the oldest work that is not done. Only its end is progress, so a device that
// is lost at the same place again and again is given up after MOST_LOSSES tries, whatever else gets done meanwhile.

import { HoldfastError } from '../../util/errors.ts';

/** Devices that may be lost one after the other while the oldest work that was asked for is not done. */
const MOST_LOSSES = 5;

/** What was in turn on a device before: nothing of it was done. */
export class Replaced extends Error {
  constructor() {
    super('internal: the device was replaced');
  }
}

/** Another device would be lost at the same place: there is no point in one more try. */
export class LostForGood extends HoldfastError {
  override name = 'LostForGood';
}

/** Work that is attempted until it is done. */
export interface Kept {
  /** For messages: what was under way "during ...". */
  readonly what: string;
  readonly attempt: () => void;
}

export class DeviceMutex {
  #last: Promise<unknown> = Promise.resolve();
  /** Counts devices. */
  #era = 0;
  #moving = false;
  /** In the order of `keep`. */
  readonly #kept = new Set<Kept>();
  #losses = 0;
  /** The oldest work when the last device was lost. */
  #blamed: Kept | undefined;

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

  /** Attempts the work, and again whenever there is another device, until `done`. */
  keep(work: Kept): void {
    this.#kept.add(work);
    if (!this.#moving) work.attempt();
  }

  done(work: Kept): void {
    this.#kept.delete(work);
  }

  /** What was asked for first of all that is not done. */
  get oldest(): Kept | undefined {
    const [oldest] = this.#kept;
    return oldest;
  }

  /**
   * Runs `move` alone, once the work under way has ended: the caller makes that end soon, and what waits behind it fails.
   * Then the kept work is attempted again, before anything else, also where `move` failed.
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
      for (const { attempt } of [...this.#kept]) attempt();
    }
  }

  /** Counts a lost device; `place` is for the message. Errors: LostForGood when that was one too many. */
  countLoss(place: string): void {
    const { oldest } = this;
    if (oldest !== this.#blamed) this.#losses = 0;
    this.#blamed = oldest;
    if (++this.#losses <= MOST_LOSSES) return;
    throw new LostForGood(
      `the GPU device was lost ${this.#losses} times in a row during ${place}; use a smaller batch or context or another ` +
        'adapter, and resume from the last checkpoint',
    );
  }
}
