// `Puts`: new values of chunks on their way into slots of host memory and blocks on disk. A put has a place for each of its
// values before it writes any; what its places hold until then is written to disk first. Where values lie is Backing's
// (backing.ts), which of them gives way HostPlacement's (host-placement.ts).
//
// Invariant: the values of a put become visible in one turn, and the old ones are whole until then; a value that a later call
// has replaced already is dropped.

import type { CopyBytes } from '../../runtime/host.ts';
import { at } from '../../util/at.ts';
import { assert } from '../../util/errors.ts';
import type { DiskTier } from './disk-tier.ts';
import { type HostPlacement, isClean, type Located, type Target } from './host-placement.ts';
import type { HostTier, Slot } from './host-tier.ts';
import type { Loadable, PendingReads, TierParts } from './pending-reads.ts';
import type { StopWatch } from './stop-watch.ts';
import type { WaitQueue } from './wait-queue.ts';

export interface ChunkValue {
  readonly chunk: number;
  /** chunkBytes of them, starting at a multiple of 4. */
  readonly bytes: Uint8Array<ArrayBuffer>;
}

export interface Puttable extends Loadable {
  /** The calls so far that gave it a value or took it. */
  calls: number;
  /** The number of the call that its value is from: a put that a later call overtook has no effect any more. */
  applied: number;
}

/** A value that was made in a room, and lies on disk now: no chunk's yet. */
export interface Stowed {
  readonly block: number;
}

export interface NewValue {
  readonly chunk: Puttable;
  readonly bytes: Uint8Array<ArrayBuffer>;
  readonly call: number;
}

export class Puts {
  readonly #placement: HostPlacement;
  readonly #host: HostTier;
  readonly #disk: DiskTier | undefined;
  readonly #reads: PendingReads;
  readonly #queue: WaitQueue;
  readonly #roomWatch: StopWatch;
  readonly #copyBytes: CopyBytes;
  /** Slots that values are made in, by their bytes. */
  readonly #rooms = new Map<Uint8Array<ArrayBuffer>, Slot>();
  readonly #stowed = new Set<Stowed>();

  constructor(
    { placement, host, disk, queue, roomWatch }: TierParts,
    reads: PendingReads,
    copyBytes: CopyBytes = (to, from) => to.set(from),
  ) {
    this.#placement = placement;
    this.#host = host;
    this.#disk = disk;
    this.#reads = reads;
    this.#queue = queue;
    this.#roomWatch = roomWatch;
    this.#copyBytes = copyBytes;
  }

  /** See `Backing.takeRoom`. */
  takeRoom(): Uint8Array<ArrayBuffer> | undefined {
    const slot = this.#queue.isEmpty ? this.#host.take() : undefined;
    if (slot) this.#rooms.set(slot.bytes, slot);
    return slot?.bytes;
  }

