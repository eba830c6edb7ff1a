// `StoppableWait`: waits, one at a time, that something which goes wrong elsewhere ends. What was waited for goes on; its outcome is ignored.

export class StoppableWait {
  #stopped: { readonly reason: unknown } | undefined;
  #end: ((reason: unknown) => void) | undefined;

  /** Errors: as `what`, and what `stop` was told before or is told meanwhile. */
  async until<T>(what: Promise<T>): Promise<T> {
    try {
      return await new Promise<T>((resolve, reject) => {
        this.#end = reject;
        what.then(resolve, reject);
        if (this.#stopped) reject(this.#stopped.reason);
      });
    } finally {
      this.#end = undefined;
    }
  }

  /** From now on every wait ends with the first reason. */
  stop(reason: unknown): void {
    this.#stopped ??= { reason };
    this.#end?.(this.#stopped.reason);
  }
}
