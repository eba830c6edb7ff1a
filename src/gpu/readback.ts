// Reading results without stalling the queue: a ring of small MAP_READ buffers. A copy is recorded behind
// the work that makes the value; the promise resolves when the GPU gets there, steps later.

import type { Allocator } from './allocator.ts';
import { GPUBufferUsage, GPUMapMode } from './constants.ts';
import { mapBuffer } from './mapping.ts';

export class ReadbackRing {
  readonly #free: GPUBuffer[];
  readonly #all: readonly GPUBuffer[];
  readonly #allocator: Allocator;
  readonly bytes: number;

  /** `depth` reads of `bytes` bytes may be under way at once. */
  constructor(allocator: Allocator, label: string, bytes: number, depth: number) {
    this.#allocator = allocator;
    this.bytes = bytes;
    const usage = GPUBufferUsage.COPY_DST | GPUBufferUsage.MAP_READ;
    this.#all = allocator.createAll(`${label} readback`, depth, bytes, usage);
    this.#free = [...this.#all];
  }

  /** Records the copy into `encoder`; call the returned function after submitting it to get the bytes. */
  copy(encoder: GPUCommandEncoder, source: GPUBuffer, offset = 0, bytes = this.bytes): () => Promise<ArrayBuffer> {
    const staging = this.#free.shift();
    if (!staging) throw new Error('internal: more reads under way than the readback ring is deep');
    encoder.copyBufferToBuffer(source, offset, staging, 0, bytes);
    return async () => {
      await mapBuffer(staging, GPUMapMode.READ, bytes);
      const result = staging.getMappedRange(0, bytes).slice(0);
      staging.unmap();
      this.#free.push(staging);
      return result;
    };
  }

  destroy(): void {
    for (const buffer of this.#all) this.#allocator.destroy(buffer);
  }
}
