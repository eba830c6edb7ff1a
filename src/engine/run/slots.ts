// `Slots`: the fast tier: slots on the GPU, made once. Those that there always are have a buffer each; the extra ones
// are ranges of the buffers in which activations lie. Knows no plan, moves no bytes, and says nothing of what the bytes
// in a slot are worth: see copies.ts.

import { GPUBufferUsage } from '../../gpu/constants.ts';
import type { Device } from '../../gpu/device.ts';
import type { BufferRange } from '../../gpu/dispatch.ts';
import { at } from '../../util/at.ts';
import { SlotTable } from '../compile/slot-table.ts';

/** Extra slots: where each lies, by the number of its arena. */
export interface ExtraRange {
  readonly arena: number;
  readonly buffer: GPUBuffer;
  readonly offset: number;
}

export class Slots extends SlotTable {
  readonly #ranges: readonly BufferRange[];
  readonly #buffers: readonly GPUBuffer[];
  readonly #device: Device;

  constructor(device: Device, slots: number, chunkBytes: number, chunks: number, extra: readonly ExtraRange[] = []) {
    super(
      slots,
      extra.map(({ arena }) => arena),
      chunks,
    );
    this.#device = device;
    const usage = GPUBufferUsage.STORAGE | GPUBufferUsage.COPY_SRC | GPUBufferUsage.COPY_DST;
    this.#buffers = device.allocator.createAll('slot', slots, chunkBytes, usage);
    const own = this.#buffers.map((buffer) => ({ buffer, offset: 0, bytes: chunkBytes }));
    this.#ranges = [...own, ...extra.map(({ buffer, offset }) => ({ buffer, offset, bytes: chunkBytes }))];
  }

  /** Where a chunk that is here lies. */
  range(chunk: number): BufferRange {
    return this.at(this.of(chunk));
  }

  /** Where a slot lies. */
  at(slot: number): BufferRange {
    return at(this.#ranges, slot);
  }

  destroy(): void {
    for (const buffer of this.#buffers) this.#device.allocator.destroy(buffer);
  }
}
