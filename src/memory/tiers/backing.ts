// `Backing`: the bytes of all chunks in the tiers below the GPU (host memory and disk): in a slot of host memory, in a
// block on disk, in both, or nowhere because they are all zeros. Values come by putAll and are read by fetch; what
// leaves host memory follows from the order of next uses. Chunks are numbers here: no model, no GPU.
//
// Why nothing here waits for ever. A fetch needs a slot; a put needs for each chunk a slot or a block. Each gets
// all it needs in one synchronous turn or stands in line, first come first served, *holding nothing*. What
// holds something waits only for reads and writes, which end, and for the end of a turn; but an update has its slots one by
// one, one update at a time, beside others that have all of theirs and end. So in time nothing is
// held and the first in line is looked at with every slot free, clean or dirty: S slots and B blocks for n chunks,
// S + B >= n + largestPut, leave it at least `largestPut` of: free slots, free blocks, copies that lie in both.
//
// Invariants: a value is in a slot, in a block, in both and equal, or zeros. A new value replaces the old one in
// the same turn in which all values of its put do, and the old one stays whole until then: an error loses
// nothing. Slots and blocks never exceed their limits. check() lists what must hold.

import { deferred } from '../../util/deferred.ts';
import { assert } from '../../util/errors.ts';
import { DiskFile } from './disk-file.ts';
import { DiskTier } from './disk-tier.ts';
import { HostPlacement, NOWHERE } from './host-placement.ts';
import { HostTier, NO_OWNER, type Slot } from './host-tier.ts';
import { PendingReads } from './pending-reads.ts';
import { type ChunkValue, type NewValue, Puts, type Puttable, type Stowed } from './puts.ts';
import { StopWatch } from './stop-watch.ts';
import { type BackingOptions, checkLimits, LARGEST_PUT, type Spared, sparedChunks } from './tier-limits.ts';
import { WaitQueue } from './wait-queue.ts';
import { WritesAhead } from './writes-ahead.ts';

export interface Ledger {
  readonly diskReadBytes: number;
  readonly diskWriteBytes: number;
  /** Slots that were made; they are reused, not returned. */
  readonly hostBytes: number;
  readonly hostPeak: number;
  readonly diskBytes: number;
  readonly diskPeak: number;
  readonly waits: {
    /** Time in which at least one fetch waited for a read. */
    readonly diskReadMs: number;
    /** Time in which at least one fetch or put waited for a write, or for others to be done with their room. */
    readonly diskWriteMs: number;
  };
}

/** Where a valid copy lies below the GPU. */
export type TierState = 'nothing' | 'zero' | 'host' | 'disk' | 'both';

/** Gets the bytes of chunks, and of rooms for new values. */
type UpdateWork = (
  bytes: readonly Uint8Array<ArrayBuffer>[],
  rooms: readonly Uint8Array<ArrayBuffer>[],
) => Promise<void> | void;

interface Chunk extends Puttable {
  /** Ends when what changes its value in place is done: until then its bytes are that work's alone. */
  updating: Promise<void> | undefined;
}

export class Backing {
  /** How many there are, from 0 on. */
  readonly chunks: number;
  readonly #chunkBytes: number;
  readonly #largestPut: number;
  readonly #chunks: readonly Chunk[];
  readonly #host: HostTier;
  readonly #disk: DiskTier | undefined;
  readonly #placement: HostPlacement;
  readonly #queue = new WaitQueue();
  readonly #reads: PendingReads;
  readonly #puts: Puts;
  readonly #writes: WritesAhead;
  readonly #roomWatch = new StopWatch();
  /** Room for values that are made beside the old ones. */
  readonly spare: Spared;
  #closing: Promise<void> | undefined;
  /** Ends when the update before has its room. */
  #updateRoom: Promise<void> = Promise.resolve();

