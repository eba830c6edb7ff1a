// The middle tier: slots of host memory, one chunk each, made when first needed, reused, never more than the
// limit allows. Says which slots are in use and by which chunk, never which of them must leave.
//
// A slot is *held* while something under way counts on it (a read or write, a put that will fill it), and *lent*
// from the moment its bytes are handed out until the end of that turn of the event loop: everything that awaited them
// has run by then. Invariant: a slot is given to another chunk only when it has no owner, is not held and not lent.

import { assert, HoldfastError } from '../../util/errors.ts';

/** A slot that belongs to no chunk. */
export const NO_OWNER = -1;

export interface Slot {
  readonly bytes: Uint8Array<ArrayBuffer>;
  /** The chunk whose valid value lies here, or NO_OWNER. */
  owner: number;
  holds: number;
  lent: boolean;
}

export class HostTier {
  /** All that were made; their number times the chunk size is the memory in use. */
  readonly slots: Slot[] = [];
  readonly #limit: number;
  readonly #chunkBytes: number;
  readonly #onTurnEnd: () => void;
  readonly #allocate: (bytes: number) => Uint8Array<ArrayBuffer>;
  readonly #free: Slot[] = [];
  #lent: Slot[] = [];
  #turn: Promise<void> | undefined;

  /** `limit`: slots. `onTurnEnd` is called whenever lent slots came back. */
  constructor(
    limit: number,
    chunkBytes: number,
    onTurnEnd: () => void,
    allocate: (bytes: number) => Uint8Array<ArrayBuffer> = (bytes) => new Uint8Array(bytes),
  ) {
    this.#limit = limit;
    this.#chunkBytes = chunkBytes;
    this.#onTurnEnd = onTurnEnd;
    this.#allocate = allocate;
  }

  get available(): number {
    return this.#free.length + this.#limit - this.slots.length;
  }

  /** A slot without an owner, held for the caller; undefined when all are in use. Errors: HoldfastError without memory. */
  take(): Slot | undefined {
    const slot = this.#free.pop() ?? (this.slots.length < this.#limit ? this.#make() : undefined);
    if (slot) slot.holds = 1;
    return slot;
  }

  /** Makes slots until there are so many, or memory for no more. Returns how many there are. */
  reserve(count: number): number {
    while (this.slots.length < count) {
      try {
        this.#free.push(this.#make());
      } catch {
        break;
      }
    }
    return this.slots.length;
  }

  hold(slot: Slot): void {
    slot.holds++;
  }

  release(slot: Slot): void {
    assert(slot.holds > 0, 'a slot is released that nothing holds');
    slot.holds--;
    this.#reuse(slot);
  }

  /** The owner's value is dead, or valid elsewhere. */
  disown(slot: Slot): void {
    slot.owner = NO_OWNER;
    this.#reuse(slot);
  }

  /** Hands out the bytes: they stay until everything that waits for them now has run. */
  lend(slot: Slot): Uint8Array<ArrayBuffer> {
    if (!slot.lent) {
      slot.lent = true;
      this.#lent.push(slot);
      this.turnEnd();
    }
    return slot.bytes;
  }

  /** Resolves when the slots that are lent now are not lent any more. */
  turnEnd(): Promise<void> {
    this.#turn ??= new Promise((resolve) => {
      setTimeout(() => {
        this.#turn = undefined;
        const back = this.#lent;
        this.#lent = [];
        for (const slot of back) {
          slot.lent = false;
          this.#reuse(slot);
        }
        resolve();
        this.#onTurnEnd();
      }, 0);
    });
    return this.#turn;
  }

  #reuse(slot: Slot): void {
    if (slot.owner === NO_OWNER && slot.holds === 0 && !slot.lent) this.#free.push(slot);
  }

  #make(): Slot {
    try {
      const bytes = this.#allocate(this.#chunkBytes);
      const slot: Slot = { bytes, owner: NO_OWNER, holds: 0, lent: false };
      this.slots.push(slot);
      return slot;
    } catch {
      const held = this.slots.length * this.#chunkBytes;
      throw new HoldfastError(
        `host memory: the runtime has no ${this.#chunkBytes} bytes more than the ${held} that hold chunks; ` +
          `set the host memory limit to ${held} bytes or less`,
      );
    }
  }
}
