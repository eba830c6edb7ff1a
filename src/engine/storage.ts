// Which bytes a tensor is: persistent tensors get a buffer each, model data lies in chunk buffers, and
// activations in arenas that all programs share, since no two programs run at once on one queue.

import type { Device } from '../gpu/device.ts';
import type { BufferRange } from '../gpu/dispatch.ts';
import type { Program, Tensor } from '../graph/graph.ts';
import { type Placement, place } from '../graph/liveness.ts';
import { assert } from '../util/errors.ts';

const STORAGE_USAGE = () => GPUBufferUsage.STORAGE | GPUBufferUsage.COPY_SRC | GPUBufferUsage.COPY_DST;

export class Storage {
  readonly #device: Device;
  readonly #ranges = new Map<Tensor, BufferRange>();
  readonly #owned: GPUBuffer[] = [];
  #arenas: GPUBuffer[] = [];

  constructor(device: Device) {
    this.#device = device;
  }

  /** A zeroed buffer that lives as long as this storage; a storage buffer where no usage is given. */
  buffer(label: string, bytes: number, usage = STORAGE_USAGE()): GPUBuffer {
    const buffer = this.#device.allocator.create(label, bytes, usage);
    this.#owned.push(buffer);
    return buffer;
  }

  /** Says where a tensor lies. */
  assign(tensor: Tensor, range: BufferRange): void {
    this.#ranges.set(tensor, range);
  }

  /** The range of a persistent tensor or of model data; the former gets its buffer on first sight. */
  range(tensor: Tensor): BufferRange {
    const known = this.#ranges.get(tensor);
    if (known) return known;
    assert(tensor.role === 'persistent', `${tensor.name} (${tensor.role}) has no place`);
    const bytes = tensor.size * 4;
    const range = { buffer: this.buffer(tensor.name, bytes), offset: 0, bytes };
    this.#ranges.set(tensor, range);
    return range;
  }

  /**
   * Places the activations of programs that will be used together and makes the arenas, once, as large as
   * the largest program needs. Returns a placement for each program.
   */
  placeActivations(programs: readonly Program[]): Placement[] {
    assert(this.#arenas.length === 0, 'activations are placed once');
    const { maxBufferSize, maxStorageBufferBindingSize } = this.#device.adapter.limits;
    const placements = programs.map((program) => place(program, Math.min(maxBufferSize, maxStorageBufferBindingSize)));
    const sizes: number[] = [];
    for (const { arenas } of placements) {
      arenas.forEach((bytes, i) => {
        sizes[i] = Math.max(sizes[i] ?? 0, bytes);
      });
    }
    this.#arenas = sizes.map((bytes, i) => this.buffer(`activations ${i}`, bytes));
    return placements;
  }

  /** The range of any tensor of a program, given that program's placement. */
  resolve(tensor: Tensor, placement: Placement): BufferRange {
    const at = placement.places.get(tensor);
    if (!at) return this.range(tensor);
    return { buffer: this.#arenas[at.arena] as GPUBuffer, offset: at.offset, bytes: tensor.size * 4 };
  }

  write(tensor: Tensor, data: Float32Array<ArrayBuffer> | Int32Array<ArrayBuffer> | Uint32Array<ArrayBuffer>): void {
    assert(data.length <= tensor.size, `${tensor.name} holds ${tensor.size} elements, not ${data.length}`);
    const { buffer, offset } = this.range(tensor);
    this.#device.gpu.queue.writeBuffer(buffer, offset, data);
  }

  async read(tensor: Tensor, placement?: Placement): Promise<Float32Array<ArrayBuffer>> {
    const { buffer, offset } = placement ? this.resolve(tensor, placement) : this.range(tensor);
    return new Float32Array(await this.#device.read(buffer, offset, tensor.size * 4));
  }

  destroy(): void {
    for (const buffer of this.#owned) this.#device.allocator.destroy(buffer);
    this.#owned.length = 0;
  }
}
