// `StopWatch`: the wall time in which at least one of several overlapping waits was on: ten fetches that wait for the
// same second count one second, not ten.

export class StopWatch {
  #waiting = 0;
  #since = 0;
  #total = 0;

  start(): void {
    if (this.#waiting++ === 0) this.#since = performance.now();
  }

  stop(): void {
    if (--this.#waiting === 0) this.#total += performance.now() - this.#since;
  }

  get milliseconds(): number {
    return this.#total + (this.#waiting > 0 ? performance.now() - this.#since : 0);
  }
}
