// `ComingLoads`: what a schedule brings, and when, around and around: when a value is needed next, and what is needed behind a
// moment. Moments are those of the plan, over all its rounds.

import { at } from '../../util/at.ts';
import type { PassSchedule } from '../compile/schedule.ts';

export class ComingLoads {
  readonly #loadsOf: PassSchedule['loadsOf'];
  readonly #moments: number;
  /** In their order, made when they are asked for. */
  #all: readonly { readonly moment: number; readonly id: number }[] | undefined;

  constructor({ loadsOf, plan }: Pick<PassSchedule, 'loadsOf' | 'plan'>) {
    this.#loadsOf = loadsOf;
    this.#moments = plan.moments.length;
  }

  get count(): number {
    return this.#inOrder.length;
  }

  /** The first moment behind `now` that needs it, counted on into the next round; infinite where none does. */
  next(id: number, now: number): number {
    const loads = this.#loadsOf.get(id);
    if (!loads) return Number.POSITIVE_INFINITY;
    return loads.find((load) => load > now) ?? at(loads, 0) + this.#moments;
  }

  /** All of them once, from the first that is needed behind `now`. */
  *behind(now: number): Generator<number, void> {
    const all = this.#inOrder;
    const first = Math.max(
      0,
      all.findIndex(({ moment }) => moment > now),
    );
    for (let i = 0; i < all.length; i++) yield at(all, (first + i) % all.length).id;
  }

  get #inOrder() {
    this.#all ??= [...this.#loadsOf]
      .flatMap(([id, moments]) => moments.map((moment) => ({ moment, id })))
      .sort((a, b) => a.moment - b.moment || a.id - b.id);
    return this.#all;
  }
}
