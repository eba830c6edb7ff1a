// `FrameMeter`: the frames per second of the last two seconds in which something was animated. Time is handed in.

import { at } from '../at.ts';

const WINDOW = 2000;

export class FrameMeter {
  #times: number[] = [];

  /** Animation begins, behind a time in which nothing was to be painted. */
  begin(): void {
    this.#times = [];
  }

  frame(time: number): void {
    this.#times.push(time);
    while (at(this.#times, 0) < time - WINDOW) this.#times.shift();
  }

  get framesPerSecond(): number {
    const first = this.#times[0] ?? 0;
    const last = this.#times.at(-1) ?? 0;
    return last > first ? ((this.#times.length - 1) * 1000) / (last - first) : 0;
  }
}