  /** Errors: HoldfastError when the limits are too small, with those that would do. */
  constructor(options: BackingOptions) {
    const { chunks, held = chunks, chunkBytes, hostLimit, disk, largestPut = LARGEST_PUT } = options;
    assert(chunkBytes > 0 && chunkBytes % 1024 === 0, `chunks of ${chunkBytes} bytes: multiples of 1024 only`);
    const slots = Math.floor(hostLimit / chunkBytes);
    const blocks = disk ? Math.floor(Math.min(disk.bytes, options.diskLimit ?? disk.bytes) / chunkBytes) : 0;
    checkLimits(options, slots, blocks, largestPut);
    this.chunks = chunks;
    this.#chunkBytes = chunkBytes;
    this.#largestPut = slots < held ? largestPut : Number.POSITIVE_INFINITY;
    this.#host = new HostTier(slots, chunkBytes, () => this.#queue.advance(), options.allocate);
    this.#disk = disk && new DiskTier(new DiskFile(disk), chunkBytes, blocks);
    const { updates = 0, beside = 0 } = options;
    const most = sparedChunks({ slots, blocks, held, largestPut, updates, beside, chunkBytes });
    const isReserved = slots === Number.POSITIVE_INFINITY && most.chunks > 0;
    const room = isReserved ? Math.max(0, this.#host.reserve(held + most.chunks) - held) : most.chunks;
    this.spare = isReserved ? { chunks: room, slots: room, onDisk: false } : most;
    this.#chunks = Array.from({ length: chunks }, (_, id) => {
      return {
        id,
        slot: undefined,
        block: NOWHERE,
        zero: false,
        load: undefined,
        calls: 0,
        applied: 0,
        updating: undefined,
      };
    });
    this.#placement = new HostPlacement(this.#chunks, this.#host, this.#disk);
    const tiers = { placement: this.#placement, host: this.#host, disk: this.#disk };
    const parts = { ...tiers, queue: this.#queue, roomWatch: this.#roomWatch };
    this.#reads = new PendingReads(parts);
    this.#puts = new Puts(parts, this.#reads, options.copyBytes);
    this.#writes = new WritesAhead(parts);
  }

  /** Where a valid copy lies now. Zeros are 'zero' whether or not a slot holds them, too. */
  where(chunk: number): TierState {
    const { slot, block, zero } = this.#chunk(chunk);
    if (zero) return 'zero';
    if (block !== NOWHERE) return slot ? 'both' : 'disk';
    return slot ? 'host' : 'nothing';
  }

  /** When each chunk is needed, from now on: a larger number is later, Infinity never. Must not change within a turn. */
  setOrder(nextUse: (chunk: number) => number): void {
    this.#placement.nextUse = nextUse;
  }

  /** The chunk holds zeros: takes no memory and moves nothing. */
  setZero(chunk: number): void {
    this.discard(chunk);
    this.#chunk(chunk).zero = true;
  }

  /** Told of every read and write of the disk: see DiskFile. */
  set onDisk(told: DiskFile['onMove']) {
    if (this.#disk) this.#disk.file.onMove = told;
  }

  /** The value is dead: its slot and block are free. */
  discard(chunk: number): void {
    const record = this.#chunk(chunk);
    assert(!record.updating, `chunk ${chunk} is discarded while it is updated`);
    record.applied = ++record.calls;
    this.#puts.forget(record);
    this.#queue.advance();
  }

  /** The bytes if they lie in host memory now: valid until the next await. */
  peek(chunk: number): Uint8Array<ArrayBuffer> | undefined {
    const { slot, updating } = this.#chunk(chunk);
    return updating ? undefined : slot?.bytes;
  }

  /**
   * The bytes, from disk if need be. They are lent until the end of this turn of the event loop: use them (do not
   * change them) in the code that follows the await, before its next await; with several fetches at once, each in
   * its own `then`. Errors: HoldfastError when they cannot be read, came back damaged, or no room could be made.
   */
  async fetch(chunk: number): Promise<Uint8Array<ArrayBuffer>> {
    const record = this.#chunk(chunk);
    for (;;) {
      if (record.updating) await record.updating;
      else if (record.slot) return this.#host.lend(record.slot);
      else await this.#load(record);
    }
  }

  /**
   * Changes values in place: `work` gets the bytes of all these chunks, in their order, and has them alone until it is done;
   * a fetch of one of them waits for that. Those that it only reads are `kept`: what lies on disk of them stays valid. Updates get
   * their room one after the other and work side by side. Errors: as `fetch`, and then nothing has changed; and those of
   * `work`, behind which the values of its chunks are worth nothing.
   */
  async update(chunks: readonly { readonly chunk: number; readonly kept: boolean }[], work: UpdateWork): Promise<void> {
    await this.#alone(chunks, 0, work);
  }

  /**
   * As `update`, of values that stay as they are: `work` makes others of them, in so many rooms, as of `takeRoom`, and values give way
   * to these if need be. Returns the rooms; where it fails there are none.
   */
  make(chunks: readonly number[], rooms: number, work: UpdateWork): Promise<readonly Uint8Array<ArrayBuffer>[]> {
    return this.#alone(
      chunks.map((chunk) => ({ chunk, kept: true })),
      rooms,
      work,
    );
  }

  async #alone(
    chunks: readonly { readonly chunk: number; readonly kept: boolean }[],
    roomCount: number,
    work: UpdateWork,
  ): Promise<readonly Uint8Array<ArrayBuffer>[]> {
    const done = deferred<void>();
    const held: Slot[] = [];
    const rooms: Uint8Array<ArrayBuffer>[] = [];
    const before = this.#updateRoom;
    const room = deferred<void>();
    this.#updateRoom = room.promise;
    const records = chunks.map(({ chunk }) => this.#chunk(chunk));
    const run = async () => {
      try {
        await before;
        // Side by side: what leaves for one of them is written while another is read. What goes wrong does so again below.
        for (const record of records) if (!record.slot) this.#load(record).catch(() => {});
        for (const record of records) {
          assert(!record.updating, `chunk ${record.id} is updated twice at once`);
          held.push(await this.#slotAlone(record));
        }
        while (rooms.length < roomCount) rooms.push(await this.#puts.claimRoom());
        for (const record of records) record.updating = done.promise;
      } finally {
        room.resolve();
      }
      // Lent to what awaited them in this turn.
      while (held.some(({ lent }) => lent)) await this.#host.turnEnd();
      try {
        await work(
          held.map(({ bytes }) => bytes),
          rooms,
        );
      } catch (error) {
        // Half done: no value is better than a wrong one.
        records.forEach((record, i) => {
          if (!chunks[i]?.kept) this.#puts.forget(record);
        });
        throw error;
      }
      records.forEach((record, i) => {
        if (chunks[i]?.kept) return;
        this.#placement.freeBlock(record);
        record.zero = false;
      });
    };
    try {
      await this.#queue.track(run());
      return rooms;
    } catch (error) {
      for (const room of rooms) this.giveRoomBack(room);
      throw error;
    } finally {
      for (const record of records) if (record.updating === done.promise) record.updating = undefined;
      done.resolve();
      for (const slot of held) this.#host.release(slot);
      this.#queue.advance();
      if (!this.#closing) this.#writes.begin();
    }
  }

  /** The slot of a chunk, held, when nothing else counts on its bytes: a write to disk may be under way. */
  async #slotAlone(record: Chunk): Promise<Slot> {
    for (;;) {
      const { slot } = record;
      if (!slot) await this.#load(record);
      else if (slot.holds === 0) {
        // In this turn: in any other the value may leave it.
        this.#host.hold(slot);
        return slot;
      } else await this.#queue.wait(() => (slot.holds > 0 ? undefined : true));
    }
  }

  async #load(record: Chunk): Promise<void> {
    assert(record.zero || record.block !== NOWHERE, `chunk ${record.id} is fetched and holds no value`);
    await this.#reads.load(record);
  }

  /** Starts a read ahead, if a slot is free or its owner is needed later. Errors are left to the fetch. */
  prefetch(chunk: number): void {
    const record = this.#chunk(chunk);
    if (record.slot || record.load || record.block === NOWHERE || !this.#queue.isEmpty) return;
    try {
      this.#reads.prefetch(record);
    } catch {
      // No memory for a slot that the limit allows: the fetch will say so.
    }
  }

  /**
   * New values for chunks, each named once. All become visible in the same turn: at once if there is room, else
   * before this resolves; `bytes` must stay as they are until then. Errors: HoldfastError when no room could be
   * made, Error when `bytes` were detached meanwhile; then every chunk still has its old value.
   */
  async putAll(entries: readonly ChunkValue[]): Promise<void> {
    await this.#puts.put(this.#newValues(entries));
  }

  /**
   * Host memory of a chunk that holds no value, to make one in: a put of such bytes alone then copies nothing. Undefined where
   * there is none without a value giving way. What has it asks for no other room until it is put or given back, but for as many
   * as are to `spare`.
   */
  takeRoom(): Uint8Array<ArrayBuffer> | undefined {
    return this.#puts.takeRoom();
  }

  /** The value that was made there is not wanted. */
  giveRoomBack(bytes: Uint8Array<ArrayBuffer>): void {
    this.#puts.giveRoomBack(bytes);
  }

  /**
   * The value that was made in a room for a chunk goes to disk, and the room is given back: it is to be put, or dropped. Undefined, and
   * it is where it was, where no block is left. Errors: HoldfastError, and it is there, too.
   */
  stow(chunk: number, bytes: Uint8Array<ArrayBuffer>): Promise<Stowed | undefined> {
    return this.#queue.track(this.#puts.stow(chunk, bytes));
  }

  /** What was stowed for a chunk takes the place of its value, at once. */
  putStowed(id: number, value: Stowed): void {
    const chunk = this.#chunk(id);
    assert(!chunk.updating, `chunk ${id} gets a value while it is updated`);
    chunk.calls++;
    this.#puts.putStowed({ chunk, call: chunk.calls }, value);
  }

  /** What was stowed is not wanted. */
  dropStowed(value: Stowed): void {
    this.#puts.dropStowed(value);
  }

  /** Of a chunk that lies on disk, too, nothing stays in host memory. */
  leaveHost(chunk: number): void {
    this.#placement.leaveIfClean(this.#chunk(chunk));
    this.#queue.advance();
  }

  get ledger(): Ledger {
    const hostBytes = this.#host.slots.length * this.#chunkBytes;
    return {
      diskReadBytes: this.#disk?.file.readBytes ?? 0,
      diskWriteBytes: this.#disk?.file.writtenBytes ?? 0,
      hostBytes,
      hostPeak: hostBytes,
      diskBytes: (this.#disk?.used ?? 0) * this.#chunkBytes,
      diskPeak: (this.#disk?.peak ?? 0) * this.#chunkBytes,
      waits: { diskReadMs: this.#reads.readMs, diskWriteMs: this.#roomWatch.milliseconds },
    };
  }

  /** Waits for what is under way, fails what stands in line, removes the file. Nothing may be asked after. */
  close(): Promise<void> {
    this.#closing ??= (async () => {
      await this.#queue.end(new Error('the tiers below the GPU were closed'));
      await this.#disk?.file.remove();
    })();
    return this.#closing;
  }

  /** Every fact that a legal state must satisfy, for tests. */
  check(): void {
    const blocks = new Set<number>();
    const slots = new Set<Slot>();
    for (const { id, slot, block, zero, load } of this.#chunks) {
      if (block !== NOWHERE) {
        assert(!zero, `chunk ${id} is zeros and has block ${block}`);
        assert(!blocks.has(block), `block ${block} has two owners`);
        blocks.add(block);
      }
      if (slot) {
        assert(slot.owner === id, `the slot of chunk ${id} says ${slot.owner}`);
        assert(!load, `chunk ${id} is loaded though it has a slot`);
        slots.add(slot);
      }
    }
    for (const slot of this.#host.slots) assert(slot.owner === NO_OWNER || slots.has(slot), 'a slot has a stale owner');
    const used = this.#disk?.used ?? 0;
    assert(blocks.size <= used, `${used} blocks in use, ${blocks.size} with owners`);
    if (!this.#queue.isIdle) return;
    const owned = blocks.size + this.#puts.stowed;
    assert(owned === used, `${used} blocks in use, ${owned} with owners, nothing under way`);
    assert(
      this.#host.slots.filter(({ holds }) => holds > 0).length === this.#puts.rooms,
      'a slot is held, nothing under way',
    );
  }

  #newValues(entries: readonly ChunkValue[]): NewValue[] {
    assert(new Set(entries.map(({ chunk }) => chunk)).size === entries.length, 'a put names a chunk twice');
    assert(entries.length <= this.#largestPut, `a put of ${entries.length} chunks, largestPut is ${this.#largestPut}`);
    return entries.map(({ chunk: id, bytes }) => {
      assert(bytes.length === this.#chunkBytes, `${bytes.length} bytes for chunk ${id}, not ${this.#chunkBytes}`);
      const chunk = this.#chunk(id);
      assert(!chunk.updating, `chunk ${id} gets a value while it is updated`);
      chunk.calls++;
      return { chunk, bytes, call: chunk.calls };
    });
  }

  #chunk(id: number): Chunk {
    assert(!this.#closing, 'the tiers below the GPU are closed');
    const chunk = this.#chunks[id];
    assert(chunk, `chunk ${id} of ${this.#chunks.length}`);
    return chunk;
  }
}
