// `UpdatesAhead`: updates of one step on the host that begin before the step is decided, each as soon as its gradient lies below,
// while the backward pass runs. They go by a forecast, that nothing is skipped or clipped, and make the new values beside the old
// ones: in host memory that no value needs; or, of values that come from disk, in blocks of it, where they would go anyway, while the
// next ones are read. Where the step is decided as foreseen they take the places of the old ones; where it is not they are given up,
// and everything is as it was.
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
import { at } from '../../util/at.ts';
import type { HostOperation } from '../compile/operations.ts';
import type { ChunkCopies, Made } from './copies.ts';

type Role = keyof NewHostValues;
type Room = Uint8Array<ArrayBuffer>;

/** What updates ahead of all steps share. */
export interface AheadParts {
  readonly updater: HostUpdater;
  readonly widths: HostWidths;
  readonly copies: ChunkCopies;
  /** Chunks that may be made beside others yet, and those of them that may stay in host memory. */
  room: number;
  slots: number;
  /** Whether values are read from disk for it. */
  readonly onDisk: boolean;
}

/** What was made of an operation. */
interface MadeUpdate {
  /** The gradient's chunk, and those of the values. */
  readonly chunks: readonly number[];
  readonly values: Map<Role, { readonly chunk: number; made: Made }>;
  /** Of the values, those that go to disk, and when they are there. */
  readonly stowed: readonly Role[];
  stowing: Promise<void>;
}

export class UpdatesAhead {
  readonly #parts: AheadParts;
  readonly #scalars: HostScalars;
  /** By operation. */
  readonly #made = new Map<number, MadeUpdate>();
  #queue: Promise<void> = Promise.resolve();
  /** Until then what was made last is on its way to disk. */
  #stowing: Promise<void> = Promise.resolve();
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

  /** Nothing begins any more; waits for what is computed. It may be on its way to disk yet. */
  async end(): Promise<void> {
    this.#isOver = true;
    await this.#queue;
  }

  /** Operations of which something was made that is not taken. */
  get left(): number {
    return this.#made.size;
  }

