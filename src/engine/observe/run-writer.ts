// `RunWriter`: a value over the moments of a step, written as runs: values and how often they follow on themselves.

import type { RunLengths } from './chunk-codes.ts';

export class RunWriter {
  readonly #runs: number[] = [];
  #since = 0;

  /** The value is this from moment `m` on. */
  from(m: number, value: number): void {
    if (this.#runs.at(-1) === value && this.#runs.length % 2 === 1) return;
    this.end(m);
    this.#runs.push(value);
    this.#since = m;
  }

  /** Closes the last run. */
  end(m: number): RunLengths {
    if (this.#runs.length % 2 === 1) this.#runs.push(m - this.#since);
    return this.#runs;
  }
}

/** The runs of a value that is given at each moment. */
export function runsOf(values: ArrayLike<number>): RunLengths {
  const writer = new RunWriter();
  for (let m = 0; m < values.length; m++) writer.from(m, values[m] ?? 0);
  return writer.end(values.length);
}
