// `WritesAhead`: values that will leave host memory next, written to disk while they are still there: their slots are then had at
// once, and what is read into them waits for no write. Which leave is HostPlacement's affair (host-placement.ts).
//
// Invariant: only free blocks are used, and no value leaves host memory for it.

import type { HostPlacement } from './host-placement.ts';
import type { HostTier } from './host-tier.ts';
import type { TierParts } from './pending-reads.ts';
import type { WaitQueue } from './wait-queue.ts';

/** Values that are written at once, and of how many that leave next. */
const AT_ONCE = 4;

export class WritesAhead {
  readonly #placement: HostPlacement;
  readonly #host: HostTier;
  readonly #queue: WaitQueue;
  #underWay = 0;

  constructor({ placement, host, queue }: Pick<TierParts, 'placement' | 'host' | 'queue'>) {
    this.#placement = placement;
    this.#host = host;
    this.#queue = queue;
  }

  /** Begins what there is to write where host memory is full. What goes wrong with it goes wrong again when it leaves. */
  begin(): void {
    while (this.#host.available === 0 && this.#underWay < AT_ONCE) {
      const written = this.#placement.writeAhead(AT_ONCE);
      if (!written) return;
      this.#underWay++;
      const ended = (isWell: boolean) => {
        this.#underWay--;
        this.#queue.advance();
        if (isWell) this.begin();
      };
      void this.#queue.track(
        written.then(
          () => ended(true),
          () => ended(false),
        ),
      );
    }
  }
}
