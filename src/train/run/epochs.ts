// Passes over the data, as a run counts them: from steps. Not the order of the data, which is the dataset's (data/).
//
// Invariant: a function of the dataset and the step alone, so that resuming needs no state. A step belongs to the epoch of
// its first sequence.

import type { Dataset } from '../../data/dataset.ts';

/** The epochs of a run, by its steps of so many sequences. */
export class Epochs {
  readonly #dataset: Pick<Dataset, 'rowsOf'>;
  readonly #rowsPerStep: number;
  /** Sequences up to the end of each epoch that was asked about. */
  readonly #ends: number[] = [];

  constructor(dataset: Pick<Dataset, 'rowsOf'>, rowsPerStep: number) {
    this.#dataset = dataset;
    this.#rowsPerStep = rowsPerStep;
  }

  /** Epochs that are done after so many steps, and the part of the next one. */
  after(steps: number): number {
    const rows = steps * this.#rowsPerStep;
    for (let end = this.#ends.at(-1) ?? 0; end <= rows; this.#ends.push(end))
      end += Math.max(1, this.#dataset.rowsOf(this.#ends.length));
    const epoch = this.#epochOf(rows);
    const begin = this.#ends[epoch - 1] ?? 0;
    return epoch + (rows - begin) / ((this.#ends[epoch] ?? 0) - begin);
  }

  /** The first that ends behind so many sequences, among those whose end is known. */
  #epochOf(rows: number): number {
    let [low, high] = [0, this.#ends.length - 1];
    while (low < high) {
      const middle = (low + high) >> 1;
      if (rows < (this.#ends[middle] ?? 0)) high = middle;
      else low = middle + 1;
    }
    return low;
  }

  /**
   * Epochs that are done after so many steps, and the part of the next one, as if each were as long as the first: the
   * others need not be known.
   */
  about(steps: number): number {
    return (steps * this.#rowsPerStep) / Math.max(1, this.#dataset.rowsOf(0));
  }

  /** Whether the step, counted from 0, is the first of an epoch. */
  beginsWith(step: number): boolean {
    return step === 0 || this.endsWith(step - 1);
  }

  /** Whether the step is the last of an epoch. */
  endsWith(step: number): boolean {
    return Math.floor(this.after(step + 1)) > Math.floor(this.after(step));
  }
}
