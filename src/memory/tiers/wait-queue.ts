// `WaitQueue`: requests for room below the GPU, served in order and holding nothing; and the work under way that holds
// something and will give it back. What is requested, slots or blocks, is not seen here.

interface InLine {
  /** Takes what it needs in one turn; false if that is not there. */
  start(): boolean;
  fail(error: unknown): void;
}

export class WaitQueue {
  readonly #waiting: InLine[] = [];
  readonly #underWay = new Set<Promise<unknown>>();

  get isEmpty(): boolean {
    return this.#waiting.length === 0;
  }

  /** Whether nothing is under way. */
  get isIdle(): boolean {
    return this.#underWay.size === 0;
  }

  /** What `take` gives, as soon as it gives something and all earlier requests have theirs. */
  wait<T>(take: () => T | undefined): Promise<T> {
    return new Promise((resolve, reject) => {
      const start = () => {
        const taken = take();
        if (taken !== undefined) resolve(taken);
        return taken !== undefined;
      };
      this.#waiting.push({ start, fail: reject });
    });
  }

  /** Serves requests in order as long as the first can be served: to be called whenever something was given back. */
  advance(): void {
    for (let first = this.#waiting[0]; first; first = this.#waiting[0]) {
      try {
        if (!first.start()) return;
      } catch (error) {
        first.fail(error);
      }
      this.#waiting.shift();
    }
  }

  track<T>(work: Promise<T>): Promise<T> {
    const tracked = work.finally(() => this.#underWay.delete(tracked));
    this.#underWay.add(tracked);
    return tracked;
  }

  /** Fails what stands in line and waits for what is under way. */
  async end(error: Error): Promise<void> {
    for (const waiting of this.#waiting.splice(0)) waiting.fail(error);
    while (this.#underWay.size > 0) await Promise.allSettled(this.#underWay);
  }
}