  /** Behind the end: gives up what was made and not taken. */
  async giveUp(): Promise<void> {
    await this.#stowing;
    for (const index of [...this.#made.keys()]) this.#giveUp(index);
  }

  /** Behind the end: puts what was made of an operation in its place. False where there is nothing, or the step was decided otherwise. */
  async take({ index, chunks, size, firstNarrow }: HostOperation, state: Float32Array): Promise<boolean> {
    await this.#made.get(index)?.stowing;
    const update = this.#made.get(index);
    if (!update) return false;
    if (!isSameUpdate(state, this.#scalars.state)) {
      this.#giveUp(index);
      return false;
    }
    const news: { readonly chunk: number; readonly made: Made }[] = [];
    const parts: { readonly chunk: number; readonly bytes: Room }[] = [];
    for (const [role, { chunk, made }] of update.values) {
      if (this.#isShared(role) && 'bytes' in made) parts.push({ chunk, bytes: made.bytes });
      else news.push({ chunk, made });
    }
    const start = HALF_BYTES * firstNarrow;
    const end = start + HALF_BYTES * size;
    const copy = (into: readonly Room[]) => {
      parts.forEach(({ bytes }, i) => {
        at(into, i).set(bytes.subarray(start, end), start);
      });
    };
    const { copies } = this.#parts;
    this.#forget(index, update);
    await copies.replaceBelow(
      chunks.gradient,
      news,
      parts.map(({ chunk }) => chunk),
      copy,
    );
    for (const { bytes } of parts) copies.giveUp({ bytes });
    return true;
  }

  async #make({ index, chunks, size, firstBlock, firstNarrow }: HostOperation): Promise<void> {
    const { updater, widths, copies } = this.#parts;
    const { gradient, ...changed } = chunks;
    const roles = Object.keys(changed) as Role[];
    // A copy in f16 is made of what lies beside it, and may have been given up.
    const read = roles.filter((role) => role !== 'beside' || widths.dtype !== 'f16');
    const readChunks = [gradient, ...read.map((role) => chunkOf(chunks, role))];
    if (this.#isOver || !this.#canRead(readChunks)) return;
    const stowed = this.#stowedOf(roles, chunks);
    if (!this.#hasRoom(roles.length, stowed.length)) return;
    const extent: HostExtent = { size, firstBlock, firstNarrow, widths };
    const rooms = await copies.make(readChunks, roles.length, async ([gradient, ...bytes], rooms) => {
      const old = Object.fromEntries(read.map((role, i) => [role, at(bytes, i)]));
      const into = Object.fromEntries(roles.map((role, i) => [role, at(rooms, i)])) as unknown as NewHostValues;
      const values = { ...into, ...old, gradient, into } as unknown as HostValues;
      await updater.update(values, extent, this.#scalars);
      read.forEach((role, i) => {
        // What is behind the last element stays as it is.
        if (!this.#isShared(role)) at(rooms, roles.indexOf(role)).set(tailOf(at(bytes, i), size), FLOAT_BYTES * size);
      });
    });
    const values: MadeUpdate['values'] = new Map(
      roles.map((role, i) => [role, { chunk: chunkOf(chunks, role), made: { bytes: at(rooms, i) } }]),
    );
    const update: MadeUpdate = {
      chunks: [gradient, ...Object.values(changed)],
      values,
      stowed,
      stowing: Promise.resolve(),
    };
    this.#made.set(index, update);
    copies.setMade(update.chunks, true);
    this.#count(update, -1);
    // One is on its way to disk while the next is read and computed.
    await this.#stowing;
    if (stowed.length > 0) this.#stowing = update.stowing = this.#stow(index, update);
  }

  /** Gives up what there is no block for, or no disk any more. */
  async #stow(index: number, { values, stowed }: MadeUpdate): Promise<void> {
    const { copies } = this.#parts;
    const ends = await Promise.allSettled(
      stowed.map(async (role) => {
        const value = values.get(role);
        const made = value && 'bytes' in value.made && (await copies.stow(value.chunk, value.made.bytes));
        if (!made) return false;
        value.made = made;
        return true;
      }),
    );
    if (!ends.every((end) => end.status === 'fulfilled' && end.value)) this.#giveUp(index);
  }

  #giveUp(index: number): void {
    const update = this.#made.get(index);
    if (!update) return;
    for (const { made } of update.values.values()) this.#parts.copies.giveUp(made);
    this.#forget(index, update);
  }

  #forget(index: number, update: MadeUpdate): void {
    this.#made.delete(index);
    this.#parts.copies.setMade(update.chunks, false);
    this.#count(update, 1);
  }

  #count({ values, stowed }: MadeUpdate, by: 1 | -1): void {
    this.#parts.room += by * values.size;
    this.#parts.slots += by * (values.size - stowed.length);
  }

  /** Whether the newest values lie below, whatever is to change them there, and may be brought to host memory. */
  #canRead(chunks: readonly number[]): boolean {
    const places: readonly string[] = ['host', 'both', 'zero', ...(this.#parts.onDisk ? ['disk'] : [])];
    return chunks.every((chunk) => places.includes(this.#parts.copies.placeBelow(chunk)));
  }

  /** Of values that are all in host memory alone nothing is made where the new ones would take others' room there. */
  #hasRoom(values: number, stowed: number): boolean {
    const { room, slots, onDisk } = this.#parts;
    return room >= values && slots >= values - stowed && (stowed > 0 || !onDisk);
  }

  /** New values that go to disk, where the old ones are; the parameters, which are needed soonest, where they have no room to stay. */
  #stowedOf(roles: readonly Role[], chunks: HostOperation['chunks']): readonly Role[] {
    const { onDisk, slots, copies } = this.#parts;
    const found = roles.filter(
      (role) => onDisk && !this.#isShared(role) && copies.placeBelow(chunkOf(chunks, role)) !== 'host',
    );
    const others = found.filter((role) => role !== 'parameter');
    return others.length > 0 && slots > roles.length - found.length ? others : found;
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
