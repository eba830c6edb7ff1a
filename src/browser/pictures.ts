// Pictures of steps for a page that looks at the memory: one is taken when it is asked for, of a step that is due
// anyway, and given when what the step moved has arrived. Without a request there is no cost.

import type { Fit } from '../engine/compile/fitted.ts';
import type { StepPasses } from '../engine/compile/pass.ts';
import { fetchedBytes, offloadedBytes } from '../engine/compile/pass-figures.ts';
import { slotsAt } from '../engine/compile/schedule.ts';
import { chunkHistory } from '../engine/observe/chunk-history.ts';
import { linkBytes, type Recording } from '../engine/observe/recording.ts';
import type { Session } from '../engine/run/session.ts';
import { findGaps } from '../memory/plan/gaps.ts';
import { memoryBound } from '../train/run/memory-bound.ts';
import type { MemoryBound } from '../train/run/memory-record.ts';
import type { Observer } from '../train/run/run-events.ts';
import { type Deferred, deferred } from '../util/deferred.ts';
import type { StepPicture } from './protocol.ts';

/** More gaps than this take seconds to solve, in which nothing trains. */
const MOST_GAPS = 5000;

export class Pictures implements Observer {
  readonly #run: string;
  readonly #session: () => Session<StepPasses>;
  #asked: Deferred<StepPicture | undefined> | undefined;
  #ended = false;
  readonly #bounds = new WeakMap<Fit, Promise<MemoryBound | undefined>>();

  constructor(run: string, session: () => Session<StepPasses>) {
    this.#run = run;
    this.#session = session;
  }

  get wanted(): boolean {
    return this.#asked !== undefined;
  }

  /** Of the next step that is recorded whole; undefined when the run ends before. */
  next(): Promise<StepPicture | undefined> {
    if (this.#ended) return Promise.resolve(undefined);
    this.#asked ??= deferred();
    return this.#asked.promise;
  }

  recorded(step: number, recording: Recording, arrived: Promise<void>): void {
    // As it is now: the budget may change before everything has arrived.
    const { fit, memory, scheduleOf } = this.#session();
    const { moved } = scheduleOf(recording.pass);
    const { policy = 'planned', gpu } = memory;
    const bound = memory.gpu === undefined ? undefined : this.#boundOf(this.#session());
    void arrived.then(async () => {
      const asked = this.#asked;
      if (!asked) return;
      const solved = await bound;
      if (this.#asked !== asked) return;
      this.#asked = undefined;
      asked.resolve({
        run: this.#run,
        step,
        milliseconds: millisecondsOf(recording),
        history: chunkHistory(recording, fit),
        bytes: linkBytes(recording),
        offloaded: offloadedBytes(recording.pass),
        fetched: fetchedBytes(recording.pass),
        planned: moved,
        ...(solved && { bound: solved }),
        ...(typeof gpu === 'number' && { budget: gpu }),
        policy: typeof policy === 'string' ? policy : 'planned',
      });
    });
  }

  end(): void {
    this.#ended = true;
    this.#asked?.resolve(undefined);
    this.#asked = undefined;
  }

  #boundOf(session: Session<StepPasses>): Promise<MemoryBound | undefined> {
    const { fit } = session;
    const known = this.#bounds.get(fit);
    if (known) return known;
    const { trace, extra } = fit.passes.step;
    const { list } = findGaps(trace, slotsAt(trace, fit.slots, extra));
    // A solver that cannot be had leaves a picture without its bound; the next tries again.
    const bound =
      list.length > MOST_GAPS
        ? Promise.resolve(undefined)
        : memoryBound(session, 0).catch(() => {
            this.#bounds.delete(fit);
            return undefined;
          });
    this.#bounds.set(fit, bound);
    return bound;
  }
}

/** From the first moment's encoding to the last byte's arrival. */
function millisecondsOf({ encoded, transfers }: Recording): number {
  const [first = 0] = encoded;
  const last = transfers.reduce((latest, { to = 0 }) => Math.max(latest, to), encoded.at(-1) ?? first);
  return last - first;
}
