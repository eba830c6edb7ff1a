// A simulated clock: tasks on resources that each do one at a time, in the order in which they are given. A task starts
// when its resource is free and all it needs is done, and keeps which of these it started behind: so
// what a resource stood still for can be read (`waitedFor`).
//
// Invariant: a task starts exactly when the last of what it is behind ends.

/**
 * What a task is, and what is said to be waited for while one is. `host`: AdamW there; `bubble`: what other stages of a pipeline do
 * meanwhile.
 */
export type Work = 'compute' | 'up' | 'down' | 'host' | 'network' | 'bubble' | 'diskRead' | 'diskWrite';

export interface SimulatedTask {
  readonly work: Work;
  readonly start: number;
  readonly end: number;
  /** The task whose end it started at; none for one at the beginning of time. */
  readonly behind: SimulatedTask | undefined;
}

/** A thing that does one task at a time. */
export class Resource {
  #last: SimulatedTask | undefined;

  /** The task that it was given last. */
  get last(): SimulatedTask | undefined {
    return this.#last;
  }

  /** A task of so many seconds, behind all of these. */
  run(work: Work, seconds: number, after: Iterable<SimulatedTask | undefined>): SimulatedTask {
    let behind = this.#last;
    for (const task of after) behind = later(behind, task);
    const start = behind?.end ?? 0;
    this.#last = { work, start, end: start + seconds, behind };
    return this.#last;
  }
}

/** The one that ends last; of equals the first. */
export function latest(tasks: Iterable<SimulatedTask | undefined>): SimulatedTask | undefined {
  let found: SimulatedTask | undefined;
  for (const task of tasks) found = later(found, task);
  return found;
}

/** Of two; of equals the first. */
export const later = (a: SimulatedTask | undefined, b: SimulatedTask | undefined): SimulatedTask | undefined =>
  b && (!a || b.end > a.end) ? b : a;

/** Adds to `waits`, by what it is, the work that `task` waited for since `from`: back along what each was behind. */
export function waitedFor(task: SimulatedTask, from: number, waits: Record<Work, number>): void {
  let until = task.start;
  for (let { behind } = task; behind && until > from; { behind } = behind) {
    waits[behind.work] += until - Math.max(from, behind.start);
    until = behind.start;
  }
}
