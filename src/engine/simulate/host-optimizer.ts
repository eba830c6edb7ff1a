// `SimulatedHostOptimizer`: AdamW on the simulated host: updates one after the other, behind all gradients of the step,
// of values in host memory, while the GPU goes on where the executor's does (run/host-optimizer.ts); or each behind its own
// gradient, beside the old values (run/updates-ahead.ts), of steps that are neither clipped nor skipped.

import type { Spared } from '../../memory/tiers/tier-limits.ts';
import { at } from '../../util/at.ts';
import { type HostOperation, isOnHost, type Operation } from '../compile/operations.ts';
import { UPDATES_AT_ONCE } from '../run/host-optimizer.ts';
import { latest, Resource, type SimulatedTask } from './clock.ts';
import type { SimulatedLink } from './link.ts';
import type { SimulatedBelow } from './stashes.ts';

export interface SimulatedOnHost {
  /** Whether what follows is encoded while it works. */
  readonly aside: boolean;
  /** Of the pass, and their seconds. */
  readonly operations: readonly Operation[];
  readonly seconds: Float64Array;
  /** Chunks that may be made beside others, before a step is decided. @default none */
  readonly ahead: Spared | undefined;
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
  /** The updates before: behind the first of them the next gets its values. */
  #before: readonly (SimulatedTask | undefined)[] = Array.from({ length: UPDATES_AT_ONCE - 1 }, () => undefined);
  /** Chunks that may be made beside others yet, and those of them that may stay in host memory. */
  #room: number;
  #slots: number;
  readonly #isFromDisk: boolean;
  /** By their moments: what may begin before the step is decided. */
  readonly #mayBegin: readonly (readonly [moment: number, operation: HostOperation])[];
  /** By moment, in the order of their gradients, which arrive behind these: what begins if its turn comes before the decision. */
  readonly #waiting = new Map<
    number,
    { readonly arrival: SimulatedTask | undefined; readonly operation: HostOperation }
  >();
  /** By moment: what was computed before, and what it is on disk behind, by chunk. */
  readonly #made = new Map<
    number,
    { readonly task: SimulatedTask; readonly stowed: ReadonlyMap<number, SimulatedTask> }
  >();

  /** Chunks of these. */
  readonly #madeOf = new Set<number>();

  constructor(link: SimulatedLink, below: SimulatedBelow, { aside, operations, seconds, ahead }: SimulatedOnHost) {
    this.#link = link;
    this.#below = below;
    this.#isAside = aside;
    this.#seconds = seconds;
    const { chunks: room, slots, onDisk } = ahead ?? { chunks: 0, slots: 0, onDisk: false };
    [this.#room, this.#slots, this.#isFromDisk] = [room, slots, onDisk];
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
    for (const [moment, operation] of this.#mayBegin) {
      const { gradient } = operation.chunks;
      if (!gradients.includes(gradient)) continue;
      const arrival = this.#link.arrivalOf(gradient);
      this.#waiting.set(moment, { arrival, operation });
      // The disk does what it is given in this order.
      if (this.#isFromDisk) this.#beginUntil(arrival);
    }
  }

  /** Whether an update that is made of a chunk's value waits for the decision: see `ChunkCopies.isMade`. */
  isMade(chunk: number): boolean {
    return this.#madeOf.has(chunk);
  }

  /** What has begun by then. */
  #beginUntil(end: SimulatedTask | undefined): void {
    for (const [moment, { arrival, operation }] of this.#waiting) {
      const start = Math.max(this.#processor.last?.end ?? 0, arrival?.end ?? 0);
      if (start >= (end?.end ?? 0)) continue;
      this.#waiting.delete(moment);
      const { gradient, parameter, ...others } = operation.chunks;
      const changed = [parameter, ...Object.values(others)];
      const stowed = this.#isFromDisk ? this.#stowedOf(changed) : [];
      const inHost = changed.length - stowed.length;
      if (this.#room < changed.length || this.#slots < inHost || (this.#isFromDisk && stowed.length === 0)) continue;
      this.#room -= changed.length;
      this.#slots -= inHost;
      if (this.#isFromDisk) for (const chunk of [gradient, ...changed]) this.#madeOf.add(chunk);
      const ready = this.#isFromDisk
        ? this.#below.gather([gradient, ...changed], latest([arrival, this.#processor.last]))
        : undefined;
      const task = this.#processor.run('host', at(this.#seconds, moment), [arrival, ready]);
      this.#made.set(moment, { task, stowed: new Map(stowed.map((chunk) => [chunk, this.#below.stow(chunk, task)])) });
    }
  }

  /** Of values, the parameters' first, those that go to disk: as UpdatesAhead has it. */
  #stowedOf(changed: readonly number[]): readonly number[] {
    const [parameter] = changed;
    const found = changed.filter((chunk) => this.#below.isOnDisk(chunk));
    const others = found.filter((chunk) => chunk !== parameter);
    return others.length > 0 && this.#slots > changed.length - found.length ? others : found;
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
      ? this.#replace(moment, made.task, ready, changed.length)
      : this.#update(all, ready, at(this.#seconds, moment));
    this.#link.changeBelow(all, done);
    if (!this.#isAside) this.#link.wait(done);
    for (const chunk of all) this.#madeOf.delete(chunk);
    if (made) this.#slots += changed.length - made.stowed.size;
    for (const chunk of changed) {
      const written = made?.stowed.get(chunk);
      if (written) this.#below.putStowed(chunk, written);
      // The old one may have left host memory, and the new one did not.
      else if (made && this.#isFromDisk) this.#below.put(chunk, done, 0);
      else this.#below.change(chunk);
    }
  }

  #update(all: readonly number[], ready: SimulatedTask | undefined, seconds: number): SimulatedTask {
    const [before, ...later] = this.#before;
    this.#before = [...later, this.#processor.last];
    const here = this.#below.gather(all, latest([ready, before]));
    return this.#processor.run('host', seconds, [ready, here]);
  }

  #replace(moment: number, made: SimulatedTask, ready: SimulatedTask | undefined, chunks: number): SimulatedTask {
    this.#made.delete(moment);
    this.#room += chunks;
    return latest([made, ready]) ?? made;
  }
}
