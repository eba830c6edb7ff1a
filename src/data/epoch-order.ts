// `EpochOrder`: the order of a fixed number of things, all of them once an epoch, in another order each.
//
// Invariant: what comes next follows from the seed, the epoch and the place in it, which are the state.

import { Random } from '../util/random.ts';

/** Numbers from 0 to below a count, epoch after epoch without end. */
export class EpochOrder {
  readonly #count: number;
  readonly #seed: number;
  readonly #word: string;
  #epoch = 0;
  #at = 0;
  #order: Uint32Array;

  /** `word`: what is counted, in the plural; another word has other orders. */
  constructor(count: number, seed: number, word: string) {
    [this.#count, this.#seed, this.#word] = [count, seed, word];
    this.#order = this.#orderOf(0);
  }

  next(): number {
    if (this.#at === this.#count) this.#begin(this.#epoch + 1);
    return this.#order[this.#at++] ?? 0;
  }

  /** The epoch, and how many of it are done. */
  state(): number[] {
    return [this.#epoch, this.#at];
  }

  /** Goes on from where `state` was taken; false, and nothing is changed, for what is no state of so many. */
  restore(state: readonly number[]): boolean {
    const [epoch = -1, at = -1] = state;
    const isPlace = state.length === 2 && state.every((value) => Number.isSafeInteger(value) && value >= 0);
    if (!isPlace || at > this.#count) return false;
    this.#begin(epoch);
    this.#at = at;
    return true;
  }

  #begin(epoch: number): void {
    this.#epoch = epoch;
    this.#at = 0;
    this.#order = this.#orderOf(epoch);
  }

  #orderOf(epoch: number): Uint32Array {
    return permutation(this.#count, new Random(this.#seed, `${this.#word} of epoch ${epoch}`));
  }
}

/** The numbers from 0 to below `count` in any order, each as likely (Fisher and Yates). */
export function permutation(count: number, random: Random): Uint32Array {
  const order = Uint32Array.from({ length: count }, (_, i) => i);
  for (let i = count - 1; i > 0; i--) {
    const other = random.below(i + 1);
    const value = order[i] ?? 0;
    order[i] = order[other] ?? 0;
    order[other] = value;
  }
  return order;
}
