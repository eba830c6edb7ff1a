// `Bindings`: the dispatches of a state, made ready for its device: pipelines compiled, uniforms written, and for each
// a bind group for every set of slots that its chunks have been in so far. In a step that repeats itself no bind group
// is new.

import { GPUBufferUsage } from '../../gpu/constants.ts';
import type { Device } from '../../gpu/device.ts';
import { type BoundDispatch, type BufferRange, bindDispatch, packUniforms } from '../../gpu/dispatch.ts';
import type { Pipeline } from '../../gpu/pipelines.ts';
import type { Tensor } from '../../graph/program.ts';
import type { Dispatch } from '../../kernels/kernel.ts';
import { readingNarrow } from '../../kernels/stored.ts';
import { at } from '../../util/at.ts';
import type { KernelChoices } from '../compile/choices.ts';
import { type ChunkRange, isChunkRange } from '../compile/operand-places.ts';
import { boundTogether, type DispatchOperation, storedOperands } from '../compile/operations.ts';
import { uniformBlocks } from '../compile/uniform-blocks.ts';
import type { Slots } from './slots.ts';
import type { Storage } from './storage.ts';

/** Bind groups kept in all: random eviction orders could make ever new ones. */
const MOST_GROUPS = 1 << 16;

interface Ready {
  readonly label: string;
  readonly dispatch: Dispatch;
  readonly pipeline: Pipeline;
  readonly uniform: number;
  readonly fixed: Readonly<Record<string, BufferRange>>;
  readonly chunks: readonly (readonly [name: string, range: ChunkRange])[];
  /** By the slots of `chunks`. */
  readonly bound: Map<number, BoundDispatch>;
}

export class Bindings {
  readonly #device: Device;
  readonly #slots: Slots;
  readonly #uniforms: GPUBuffer;
  readonly #ready: ReadonlyMap<DispatchOperation, Ready>;
  #groups = 0;

  /** Compiles what the dispatches need, and writes their uniform blocks. */
  static async make(
    device: Device,
    storage: Storage,
    slots: Slots,
    choices: KernelChoices,
    dispatches: ReadonlySet<DispatchOperation>,
  ): Promise<Bindings> {
    const compiled = await Promise.all(
      [...dispatches].map(async (operation) => {
        const { kernel, whole, problem } = operation;
        const stored = storedOperands(operation);
        const variant = choices.variant(kernel, whole, stored);
        const dispatch = variant.dispatch(problem, device.traits);
        const label = `${kernel.name}.${variant.name}`;
        const shader = readingNarrow(dispatch.shader, stored);
        const pipeline = await device.pipelines.get(label, shader, dispatch.constants, boundTogether(operation));
        return { label, dispatch, pipeline };
      }),
    );
    const { indexOf, count } = uniformBlocks(dispatches);
    const blocks: (typeof compiled)[number][] = new Array(count);
    [...dispatches].forEach((lowered, i) => {
      blocks[indexOf.get(lowered) as number] = at(compiled, i);
    });
    const data = packUniforms(blocks);
    const uniforms = storage.buffer('uniforms', data.byteLength, GPUBufferUsage.UNIFORM | GPUBufferUsage.COPY_DST);
    device.gpu.queue.writeBuffer(uniforms, 0, data);
    const ready = new Map<DispatchOperation, Ready>();
    [...dispatches].forEach((lowered, i) => {
      const { label, dispatch, pipeline } = at(compiled, i);
      const operands = Object.entries(lowered.operands);
      const fixed = operands
        .filter((entry): entry is [string, Tensor] => !isChunkRange(entry[1]))
        .map(([name, tensor]) => [name, storage.range(tensor)] as const);
      const chunks = operands.filter((entry): entry is [string, ChunkRange] => isChunkRange(entry[1]));
      ready.set(lowered, {
        label: `${label} ${lowered.label}`,
        dispatch,
        pipeline,
        uniform: indexOf.get(lowered) as number,
        fixed: Object.fromEntries(fixed),
        chunks,
        bound: new Map(),
      });
    });
    return new Bindings(device, slots, uniforms, ready);
  }

  private constructor(device: Device, slots: Slots, uniforms: GPUBuffer, ready: ReadonlyMap<DispatchOperation, Ready>) {
    this.#device = device;
    this.#slots = slots;
    this.#uniforms = uniforms;
    this.#ready = ready;
  }

  /** What to encode for a dispatch whose chunks are all on the GPU. */
  bind(lowered: DispatchOperation): BoundDispatch {
    const ready = this.#ready.get(lowered) as Ready;
    const key = slotKey(ready.chunks, (chunk) => this.#slots.of(chunk), this.#slots.count);
    const known = key === undefined ? undefined : ready.bound.get(key);
    if (known) return known;
    if (this.#groups >= MOST_GROUPS) {
      for (const { bound } of this.#ready.values()) bound.clear();
      this.#groups = 0;
    }
    const ranges = { ...ready.fixed };
    for (const [name, { chunk, offset, bytes }] of ready.chunks) {
      const slot = this.#slots.range(chunk);
      ranges[name] = { buffer: slot.buffer, offset: slot.offset + offset, bytes };
    }
    const { label, pipeline, dispatch, uniform } = ready;
    const bound = bindDispatch(this.#device, label, pipeline, dispatch.workgroups, ranges, this.#uniforms, uniform);
    if (key === undefined) return bound;
    ready.bound.set(key, bound);
    this.#groups++;
    return bound;
  }
}

/**
 * A number that stands for the slots of chunks, of so many slots, and for no others. Undefined where there are more ways than
 * a float64 tells apart.
 */
export function slotKey(
  chunks: readonly (readonly [string, { readonly chunk: number }])[],
  slotOf: (chunk: number) => number,
  slots: number,
): number | undefined {
  let key = 0;
  for (const [, { chunk }] of chunks) key = key * slots + slotOf(chunk);
  return Number.isSafeInteger(key) ? key : undefined;
}
