// `ReadbackRing`: a ring of small MAP_READ buffers, through which results are read without stalling the queue. A copy is recorded behind
// the work that makes the value; the promise resolves when the GPU gets there, steps later.

import type { Allocator } from './allocator.ts';
import { GPUBufferUsage, GPUMapMode } from './constants.ts';
import { mapBuffer } from './mapping.ts';

export class ReadbackRing {
  readonly #free: GPUBuffer[];
  readonly #all: readonly GPUBuffer[];
  readonly #allocator: Allocator;
  readonly #underWay = new Set<Promise<unknown>>();
  readonly bytes: number;

  /** `depth` reads of `bytes` bytes may be under way at once. */
  constructor(allocator: Allocator, label: string, bytes: number, depth: number) {
    this.#allocator = allocator;
    this.bytes = bytes;
    const usage = GPUBufferUsage.COPY_DST | GPUBufferUsage.MAP_READ;
    this.#all = allocator.createAll(`${label} readback`, depth, bytes, usage);
    this.#free = [...this.#all];
  }

  /** Resolves when a copy may be recorded, or when none will ever be: the device is lost then. */
  async room(): Promise<void> {
    while (this.#free.length === 0 && this.#underWay.size > 0) await Promise.race(this.#underWay);
  }

  /** Resolves when no read is under way, ended well or not. */
  async idle(): Promise<void> {
    while (this.#underWay.size > 0) await Promise.all(this.#underWay);
  }

  /** Records the copy into `encoder`; call the returned function after submitting it to get the bytes. */
  copy(encoder: GPUCommandEncoder, source: GPUBuffer, offset = 0, bytes = this.bytes): () => Promise<ArrayBuffer> {
    const staging = this.#free.shift();
    if (!staging) throw new Error('internal: more reads under way than the readback ring is deep');
    encoder.copyBufferToBuffer(source, offset, staging, 0, bytes);
    const read = async () => {
      await mapBuffer(staging, GPUMapMode.READ, bytes);
      const result = staging.getMappedRange(0, bytes).slice(0);
      staging.unmap();
      this.#free.push(staging);
      return result;
    };
    return () => {
      const result = read();
      const ended: Promise<unknown> = result.then(
        () => this.#underWay.delete(ended),
        () => this.#underWay.delete(ended),
      );
      this.#underWay.add(ended);
      return result;
    };
  }

  destroy(): void {
    for (const buffer of this.#all) this.#allocator.destroy(buffer);
  }
}
