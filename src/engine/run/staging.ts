// Staging: the few buffers through which values go up to the GPU and come down from it. Both ways a value lies here
// only until its copy is done, in the order of the queue. When commands are submitted, and what waits for a copy, is
// not decided here. A buffer on the way up is mapped again as soon as the GPU has taken what was in it.

import { GPUBufferUsage, GPUMapMode } from '../../gpu/constants.ts';
import type { Device } from '../../gpu/device.ts';
import { mapBuffer } from '../../gpu/mapping.ts';
import { assert } from '../../util/errors.ts';
import type { StagingSize } from '../compile/candidate.ts';

/** A buffer that was or will be mapped for writing. */
interface Emptying {
  readonly buffer: GPUBuffer;
  readonly mapped: Promise<void>;
}

export class Staging {
  readonly bytes: number;
  readonly #device: Device;
  readonly #down: readonly GPUBuffer[];
  readonly #up: readonly GPUBuffer[];
  readonly #free: GPUBuffer[];
  /** Those that are filled next, in the order in which the GPU is done with them. */
  readonly #emptying: Emptying[] = [];
  /** Those that are filled, their copies encoded, but not submitted. */
  #filled: { readonly buffer: GPUBuffer; readonly taken: (() => void) | undefined }[] = [];

  constructor(device: Device, { down, up }: StagingSize, bytes: number) {
    this.#device = device;
    this.bytes = bytes;
    const { allocator } = device;
    this.#down = allocator.createAll('staging', down, bytes, GPUBufferUsage.COPY_DST | GPUBufferUsage.MAP_READ);
    this.#free = [...this.#down];
    try {
      this.#up = allocator.createAll('upload', up, bytes, GPUBufferUsage.COPY_SRC | GPUBufferUsage.MAP_WRITE);
    } catch (error) {
      for (const buffer of this.#down) allocator.destroy(buffer);
      throw error;
    }
    for (const buffer of this.#up) this.#empty(buffer, undefined);
  }

  /** Chunks that may be on their way down, and up. */
  get down(): number {
    return this.#down.length;
  }
  get up(): number {
    return this.#up.length;
  }

  /** Chunks that lie here, both ways: what is not known to have arrived counts. */
  get held(): number {
    const down = this.#down.length - this.#free.length;
    return this.#up.reduce((count, { mapState }) => count + Number(mapState !== 'mapped'), down);
  }

  // ---- Down -------------------------------------------------------------------------------------------

  get free(): number {
    return this.#free.length;
  }

  take(): GPUBuffer {
    const buffer = this.#free.shift();
    assert(buffer, 'no staging buffer is free');
    return buffer;
  }

  /** The bytes that a submitted copy brings; valid until `give`. */
  async map(buffer: GPUBuffer, bytes: number): Promise<Uint8Array<ArrayBuffer>> {
    await mapBuffer(buffer, GPUMapMode.READ, bytes);
    return new Uint8Array(buffer.getMappedRange(0, bytes));
  }

  give(buffer: GPUBuffer): void {
    this.#free.push(buffer);
    try {
      if (buffer.mapState === 'mapped') buffer.unmap();
    } catch {
      // Deno: of a lost device. It will not be mapped again.
    }
  }

  /** Maps, passes the bytes on, and gives the buffer back. */
  async mapped(buffer: GPUBuffer, bytes: number, use: (bytes: Uint8Array) => void): Promise<void> {
    try {
      use(await this.map(buffer, bytes));
    } finally {
      this.give(buffer);
    }
  }

  // ---- Up ---------------------------------------------------------------------------------------------

  /** Chunks that go up with the next submit. */
  get filled(): number {
    return this.#filled.length;
  }

  /** Resolves when `fill` may be called; undefined if it may be now. Only what is submitted is ever done. */
  get emptied(): Promise<void> | undefined {
    const [next] = this.#emptying;
    assert(next, 'everything in staging waits to be submitted');
    return next.buffer.mapState === 'mapped' ? undefined : next.mapped;
  }

  /** A buffer that begins with these bytes, no more than it has, to be copied from by the next commands. `taken` is called when it was. */
  fill(bytes: Uint8Array<ArrayBuffer>, taken?: () => void): GPUBuffer {
    const next = this.#emptying.shift();
    assert(next, 'everything in staging waits to be submitted');
    const { buffer } = next;
    this.#device.copyBytes(new Uint8Array(buffer.getMappedRange()), bytes);
    buffer.unmap();
    this.#filled.push({ buffer, taken });
    return buffer;
  }

  /** The copies of what is filled are submitted. */
  submitted(): void {
    for (const { buffer, taken } of this.#filled) this.#empty(buffer, taken);
    this.#filled = [];
  }

  #empty(buffer: GPUBuffer, taken: (() => void) | undefined): void {
    const mapped = mapBuffer(buffer, GPUMapMode.WRITE).then(() => taken?.());
    mapped.catch(() => {}); // Of a lost device: the await elsewhere reports it.
    this.#emptying.push({ buffer, mapped });
  }

  destroy(): void {
    for (const buffer of [...this.#down, ...this.#up]) this.#device.allocator.destroy(buffer);
  }
}
