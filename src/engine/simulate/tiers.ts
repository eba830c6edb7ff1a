// The tiers below the GPU on a simulated clock: which values lie in host memory and which on disk, by the rules of the
// real ones (memory/tiers): what leaves host memory is needed last, what lies in both leaves for nothing, a value that
// is itself needed last goes to disk. Moves no bytes and holds none.

import { assert } from '../../util/errors.ts';
import { latest, Resource, type SimulatedTask } from './clock.ts';
import type { MachineDisk } from './machine.ts';

interface Value {
  /** In host memory, from this task on if it is read. */
  here: boolean;
  read: SimulatedTask | undefined;
  /** On disk, from this task on. */
  onDisk: boolean;
  written: SimulatedTask | undefined;
}

/** The disk, each way: what waits for it, waits in line. */
export interface DiskQueues {
  readonly reads: Resource;
  readonly writes: Resource;
}

export class SimulatedTiers implements DiskQueues {
  /** Bytes moved so far. */
  readBytes = 0;
  writtenBytes = 0;
  /** When a value is needed next: a larger number is later. */
  nextUse: (id: number) => number = () => 0;
  readonly #bytesOf: (id: number) => number;
  readonly #disk: MachineDisk | undefined;
  readonly reads = new Resource();
  readonly writes = new Resource();
  readonly #values = new Map<number, Value>();
  /** Those in host memory, and of these what must stay there. */
  readonly #here = new Set<number>();
  readonly #held = new Set<number>();
  #free: number;

  /** `slots`: values that host memory holds. */
  constructor(slots: number, bytesOf: (id: number) => number, disk: MachineDisk | undefined) {
    this.#free = slots;
    this.#bytesOf = bytesOf;
    this.#disk = disk;
  }

  /** Lies there before the clock starts. */
  begin(ids: Iterable<number>): void {
    for (const id of ids) {
      const here = this.#free > 0;
      if (here) this.#take(id);
      this.#values.set(id, { here, read: undefined, onDisk: !here, written: undefined });
    }
  }

  /** A new value, behind `sent`. Returns what it has arrived behind. */
  put(id: number, sent: SimulatedTask): SimulatedTask {
    const old = this.#values.get(id);
    if (old?.here) {
      this.#values.set(id, { here: true, read: undefined, onDisk: false, written: undefined });
      return sent;
    }
    const room = this.#room(id, sent, false);
    if (room) {
      this.#take(id);
      this.#values.set(id, { here: true, read: undefined, onDisk: false, written: undefined });
      return room.task ?? sent;
    }
    const written = this.#write(id, sent);
    this.#values.set(id, { here: false, read: undefined, onDisk: true, written });
    return written;
  }

  /** What a value that is wanted behind `now` is here behind; undefined: it is here. */
  fetch(id: number, now: SimulatedTask | undefined): SimulatedTask | undefined {
    const value = this.#values.get(id);
    assert(value, `value ${id} is fetched and lies nowhere`);
    if (!value.here) this.#read(id, value, now, true);
    return value.read;
  }

  /**
   * Values that are to be in host memory together, wanted behind `now`; one that there is none of is made there. Returns what they
   * are here behind.
   */
  gather(ids: readonly number[], now: SimulatedTask | undefined): SimulatedTask | undefined {
    for (const id of ids) this.#held.add(id);
    const here = latest(ids.map((id) => (this.#values.has(id) ? this.fetch(id, now) : this.#make(id, now))));
    this.#held.clear();
    return here;
  }

  /** The value in host memory is another. */
  change(id: number): void {
    const value = this.#values.get(id);
    assert(value?.here, `value ${id} is changed and is not in host memory`);
    value.onDisk = false;
    value.written = undefined;
  }

  isOnDisk(id: number): boolean {
    return this.#values.get(id)?.onDisk === true;
  }

  /** What was made of a value goes to disk beside it, behind `made`, and it leaves host memory. Returns what is there behind. */
  stow(id: number, made: SimulatedTask): SimulatedTask {
    const value = this.#values.get(id);
    if (value?.onDisk) this.#leave(id, value);
    return this.#write(id, made);
  }

  /** What was stowed takes the place of the value. */
  putStowed(id: number, written: SimulatedTask): void {
    const value = this.#values.get(id);
    if (value) this.#leave(id, value);
    this.#values.set(id, { here: false, read: undefined, onDisk: true, written });
  }

  #leave(id: number, value: Value): void {
    if (this.#here.delete(id)) this.#free++;
    value.here = false;
    value.read = undefined;
  }

  /** Begins to read a value, if there is room or what is in it is needed later. */
  prefetch(id: number, now: SimulatedTask | undefined): void {
    const value = this.#values.get(id);
    if (value && !value.here) this.#read(id, value, now, false);
  }

  /** Each value: whether it is in host memory, and whether it is on disk. */
  each(tell: (id: number, here: boolean, onDisk: boolean) => void): void {
    for (const [id, { here, onDisk }] of this.#values) tell(id, here, onDisk);
  }

  /** The value is dead. */
  discard(id: number): void {
    if (this.#here.delete(id)) this.#free++;
    this.#values.delete(id);
  }

  #take(id: number): void {
    this.#free--;
    this.#here.add(id);
  }

  #make(id: number, now: SimulatedTask | undefined): SimulatedTask | undefined {
    const room = this.#room(id, now, true);
    assert(room, 'an update has its room');
    this.#take(id);
    this.#values.set(id, { here: true, read: room.task, onDisk: false, written: undefined });
    return room.task;
  }

  #read(id: number, value: Value, now: SimulatedTask | undefined, must: boolean): void {
    const room = this.#room(id, now, must);
    if (!room) return;
    this.#take(id);
    assert(this.#disk, 'a value lies on disk, and there is none');
    const bytes = this.#bytesOf(id);
    this.readBytes += bytes;
    const seconds = bytes / this.#disk.readBytesPerSecond;
    value.here = true;
    value.read = this.reads.run('diskRead', seconds, [now, room.task, value.written]);
  }

  #write(id: number, after: SimulatedTask | undefined): SimulatedTask {
    assert(this.#disk, 'host memory is full, and there is no disk');
    const bytes = this.#bytesOf(id);
    this.writtenBytes += bytes;
    return this.writes.run('diskWrite', bytes / this.#disk.writeBytesPerSecond, [after]);
  }

  /** Makes room in host memory for a value, behind a task if one must be written first; undefined: others are needed sooner. */
  #room(id: number, now: SimulatedTask | undefined, must: boolean): { task: SimulatedTask | undefined } | undefined {
    if (this.#free > 0) return { task: undefined };
    let victim: number | undefined;
    let last = must ? Number.NEGATIVE_INFINITY : this.nextUse(id);
    for (const other of this.#here) {
      if (this.#held.has(other)) continue;
      const next = this.nextUse(other);
      const clean = this.#values.get(other)?.onDisk === true;
      const best = victim === undefined ? undefined : this.#values.get(victim);
      if (next > last || (next === last && clean && !best?.onDisk)) {
        victim = other;
        last = next;
      }
    }
    const leaving = victim === undefined ? undefined : this.#values.get(victim);
    if (victim === undefined || !leaving) return undefined;
    this.#here.delete(victim);
    this.#free++;
    leaving.here = false;
    const read = leaving.read;
    leaving.read = undefined;
    if (leaving.onDisk) return { task: read };
    leaving.onDisk = true;
    leaving.written = this.#write(victim, latest([now, read]));
    return { task: leaving.written };
  }
}
