// `ArenaParts`: an arena cut wherever something that lies in it begins or ends. Whether two ranges share memory is told
// part by part, in as many steps as a range has parts, however much else lies in the arena.

import { countTo } from '../util/fewest.ts';

export class ArenaParts {
  readonly #bounds: readonly number[];

  /** `ends`: where ranges begin and end, in bytes. */
  constructor(ends: Iterable<number>) {
    this.#bounds = [...new Set(ends)].sort((a, b) => a - b);
  }

  get count(): number {
    return Math.max(0, this.#bounds.length - 1);
  }

  /** Numbers of the parts that the bytes from `from` to `to` lie in: from `first` on, before `end`. */
  within(from: number, to: number): { first: number; end: number } {
    return {
      first: Math.max(0, countTo(this.#bounds, from) - 1),
      end: Math.min(this.count, countTo(this.#bounds, to - 1)),
    };
  }
}
