// `Storage`: the buffers of tensors that are not model data: persistent tensors get a buffer each, activations lie in
// arenas that all programs share, since no two programs run at once on one queue.

import { GPUBufferUsage } from '../../gpu/constants.ts';
import type { Device } from '../../gpu/device.ts';
import type { BufferRange } from '../../gpu/dispatch.ts';
import type { Placement } from '../../graph/liveness.ts';
import { bytesBefore, bytesOf, type Tensor, type TensorElements } from '../../graph/program.ts';
import { at } from '../../util/at.ts';
import { assert } from '../../util/errors.ts';

const STORAGE_USAGE = () => GPUBufferUsage.STORAGE | GPUBufferUsage.COPY_SRC | GPUBufferUsage.COPY_DST;

export class Storage {
  readonly #device: Device;
  readonly #ranges = new Map<Tensor, BufferRange>();
  readonly #owned: GPUBuffer[] = [];
  /** Of tensors that the host reads: what they were set to last. */
  readonly #onHost = new Map<Tensor, TensorElements | undefined>();

  constructor(device: Device) {
    this.#device = device;
  }

  /** A zeroed buffer that lives as long as this storage; a storage buffer where no usage is given. */
  buffer(label: string, bytes: number, usage = STORAGE_USAGE()): GPUBuffer {
    const buffer = this.#device.allocator.create(label, bytes, usage);
    this.#owned.push(buffer);
    return buffer;
  }

  /** The range of a tensor; a persistent one gets its buffer on first sight, a constant with its elements in it. */
  range(tensor: Tensor): BufferRange {
    const known = this.#ranges.get(tensor);
    if (known) return known;
    if (tensor.partOf) {
      const holder = this.range(tensor.partOf.tensor);
      const offset = holder.offset + bytesBefore(tensor, tensor.partOf.offset);
      return { buffer: holder.buffer, offset, bytes: bytesOf(tensor) };
    }
    assert(tensor.role === 'persistent', `${tensor.name} (${tensor.role}) has no place`);
    const bytes = bytesOf(tensor);
    const range = { buffer: this.buffer(tensor.name, bytes), offset: 0, bytes };
    this.#ranges.set(tensor, range);
    if (tensor.constant) this.write(tensor, tensor.constant());
    return range;
  }

  /** Makes the arenas, once, as large as the largest of the programs needs, and says where activations lie. Returns them. */
  placeActivations(placements: readonly Placement[], arenas: readonly number[]): readonly GPUBuffer[] {
    const buffers = arenas.map((bytes, i) => this.buffer(`activations ${i}`, bytes));
    for (const { places } of placements) {
      for (const [tensor, { arena, offset }] of places) {
        this.#ranges.set(tensor, { buffer: at(buffers, arena), offset, bytes: bytesOf(tensor) });
      }
    }
    return buffers;
  }

  /** From now on what these tensors are set to can be asked for. */
  keepOnHost(tensors: Iterable<Tensor>): void {
    for (const tensor of tensors) this.#onHost.set(tensor, undefined);
  }

  /** What a tensor that is kept on the host was set to last. */
  onHost(tensor: Tensor): TensorElements {
    const data = this.#onHost.get(tensor);
    assert(data, `${tensor.name} is read on the host and was never set`);
    return data;
  }

  /** Sets a tensor; one that no dispatch uses has no memory and needs no value there. */
  write(tensor: Tensor, data: TensorElements): void {
    assert(data.length <= tensor.size, `${tensor.name} holds ${tensor.size} elements, not ${data.length}`);
    if (this.#onHost.has(tensor)) this.#onHost.set(tensor, data);
    const range = this.#ranges.get(tensor);
    if (range) this.#device.gpu.queue.writeBuffer(range.buffer, range.offset, data);
  }

  destroy(): void {
    for (const buffer of this.#owned) this.#device.allocator.destroy(buffer);
    this.#owned.length = 0;
  }
}
