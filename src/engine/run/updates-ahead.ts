// `UpdatesAhead`: updates of one step on the host that begin before the step is decided, each as soon as its gradient lies below,
// while the backward pass runs. They go by a forecast, that nothing is skipped or clipped, and make the new values beside the old
// ones, in host memory that no value needs. Where the step is decided as foreseen they take the places of the old ones; where it
// is not they are given up, and everything is as it was.
//
// Invariant: of what is below nothing has changed before the step is decided, and then only by the numbers that were decided.

import type {
  HostExtent,
  HostScalars,
  HostUpdater,
  HostValues,
  HostWidths,
  NewHostValues,
} from '../../kernels/host-adamw.ts';
import { isSameUpdate } from '../../kernels/step-control.ts';
import { indicesIn, MOMENT_KINDS, PARAMETER_KINDS } from '../../memory/layout/kinds.ts';
import type { PlacedValue } from '../../memory/tiers/below.ts';
import { at } from '../../util/at.ts';
import type { HostOperation } from '../compile/operations.ts';
import type { ChunkCopies } from './copies.ts';

type Role = keyof NewHostValues;
type Room = Uint8Array<ArrayBuffer>;
type Rooms = ReadonlyMap<Role, Room>;

/** What updates ahead of all steps share. */
export interface AheadParts {
  readonly updater: HostUpdater;
  readonly widths: HostWidths;
  readonly copies: ChunkCopies;
  /** Chunks that may be made beside others yet. */
  room: number;
}

export class UpdatesAhead {
  readonly #parts: AheadParts;
  readonly #scalars: HostScalars;
  readonly #made = new Map<number, Rooms>();
  #queue: Promise<void> = Promise.resolve();
  #isOver = false;

  /** `scalars`: with the forecast. */
  constructor(parts: AheadParts, scalars: HostScalars) {
    this.#parts = parts;
    this.#scalars = scalars;
  }

  /** The gradient of its index lies below: it begins when those that began before are done. */
  begin(operation: HostOperation): void {
    // What goes wrong with it goes wrong again when it is its turn.
    this.#queue = this.#queue.then(() => this.#make(operation)).catch(() => {});
  }

  /** Nothing begins any more; waits for what is under way. */
  async end(): Promise<void> {
    this.#isOver = true;
    await this.#queue;
  }

  /** Operations of which something was made that is not taken. */
  get left(): number {
    return this.#made.size;
  }

  /** Behind the end: gives up what was made and not taken. */
  giveUp(): void {
    for (const rooms of this.#made.values()) this.#giveBack(rooms.values());
    this.#made.clear();
  }

  /** Behind the end: puts what was made of an operation in its place. False where there is nothing, or the step was decided otherwise. */
  async take({ index, chunks, size, firstNarrow }: HostOperation, state: Float32Array): Promise<boolean> {
    const rooms = this.#made.get(index);
    if (!rooms) return false;
    this.#made.delete(index);
    const { copies } = this.#parts;
    if (!isSameUpdate(state, this.#scalars.state)) {
      this.#giveBack(rooms.values());
      return false;
    }
    const news: PlacedValue[] = [];
    const parts: { readonly chunk: number; readonly bytes: Room }[] = [];
    for (const [role, bytes] of rooms)
      (this.#isShared(role) ? parts : news).push({ chunk: chunkOf(chunks, role), bytes });
    const start = HALF_BYTES * firstNarrow;
    const end = start + HALF_BYTES * size;
    const copy = (into: readonly Room[]) => {
      parts.forEach(({ bytes }, i) => {
        at(into, i).set(bytes.subarray(start, end), start);
      });
    };
    await copies.replaceBelow(
      chunks.gradient,
      news,
      parts.map(({ chunk }) => chunk),
      copy,
    );
    this.#giveBack(parts.map(({ bytes }) => bytes));
    this.#parts.room += news.length;
    return true;
  }

  async #make({ index, chunks, size, firstBlock, firstNarrow }: HostOperation): Promise<void> {
    const { updater, widths, copies } = this.#parts;
    const { gradient, ...changed } = chunks;
    const roles = Object.keys(changed) as Role[];
    // A copy in f16 is made of what lies beside it, and may have been given up.
    const read = roles.filter((role) => role !== 'beside' || widths.dtype !== 'f16');
    const others = read.map((role) => chunkOf(chunks, role));
    if (this.#isOver || !copies.areInHostMemory([gradient, ...others])) return;
    const rooms = this.#takeRooms(roles);
    if (!rooms) return;
    const into = Object.fromEntries(rooms) as unknown as NewHostValues;
    const extent: HostExtent = { size, firstBlock, firstNarrow, widths };
    try {
      await copies.look([gradient, ...others], async ([gradient, ...bytes]) => {
        const old = Object.fromEntries(read.map((role, i) => [role, at(bytes, i)]));
        const values = { ...into, ...old, gradient, into } as unknown as HostValues;
        await updater.update(values, extent, this.#scalars);
        read.forEach((role, i) => {
          // What is behind the last element stays as it is.
          if (!this.#isShared(role))
            at([...rooms.values()], roles.indexOf(role)).set(tailOf(at(bytes, i), size), FLOAT_BYTES * size);
        });
      });
      this.#made.set(index, rooms);
    } catch (error) {
      this.#giveBack(rooms.values());
      throw error;
    }
  }

  #takeRooms(roles: readonly Role[]): Rooms | undefined {
    if (this.#parts.room < roles.length) return undefined;
    const rooms = new Map<Role, Room>();
    try {
      for (const role of roles) {
        const room = this.#parts.copies.takeRoom();
        if (!room) break;
        this.#parts.room--;
        rooms.set(role, room);
      }
    } finally {
      // Also where the runtime has no memory for what the limit allows.
      if (rooms.size < roles.length) this.#giveBack(rooms.values());
    }
    return rooms.size < roles.length ? undefined : rooms;
  }

  #giveBack(rooms: Iterable<Room>): void {
    for (const room of rooms) {
      this.#parts.copies.giveRoomBack(room);
      this.#parts.room++;
    }
  }

  /** Whether a chunk has the values of two indices, of sixteen bits. */
  #isShared(role: Role): boolean {
    const { dtype, momentDtype } = this.#parts.widths;
    const { read, full, low } = PARAMETER_KINDS[dtype];
    const [moment1, moment2] = MOMENT_KINDS[momentDtype];
    const kinds = { parameter: full, beside: low ?? read, moment1, moment2 };
    return indicesIn(kinds[role]) > 1;
  }
}

const FLOAT_BYTES = 4;
const HALF_BYTES = 2;

const chunkOf = (chunks: HostOperation['chunks'], role: Role): number => chunks[role] as number;

const tailOf = (bytes: Uint8Array, size: number): Uint8Array => bytes.subarray(FLOAT_BYTES * size);
