// Activations that move on a simulated clock, by the rules of run/moved-activations.ts. What is appended to moves as it does where
// the most is there.

import type { Move } from '../compile/moves.ts';
import { lastPosition, type MovedPart, movedParts } from '../compile/stash-ids.ts';
import type { Command, SimulatedLink } from './link.ts';
import type { SharedPlaces } from './shared-places.ts';
import type { SimulatedBelow } from './stashes.ts';

export class SimulatedActivations {
  readonly #link: SimulatedLink;
  readonly #below: SimulatedBelow;
  readonly #places: SharedPlaces<Command>;

  constructor(link: SimulatedLink, below: SimulatedBelow, places: SharedPlaces<Command>) {
    this.#link = link;
    this.#below = below;
    this.#places = places;
  }

  offload(move: Move): void {
    const { tensor } = move.operation;
    const written = this.#places.writers(tensor);
    for (const { id, bytes } of partsOf(move)) {
      const [copy] = this.#link.store([{ id, bytes, after: written }]);
      this.#places.leaves(tensor, copy);
    }
  }

  /** `roomUp` waits until staging has room for a piece. */
  fetch(move: Move, roomUp: () => void): void {
    const { tensor, keeps, rows } = move.operation;
    const free = this.#places.ready([tensor]);
    for (const { id, bytes } of partsOf(move)) {
      // Until something was moved there for the first time, there is nothing.
      if (rows && !this.#below.hasStash(id)) continue;
      awaitBelow(id, this.#link, this.#below, roomUp);
      this.#places.arrives(tensor, this.#link.send(bytes, free));
      if (keeps) this.#below.release(id);
      else this.#below.discard(id);
    }
  }
}

const partsOf = ({ operation, pieces }: Move): MovedPart[] => {
  const { op, rows } = operation;
  return movedParts({ op, pieces, ...(rows && { rows }) }, lastPosition(operation));
};

/** Waits until a value below can be sent up: it has arrived there, there is room for it, it was read. */
export function awaitBelow(id: number, link: SimulatedLink, below: SimulatedBelow, roomUp: () => void): void {
  link.awaitArrival(id);
  roomUp();
  link.wait(below.fetch(id, link.now));
}
