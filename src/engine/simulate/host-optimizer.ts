// `SimulatedHostOptimizer`: AdamW on the simulated host: updates one after the other, behind all gradients of the step,
// of values in host memory, while the GPU goes on where the executor's does (run/host-optimizer.ts).

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
  readonly #isAside: boolean;
  /** The update before: behind it the one behind the next gets its values. */
  #before: SimulatedTask | undefined;

  /** `isAside`: whether what follows is encoded while it works. */
  constructor(link: SimulatedLink, below: SimulatedBelow, isAside: boolean) {
    this.#link = link;
    this.#below = below;
    this.#isAside = isAside;
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

  /** Chunks of an index, whose gradient goes down or is there. */
  update(gradient: number, changed: readonly number[], seconds: number): void {
    const { now } = this.#link;
    this.#known ??= { behind: this.#decision ?? this.#link.sent() };
    const ready = latest([now, this.#known.behind, this.#link.arrivalOf(gradient)]);
    const all = [gradient, ...changed];
    const here = this.#below.gather(all, latest([ready, this.#before]));
    this.#before = this.#processor.last;
    const done = this.#processor.run('host', seconds, [ready, here]);
    this.#link.changeBelow(all, done);
    if (!this.#isAside) this.#link.wait(done);
    for (const chunk of changed) this.#below.change(chunk);
  }
}
