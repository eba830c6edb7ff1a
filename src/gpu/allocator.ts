// `Allocator`: the one place where a device's GPUBuffers are made, and counted: storage, uniforms, staging. Budgets and
// predictions are held against the count. No pooling and no placement: those lie above.

import { assert, HoldfastError, messageOf } from '../util/errors.ts';
import { destroyBuffer } from './mapping.ts';

export class Allocator {
  readonly #device: GPUDevice;
  readonly #limit: number;
  readonly #live = new Map<GPUBuffer, number>();
  #bytes = 0;
  #peak = 0;
  #created = 0;

  constructor(device: GPUDevice) {
    this.#device = device;
    this.#limit = device.limits.maxBufferSize;
  }

  /** Bytes in live buffers. */
  get bytes(): number {
    return this.#bytes;
  }
  /** The most that `bytes` has been, since the start or since `restartPeak`. */
  get peak(): number {
    return this.#peak;
  }
  /** Buffers made since the device was opened. */
  get created(): number {
    return this.#created;
  }

  /** A buffer of at least `size` bytes (rounded up to 4). Errors: HoldfastError past the adapter's limit, or where the runtime refuses. */
  create(label: string, size: number, usage: GPUBufferUsageFlags): GPUBuffer {
    const bytes = Math.max(4, Math.ceil(size / 4) * 4);
    if (bytes > this.#limit) {
      throw new HoldfastError(
        `buffer ${label} needs ${bytes} bytes, this adapter allows ${this.#limit} a buffer; use a smaller batch, context or model`,
      );
    }
    const buffer = this.#make(label, bytes, usage);
    this.#live.set(buffer, bytes);
    this.#bytes += bytes;
    this.#created++;
    this.#peak = Math.max(this.#peak, this.#bytes);
    return buffer;
  }

  #make(label: string, size: number, usage: GPUBufferUsageFlags): GPUBuffer {
    try {
      return this.#device.createBuffer({ label, size, usage });
    } catch (error) {
      throw new HoldfastError(
        `buffer ${label} of ${size} bytes cannot be made (${messageOf(error)}); use a smaller batch, context or model`,
      );
    }
  }

  /** So many buffers alike, or none. Errors: as `create`. */
  createAll(label: string, count: number, size: number, usage: GPUBufferUsageFlags): GPUBuffer[] {
    const buffers: GPUBuffer[] = [];
    try {
      for (let i = 0; i < count; i++) buffers.push(this.create(`${label} ${i}`, size, usage));
      return buffers;
    } catch (error) {
      for (const buffer of buffers) this.destroy(buffer);
      throw error;
    }
  }

  /** Forgets what was allocated before: another run begins, or another budget. */
  restartPeak(): void {
    this.#peak = this.#bytes;
  }

  /** Frees a buffer. WebGPU keeps the memory until the work submitted before this call is done. */
  destroy(buffer: GPUBuffer): void {
    const bytes = this.#live.get(buffer);
    assert(bytes !== undefined, `buffer ${buffer.label} is not live`);
    this.#live.delete(buffer);
    this.#bytes -= bytes;
    destroyBuffer(buffer);
  }
}
