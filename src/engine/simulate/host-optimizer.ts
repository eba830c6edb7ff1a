// `SimulatedHostOptimizer`: AdamW on the simulated host: updates one after the other, behind all gradients of the step,
// of values in host memory, while the GPU goes on where the executor's does (run/host-optimizer.ts); or each behind its own
// gradient, beside the old values (run/updates-ahead.ts), of steps that are neither clipped nor skipped.

import { at } from '../../util/at.ts';
import { type HostOperation, isOnHost, type Operation } from '../compile/operations.ts';
import { latest, Resource, type SimulatedTask } from './clock.ts';
import type { SimulatedLink } from './link.ts';
import type { SimulatedBelow } from './stashes.ts';

export interface SimulatedOnHost {
  /** Whether what follows is encoded while it works. */
  readonly aside: boolean;
  /** Of the pass, and their seconds. */
  readonly operations: readonly Operation[];
  readonly seconds: Float64Array;
  /** Chunks that may be made beside others. */
  readonly room: number;
}

export class SimulatedHostOptimizer {
  readonly #link: SimulatedLink;
  readonly #below: SimulatedBelow;
  readonly #processor = new Resource();
  /** Behind this the gradients of the step lie below; undefined until the step updates something. */
  #known: { readonly behind: SimulatedTask | undefined } | undefined;
  /** What was on its way down, and computed, when the step was decided. @default all that is */
  #decision: SimulatedTask | undefined;
  readonly #isAside: boolean;
  readonly #seconds: Float64Array;
  /** The update before: behind it the one behind the next gets its values. */
  #before: SimulatedTask | undefined;
  /** Chunks that may be made beside others yet. */
  #room: number;
  /** By their moments: what may begin before the step is decided. */
  readonly #mayBegin: readonly (readonly [moment: number, operation: HostOperation])[];
  /** By moment, in the order of their gradients, which arrive behind these: what begins if its turn comes before the decision. */
  readonly #waiting = new Map<number, { readonly arrival: SimulatedTask | undefined; readonly count: number }>();
  /** By moment: what was computed before. */
  readonly #made = new Map<number, SimulatedTask>();

  constructor(link: SimulatedLink, below: SimulatedBelow, { aside, operations, seconds, room }: SimulatedOnHost) {
    this.#link = link;
    this.#below = below;
    this.#isAside = aside;
    this.#seconds = seconds;
    this.#room = room;
    this.#mayBegin = [...(room > 0 ? operations : []).entries()].flatMap(([moment, operation]) =>
      isOnHost(operation) ? [[moment, operation] as const] : [],
    );
  }

  /** A step begins. */
  restart(): void {
    this.#known = undefined;
    this.#decision = undefined;
    this.#waiting.clear();
  }

  /** The step is decided: as `HostOptimizer.markDecision`. */
  markDecision(): void {
    this.#decision = this.#link.sent();
  }

  /** The gradients in these chunks are on their way down, complete: behind them what may begin does, where there is room. */
  gradientsBelow(gradients: readonly number[]): void {
    for (const [moment, { chunks }] of this.#mayBegin) {
      const { gradient, ...changed } = chunks;
      if (!gradients.includes(gradient)) continue;
      this.#waiting.set(moment, { arrival: this.#link.arrivalOf(gradient), count: Object.keys(changed).length });
    }
  }

  /** What has begun by then. */
  #beginUntil(decision: SimulatedTask | undefined): void {
    for (const [moment, { arrival, count }] of this.#waiting) {
      const start = Math.max(this.#processor.last?.end ?? 0, arrival?.end ?? 0);
      if (this.#room < count || start >= (decision?.end ?? 0)) continue;
      this.#room -= count;
      this.#made.set(moment, this.#processor.run('host', at(this.#seconds, moment), [arrival]));
    }
  }

  /** Chunks of an index, whose gradient goes down or is there. */
  update(gradient: number, changed: readonly number[], moment: number): void {
    const { now } = this.#link;
    if (!this.#known) {
      this.#known = { behind: this.#decision ?? this.#link.sent() };
      this.#beginUntil(this.#known.behind);
    }
    const ready = latest([now, this.#known.behind, this.#link.arrivalOf(gradient)]);
    const all = [gradient, ...changed];
    const made = this.#made.get(moment);
    const done = made
      ? this.#replace(moment, made, ready, changed.length)
      : this.#update(all, ready, at(this.#seconds, moment));
    this.#link.changeBelow(all, done);
    if (!this.#isAside) this.#link.wait(done);
    for (const chunk of changed) this.#below.change(chunk);
  }

  #update(all: readonly number[], ready: SimulatedTask | undefined, seconds: number): SimulatedTask {
    const here = this.#below.gather(all, latest([ready, this.#before]));
    this.#before = this.#processor.last;
    return this.#processor.run('host', seconds, [ready, here]);
  }

  #replace(moment: number, made: SimulatedTask, ready: SimulatedTask | undefined, chunks: number): SimulatedTask {
    this.#made.delete(moment);
    this.#room += chunks;
    return latest([made, ready]) ?? made;
  }
}
