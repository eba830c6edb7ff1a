// The fast tier: slots on the GPU, one buffer each, made once. A chunk gets the slot that it had last if that is
// free, so that a step repeated finds the bind groups of the step before. Knows no plan, moves no bytes, and says
// nothing of what the bytes in a slot are worth: see copies.ts.

import { GPUBufferUsage } from '../../gpu/constants.ts';
import type { Device } from '../../gpu/device.ts';
import { at } from '../../util/at.ts';
import { assert } from '../../util/errors.ts';

const NONE = -1;

export class Slots {
  readonly buffers: readonly GPUBuffer[];
  readonly #free: number[] = [];
  readonly #isFree: Uint8Array;
  /** By chunk. */
  readonly #slotOf: Int32Array;
  readonly #lastSlot: Int32Array;
  /** By slot: whose bytes are in it. */
  readonly #bytesOf: Int32Array;
  readonly #device: Device;

  constructor(device: Device, slots: number, chunkBytes: number, chunks: number) {
    this.#device = device;
    const usage = GPUBufferUsage.STORAGE | GPUBufferUsage.COPY_SRC | GPUBufferUsage.COPY_DST;
    this.buffers = device.allocator.createAll('slot', slots, chunkBytes, usage);
    for (let slot = slots - 1; slot >= 0; slot--) this.#free.push(slot);
    this.#isFree = new Uint8Array(slots).fill(1);
    this.#slotOf = new Int32Array(chunks).fill(NONE);
    this.#lastSlot = new Int32Array(chunks).fill(NONE);
    this.#bytesOf = new Int32Array(slots).fill(NONE);
  }

  holds(chunk: number): boolean {
    return this.#slotOf[chunk] !== NONE;
  }

  /** The slot of a chunk that is here. */
  of(chunk: number): number {
    const slot = at(this.#slotOf, chunk);
    assert(slot !== NONE, `chunk ${chunk} is not on the GPU`);
    return slot;
  }

  buffer(chunk: number): GPUBuffer {
    return at(this.buffers, this.of(chunk));
  }

  get free(): number {
    return this.#free.length;
  }

  /** Chunks that are here, ascending. */
  residents(): number[] {
    const found: number[] = [];
    this.#slotOf.forEach((slot, chunk) => {
      if (slot !== NONE) found.push(chunk);
    });
    return found;
  }

  /** Gives a chunk a free slot. Returns whether the bytes in it are the chunk's own of before. */
  take(chunk: number): boolean {
    assert(!this.holds(chunk), `chunk ${chunk} is already on the GPU`);
    assert(this.#free.length > 0, `no slot is free for chunk ${chunk}`);
    const before = at(this.#lastSlot, chunk);
    let slot = this.#free.at(-1) as number;
    if (before !== NONE && this.#isFree[before]) {
      slot = before;
      this.#free.splice(this.#free.lastIndexOf(slot), 1);
    } else this.#free.pop();
    this.#isFree[slot] = 0;
    this.#slotOf[chunk] = slot;
    this.#lastSlot[chunk] = slot;
    const same = this.#bytesOf[slot] === chunk;
    this.#bytesOf[slot] = chunk;
    return same;
  }

  release(chunk: number): void {
    const slot = this.of(chunk);
    this.#slotOf[chunk] = NONE;
    this.#isFree[slot] = 1;
    this.#free.push(slot);
  }

  /** Every fact that a legal state must satisfy, for tests. */
  check(): void {
    const taken = this.residents().map((chunk) => this.of(chunk));
    const all = [...taken, ...this.#free].sort((a, b) => a - b);
    assert(all.length === this.buffers.length, `${taken.length} slots taken and ${this.#free.length} free of them all`);
    assert(
      all.every((slot, i) => slot === i),
      'a slot is free or taken twice',
    );
    assert(
      all.every((slot) => (this.#isFree[slot] === 1) !== taken.includes(slot)),
      'a slot is free and taken',
    );
  }

  destroy(): void {
    for (const buffer of this.buffers) this.#device.allocator.destroy(buffer);
  }
}
