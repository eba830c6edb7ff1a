// Staging: the few buffers through which values come down from the GPU, and the window of bytes that may be on
// their way up. The runtime keeps what `writeBuffer` was given until the GPU has taken it: the window is that
// memory, reserved in the budget though it is no buffer of ours.

import type { Device } from '../gpu/device.ts';
import { assert } from '../util/errors.ts';
import type { StagingSize } from './fit.ts';

export class Staging {
  readonly bytes: number;
  /** Chunks that may be on their way up. */
  readonly up: number;
  readonly #device: Device;
  readonly #all: readonly GPUBuffer[];
  readonly #free: GPUBuffer[];
  readonly #reserved: number;

  constructor(device: Device, { down, up }: StagingSize, chunkBytes: number) {
    this.#device = device;
    this.bytes = chunkBytes;
    this.up = up;
    const usage = GPUBufferUsage.COPY_DST | GPUBufferUsage.MAP_READ;
    this.#all = device.allocator.createAll('staging', down, chunkBytes, usage);
    this.#free = [...this.#all];
    this.#reserved = up * chunkBytes;
    device.allocator.reserve(this.#reserved);
  }

  /** Chunks that may be on their way down. */
  get down(): number {
    return this.#all.length;
  }

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
    await buffer.mapAsync(GPUMapMode.READ, 0, bytes);
    return new Uint8Array(buffer.getMappedRange(0, bytes));
  }

  give(buffer: GPUBuffer): void {
    this.#free.push(buffer);
    try {
      if (buffer.mapState === 'mapped') buffer.unmap();
    } catch {
      // Deno: of a lost device. Nobody will map it again.
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

  destroy(): void {
    for (const buffer of this.#all) this.#device.allocator.destroy(buffer);
    this.#device.allocator.release(this.#reserved);
  }
}
