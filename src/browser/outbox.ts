// `Outbox`: the events that go to the page, gathered while it is busy with the last ones, so that a fast run costs it
// one message a frame, however many steps that is.

import type { Listener, RunEvent } from './protocol.ts';

export class Outbox {
  #listener: Listener | undefined;
  #events: RunEvent[] = [];
  #sending = false;

  /** From now on events go there; those before are lost to it. */
  listen(listener: Listener): void {
    this.#listener = listener;
    this.#events = [];
  }

  push(event: RunEvent): void {
    // Only the newest is of use.
    if (event.type === 'memory') this.#events = this.#events.filter(({ type }) => type !== 'memory');
    this.#events.push(event);
    if (!this.#sending) void this.#send();
  }

  async #send(): Promise<void> {
    this.#sending = true;
    try {
      while (this.#events.length > 0) {
        const events = this.#events;
        this.#events = [];
        await this.#listener?.(events);
      }
    } catch {
      // The page is gone, or its listener failed: its own console says so.
    } finally {
      this.#sending = false;
    }
  }
}
