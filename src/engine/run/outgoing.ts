// `Outgoing`: values on their way to other ranks, which nothing waits for: each leaves behind the one before it, as soon as it lies
// in host memory.
//
// Invariant: values on their way lie in as many rooms as exchange-memory.ts says, at most, each as large as the largest.

import type { Link } from './link.ts';
import { growTo, noRooms } from './rooms.ts';

type Bytes = Uint8Array<ArrayBuffer>;

/** Memory of a value to send. */
export interface OutgoingRoom {
  readonly room: Bytes;
  /** As many of it as the value has. */
  readonly bytes: Bytes;
}

export class Outgoing {
  readonly #link: Pick<Link, 'others' | 'stop'>;
  readonly #rooms = noRooms();
  readonly #underWay: Promise<void>[] = [];
  /** Resolves when what was given last has left. */
  #last: Promise<unknown> = Promise.resolve();

  constructor(link: Pick<Link, 'others' | 'stop'>) {
    this.#link = link;
  }

  /** Bytes of host memory that it has. */
  get bytes(): number {
    return this.#rooms.count * this.#rooms.bytes;
  }

  /** Makes ready for values of so many bytes, at most so many at once. */
  async grow(size: { readonly bytes: number; readonly most: number }): Promise<void> {
    if (size.bytes > this.#rooms.bytes) await this.#link.others(Promise.all(this.#underWay));
    growTo(this.#rooms, size);
  }

  /** Memory for a value. Ranks that are far behind are waited for. */
  async room(size: number): Promise<OutgoingRoom> {
    for (;;) {
      const room = this.#rooms.free.pop();
      if (room) return { room, bytes: room.subarray(0, size) };
      await this.#link.others(Promise.race(this.#underWay));
    }
  }

  /** `send`: called when the value is `there`, and all before it were sent; resolves when it is taken. */
  send({ room }: OutgoingRoom, send: () => Promise<void>, there: Promise<void> = Promise.resolve()): void {
    const sending = Promise.all([this.#last, there]).then(() => ({ sent: send() }));
    this.#last = sending;
    const taken = sending
      .then(({ sent }) => sent)
      .finally(() => {
        this.#underWay.splice(this.#underWay.indexOf(taken), 1);
        if (room.length === this.#rooms.bytes) this.#rooms.free.push(room);
      });
    // What goes wrong is thrown at the next check.
    taken.catch((reason: unknown) => this.#link.stop(reason));
    this.#underWay.push(taken);
  }
}
