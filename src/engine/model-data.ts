// Model data on the device: parameters, their gradients and the two moments of Adam, each kind a list of
// chunk buffers with one layout. Frozen parameters have chunks of their own and nothing beside them.

import type { Device } from '../gpu/device.ts';
import type { BufferRange } from '../gpu/dispatch.ts';
import { makeTensor, type Tensor } from '../graph/graph.ts';
import { type ChunkLayout, layoutChunks } from '../memory/chunks.ts';
import { assert } from '../util/errors.ts';
import { PIECE_ELEMENTS, type TensorSource } from '../util/tensor-source.ts';
import type { Storage } from './storage.ts';

export type Kind = 'parameter' | 'gradient' | 'moment1' | 'moment2';

/** What of a model's parameters decides where they lie. */
export interface StoredParameter {
  readonly name: string;
  readonly shape: readonly number[];
  /** @default true */
  readonly trainable?: boolean;
}

/** Values by parameter name. */
export type Values = Map<string, Float32Array<ArrayBuffer>>;

/** The chunks of one index, as the optimizer walks them. */
export interface ChunkTensors {
  readonly used: number;
  readonly tensors: Readonly<Record<Kind, Tensor>>;
}

/** Bytes written to the queue before it is waited for. */
const WRITE_AHEAD_BYTES = 2 ** 26;

export class ModelData {
  readonly layout: ChunkLayout;
  /** The trainable chunks, in order; empty when the data was made for inference. */
  readonly chunks: readonly ChunkTensors[];
  readonly #device: Device;
  readonly #ranges = new Map<string, BufferRange>();
  readonly #sizes = new Map<string, number>();
  readonly #trainable: ReadonlySet<string>;

  /** Makes zeroed buffers in `storage`. Without `training` there are parameters only. */
  constructor(device: Device, storage: Storage, parameters: readonly StoredParameter[], training: boolean) {
    this.#device = device;
    const sized = parameters.map(({ name, shape, trainable = true }) => {
      const size = shape.reduce((a, b) => a * b, 1);
      this.#sizes.set(name, size);
      return { name, size, trains: trainable && training };
    });
    const { maxStorageBufferBindingSize, maxBufferSize } = device.adapter.limits;
    const limit = Math.floor(Math.min(maxStorageBufferBindingSize, maxBufferSize) / 4);
    const trainable = sized.filter(({ trains }) => trains);
    this.#trainable = new Set(trainable.map(({ name }) => name));
    this.layout = layoutChunks(trainable, limit);
    const frozen = layoutChunks(
      sized.filter(({ trains }) => !trains),
      limit,
    );
    this.#makeChunks(storage, 'parameter', frozen, 'frozen');
    const lists = (['parameter', 'gradient', 'moment1', 'moment2'] as const).map(
      (kind) => [kind, this.#makeChunks(storage, kind, this.layout, kind)] as const,
    );
    this.chunks = this.layout.used.map((used, i) => ({
      used,
      tensors: Object.fromEntries(lists.map(([kind, list]) => [kind, list[i]])) as Record<Kind, Tensor>,
    }));
  }

  #makeChunks(storage: Storage, kind: Kind, layout: ChunkLayout, label: string): Tensor[] {
    const bytes = layout.chunkElements * 4;
    const buffers = layout.used.map((_, i) => storage.buffer(`${label} chunk ${i}`, bytes));
    for (const [name, { chunk, offset }] of layout.places) {
      const size = this.#sizes.get(name) as number;
      this.#ranges.set(`${kind} ${name}`, { buffer: buffers[chunk] as GPUBuffer, offset: offset * 4, bytes: size * 4 });
    }
    return buffers.map((buffer, i) => {
      const tensor = makeTensor(buffer.label, [layout.used[i] as number], 'persistent');
      storage.assign(tensor, { buffer, offset: 0, bytes: tensor.size * 4 });
      return tensor;
    });
  }

  /** Whether a parameter has a gradient and moments. */
  trains(name: string): boolean {
    return this.#trainable.has(name);
  }

  range(kind: Kind, name: string): BufferRange {
    const range = this.#ranges.get(`${kind} ${name}`);
    assert(range, `there is no ${kind} of ${name}`);
    return range;
  }

  /** Says where tensors named like parameters lie. */
  assign(storage: Storage, kind: Kind, tensors: Iterable<Tensor>): void {
    for (const tensor of tensors) storage.assign(tensor, this.range(kind, tensor.name));
  }

  /** Writes every tensor of a source, a piece at a time. Errors: internal, where a size is not the parameter's. */
  async write(kind: Kind, source: TensorSource): Promise<void> {
    const { queue } = this.#device.gpu;
    let ahead = 0;
    for (const name of source.names) {
      const { buffer, offset, bytes } = this.range(kind, name);
      let written = 0;
      for await (const piece of source.read(name)) {
        assert(written + piece.byteLength <= bytes, `${name} has ${bytes / 4} elements, the source gives more`);
        queue.writeBuffer(buffer, offset + written, piece);
        written += piece.byteLength;
        ahead += piece.byteLength;
        // The queue keeps copies until the GPU has taken them; some runtimes hand them over only on a submit.
        if (ahead < WRITE_AHEAD_BYTES) continue;
        queue.submit([]);
        await queue.onSubmittedWorkDone();
        ahead = 0;
      }
      assert(written === bytes, `${name} has ${bytes / 4} elements, the source gives ${written / 4}`);
    }
  }

  /** The tensors of a kind as they are when they are read, each piece with a wait for the queue. */
  source(kind: Kind): TensorSource {
    return {
      names: [...this.#sizes.keys()].filter((name) => kind === 'parameter' || this.trains(name)),
      read: (name) => this.#read(kind, name),
    };
  }

  async *#read(kind: Kind, name: string): AsyncGenerator<Float32Array<ArrayBuffer>, void> {
    const { buffer, offset, bytes } = this.range(kind, name);
    const most = PIECE_ELEMENTS * 4;
    for (let first = 0; first < bytes; first += most) {
      yield new Float32Array(await this.#device.read(buffer, offset + first, Math.min(most, bytes - first)));
    }
  }
}
