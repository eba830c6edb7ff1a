// `ScheduledReads`: values read from the tiers below and sent to the GPU, at the moments of a schedule. The tiers get the order
// in which chunks are brought next, and reading begins before the moment that needs a value.
//
// Invariant: what is read ahead changes when a value comes, never which value.

import type { Below } from '../../memory/tiers/below.ts';
import { at } from '../../util/at.ts';
import { assert } from '../../util/errors.ts';
import type { PassSchedule } from '../compile/schedule.ts';
import type { ChunkCopies } from './copies.ts';
import type { Link } from './link.ts';

export class ScheduledReads {
  /** Chunks whose reading from disk begins before they are needed. */
  ahead: number;
  readonly #link: Link;
  readonly #copies: ChunkCopies;
  readonly #tiers: Below;
  #schedule: PassSchedule | undefined;
  /** The first moment of the plan's step that runs. */
  #base = 0;

  constructor(link: Link, copies: ChunkCopies, tiers: Below, ahead: number) {
    this.#link = link;
    this.#copies = copies;
    this.#tiers = tiers;
    this.ahead = ahead;
  }

  /** A pass begins, with the plan's step of that number. */
  begin(schedule: PassSchedule, round: number): void {
    this.#schedule = schedule;
    this.#base = round * schedule.trace.moments.length;
    this.#order(0);
  }

  /** Sends up the newest value that lies below or is on its way there, when there is room for it: its bytes are lent. */
  async send(chunk: number, moment: number, send: (bytes: Uint8Array<ArrayBuffer>) => void): Promise<void> {
    await this.#link.arrival(chunk);
    // It may be one that was lost on its way down.
    this.#link.check();
    this.start(moment);
    await this.#link.roomUp();
    send(this.#tiers.peek(chunk) ?? (await this.#link.waiting('below', this.#tiers.fetch(chunk))));
  }

  /** Starts reading what the moments after this one bring. */
  start(moment: number): void {
    this.#order(moment);
    if (this.ahead === 0) return;
    const { plan, trace } = this.#begun;
    const { length } = plan.moments;
    let ahead = this.ahead;
    for (let i = 1; i < length && ahead > 0; i++) {
      const then = (this.#base + moment + i) % length;
      const { fetches = [], onHost = [] } = at(trace.moments, then % trace.moments.length);
      for (const chunk of [...at(plan.moments, then).load, ...fetches, ...onHost.map(({ chunk }) => chunk)]) {
        if (this.#copies.onGPU(chunk) || this.#copies.isGoingDown(chunk) || this.#copies.isMade(chunk)) continue;
        this.#tiers.prefetch(chunk);
        if (--ahead === 0) return;
      }
    }
  }

  /** Tells the tiers below when each chunk will be brought again. */
  #order(moment: number): void {
    const { loadsOf, plan } = this.#begun;
    const now = this.#base + moment;
    this.#tiers.setOrder((chunk) => {
      if (this.#copies.isMade(chunk)) return Number.POSITIVE_INFINITY;
      // Updates were encoded before, and get their values one after the other.
      const change = this.#copies.changeOf(chunk);
      if (change !== undefined) return -1 / change;
      if (this.#copies.isGoingDown(chunk)) return now;
      const loads = loadsOf.get(chunk);
      if (!loads) return Number.POSITIVE_INFINITY;
      return loads.find((load) => load > now) ?? at(loads, 0) + plan.moments.length;
    });
  }

  get #begun(): PassSchedule {
    assert(this.#schedule, 'nothing is read before a pass begins');
    return this.#schedule;
  }
}
