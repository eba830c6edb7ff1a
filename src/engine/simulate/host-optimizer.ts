// `SimulatedHostOptimizer`: AdamW on the simulated host: updates one after the other, behind all gradients of the step,
// of values in host memory.

import { Resource, type SimulatedTask } from './clock.ts';
import type { SimulatedLink } from './link.ts';
import type { SimulatedBelow } from './stashes.ts';

export class SimulatedHostOptimizer {
  readonly #link: SimulatedLink;
  readonly #below: SimulatedBelow;
  readonly #processor = new Resource();
  /** Whether this step has updated anything. */
  #hasBegun = false;
  /** What was on its way down, and computed, when the step was decided. @default all that is */
  #decision: SimulatedTask | undefined;

  constructor(link: SimulatedLink, below: SimulatedBelow) {
    this.#link = link;
    this.#below = below;
  }

  /** A step begins. */
  begin(): void {
    this.#hasBegun = false;
    this.#decision = undefined;
  }

  /** The step is decided: as `HostOptimizer.markDecision`. */
  markDecision(): void {
    this.#decision = this.#link.sent();
  }

  /** Chunks of an index, whose gradient goes down or is there: what is encoded goes on behind it. */
  update(gradient: number, changed: readonly number[], seconds: number): void {
    if (!this.#hasBegun) this.#link.wait(this.#decision ?? this.#link.sent());
    this.#hasBegun = true;
    this.#link.awaitArrival(gradient);
    const here = this.#below.gather([gradient, ...changed], this.#link.now);
    this.#link.wait(this.#processor.run('host', seconds, [this.#link.now, here]));
    for (const chunk of changed) this.#below.change(chunk);
  }
}