  /** As `takeRoom`, where a value gives way if need be: the one that is needed last, once it is on disk. */
  async claimRoom(): Promise<Uint8Array<ArrayBuffer>> {
    const claim =
      (this.#queue.isEmpty ? this.#placement.claimAny() : undefined) ??
      (await this.#queue.wait(() => this.#placement.claimAny()));
    const { slot } = claim;
    try {
      await this.#placement.empty(claim);
    } catch (error) {
      this.#host.release(slot);
      this.#queue.advance();
      throw error;
    }
    this.#rooms.set(slot.bytes, slot);
    return slot.bytes;
  }

  /** See `Backing.stow`. */
  async stow(chunk: number, bytes: Uint8Array<ArrayBuffer>): Promise<Stowed | undefined> {
    const place = this.#placement.claimBlock();
    if (!place) return undefined;
    try {
      await this.#disk?.write(place.block, chunk, bytes);
    } catch (error) {
      this.#placement.giveBack(place);
      throw error;
    }
    this.giveRoomBack(bytes);
    this.#stowed.add(place);
    return place;
  }

  /** See `Backing.putStowed`. */
  putStowed({ chunk, call }: Omit<NewValue, 'bytes'>, value: Stowed): void {
    assert(this.#stowed.delete(value), 'a value is put that is stowed no more');
    chunk.applied = call;
    this.forget(chunk);
    chunk.block = value.block;
    this.#queue.advance();
  }

  /** See `Backing.dropStowed`. */
  dropStowed(value: Stowed): void {
    assert(this.#stowed.delete(value), 'a value is given up that is stowed no more');
    this.#placement.giveBack(value);
    this.#queue.advance();
  }

  /** See `Backing.giveRoomBack`. */
  giveRoomBack(bytes: Uint8Array<ArrayBuffer>): void {
    this.#host.release(this.#leaveRoom(bytes));
    this.#queue.advance();
  }

  /** Slots that are held for values that are made in them. */
  get rooms(): number {
    return this.#rooms.size;
  }

  /** Blocks of values that are no chunk's yet. */
  get stowed(): number {
    return this.#stowed.size;
  }

  #leaveRoom(bytes: Uint8Array<ArrayBuffer>): Slot {
    const slot = this.#rooms.get(bytes);
    assert(slot, 'a value is not in a room that was taken for it');
    this.#rooms.delete(bytes);
    return slot;
  }

  /** New values for chunks, each named once and of one whole chunk: see `Backing.putAll`. */
  async put(values: readonly NewValue[]): Promise<void> {
    if (values.every(({ bytes }) => this.#rooms.has(bytes))) {
      this.#commit(
        values,
        values.map(({ bytes }) => ({ slot: this.#leaveRoom(bytes) })),
      );
      this.#queue.advance();
      return;
    }
    // In line only behind others, or when there is not enough for all of them.
    let places = this.#queue.isEmpty || values.every((value) => ownSlot(value)) ? this.#place(values) : undefined;
    if (places?.every((place) => 'slot' in place && !place.leaving)) {
      this.#commit(values, places);
      return;
    }
    const work = (async () => {
      places ??= await this.#queue.wait(() => this.#place(values));
      await this.#fill(values, places);
      // Mapped memory is detached with a lost device, also while it is written.
      if (values.some(({ bytes }) => bytes.length === 0)) {
        for (const place of places) this.#placement.giveBack(place);
        throw new Error('the bytes of a put went away before it was done');
      }
      this.#commit(values, places);
    })();
    this.#roomWatch.start();
    try {
      await this.#queue.track(work);
    } finally {
      this.#roomWatch.stop();
      this.#queue.advance();
    }
  }

  /** The value goes, wherever it is. What is under way for it ends without effect. */
  forget(chunk: Loadable): void {
    this.#placement.vacate(chunk);
    this.#reads.forget(chunk);
  }

  /**
   * Places for all new values, or undefined and nothing taken. Those needed soonest get slots, at the cost of
   * owners needed later; a value that is itself needed last goes to a block.
   */
  #place(values: readonly NewValue[]): Target[] | undefined {
    const places = new Map<NewValue, Target>();
    const giveBack = () => {
      for (const place of places.values()) this.#placement.giveBack(place);
    };
    for (const value of values) {
      const slot = ownSlot(value);
      if (!slot) continue;
      this.#host.hold(slot);
      places.set(value, { slot });
    }
    const unplaced = values.filter((value) => !places.has(value));
    if (unplaced.length > this.#placement.count()) {
      giveBack();
      return undefined;
    }
    const nextUse = new Map(unplaced.map((value) => [value, this.#placement.nextUse(value.chunk.id)]));
    const when = (value: NewValue) => nextUse.get(value) as number;
    unplaced.sort((a, b) => (when(a) < when(b) ? -1 : Number(when(a) > when(b))));
    try {
      for (const value of unplaced) {
        const mayLeave = (victim: Located) => {
          const rank = this.#placement.rank(victim);
          return rank > when(value) || (rank === when(value) && isClean(victim));
        };
        const place = this.#placement.claim(mayLeave) ?? this.#placement.claimBlock() ?? this.#placement.claimAny();
        assert(place, 'room was counted and is not there');
        places.set(value, place);
      }
    } catch (error) {
      giveBack(); // no memory for a slot that the limit allows
      throw error;
    }
    return values.map((value) => places.get(value) as Target);
  }

  /** Writes what must be on disk before the new values become visible. On an error all places are given back. */
  async #fill(values: readonly NewValue[], places: readonly Target[]): Promise<void> {
    const writes = places.map((place, i) => {
      if ('slot' in place) return this.#placement.empty(place);
      const { chunk, bytes } = at(values, i);
      return this.#disk?.write(place.block, chunk.id, bytes);
    });
    const failed = (await Promise.allSettled(writes)).find((result) => result.status === 'rejected');
    if (!failed) return;
    for (const place of places) this.#placement.giveBack(place);
    throw failed.reason;
  }

  /** Makes the new values those of their chunks, save where a later call was faster. */
  #commit(values: readonly NewValue[], places: readonly Target[]): void {
    values.forEach(({ chunk, bytes, call }, i) => {
      const place = at(places, i);
      if (call < chunk.applied) {
        this.#placement.giveBack(place);
        return;
      }
      chunk.applied = call;
      if (!('slot' in place)) {
        this.forget(chunk);
        chunk.block = place.block;
        return;
      }
      if (place.slot === chunk.slot) {
        this.#placement.freeBlock(chunk);
        chunk.zero = false;
      } else {
        this.forget(chunk);
        chunk.slot = place.slot;
        place.slot.owner = chunk.id;
      }
      if (place.slot.bytes !== bytes) this.#copyBytes(place.slot.bytes, bytes);
      this.#host.release(place.slot);
    });
  }
}

/** The slot that a chunk has already, if its bytes may change in place. */
function ownSlot({ chunk }: NewValue): Slot | undefined {
  return chunk.slot && chunk.slot.holds === 0 ? chunk.slot : undefined;
}
