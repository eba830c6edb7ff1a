// `SimulatedHostOptimizer`: AdamW on the simulated host: updates one after the other, behind all gradients of the step,
// of values in host memory, while the GPU goes on.

import { latest, Resource, type SimulatedTask } from './clock.ts';
import type { SimulatedLink } from './link.ts';
import type { SimulatedBelow } from './stashes.ts';

export class SimulatedHostOptimizer {
  readonly #link: SimulatedLink;
  readonly #below: SimulatedBelow;
  readonly #processor = new Resource();
  /** Behind this the gradients of the step lie below; undefined until the step updates something. */
  #known: { readonly behind: SimulatedTask | undefined } | undefined;
  /** What was on its way down, and computed, when the step was decided. @default all that is */
  #decision: SimulatedTask | undefined;
  /** The last but one: behind it the next gets its values. */
  #before: SimulatedTask | undefined;

  constructor(link: SimulatedLink, below: SimulatedBelow) {
    this.#link = link;
    this.#below = below;
  }

  /** A step begins. */
  begin(): void {
    this.#known = undefined;
    this.#decision = undefined;
  }

  /** The step is decided: as `HostOptimizer.markDecision`. */
  markDecision(): void {
    this.#decision = this.#link.sent();
  }

  /** Chunks of an index, whose gradient goes down or is there. What is encoded goes on meanwhile. */
  update(gradient: number, changed: readonly number[], seconds: number): void {
    const { now } = this.#link;
    this.#known ??= { behind: this.#decision ?? this.#link.sent() };
    const ready = latest([now, this.#known.behind, this.#link.arrivalOf(gradient)]);
    const all = [gradient, ...changed];
    const here = this.#below.gather(all, latest([ready, this.#before]));
    this.#before = this.#processor.last;
    this.#link.changeBelow(all, this.#processor.run('host', seconds, [ready, here]));
    for (const chunk of changed) this.#below.change(chunk);
  }
}
