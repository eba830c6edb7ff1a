// `Scratch`: buffers on a device beside all that trains, on which kernels are tried, and dispatches bound to them. Nothing is left of
// it once it is closed.

import { GPUBufferUsage } from '../../gpu/constants.ts';
import type { Device } from '../../gpu/device.ts';
import {
  type BoundDispatch,
  type BufferRange,
  bindDispatch,
  encodeDispatch,
  packUniforms,
} from '../../gpu/dispatch.ts';
import type { Pipeline } from '../../gpu/pipelines.ts';
import type { Dispatch } from '../../kernels/kernel.ts';

const { STORAGE, UNIFORM, COPY_DST, COPY_SRC } = GPUBufferUsage;

export class Scratch {
  readonly #device: Device;
  readonly #labelOf: (part: string) => string;
  readonly #made: GPUBuffer[] = [];

  /** `labelOf`: of each buffer, by what it is for. */
  constructor(device: Device, labelOf: (part: string) => string) {
    this.#device = device;
    this.#labelOf = labelOf;
  }

  /** A buffer of so many bytes, with any contents. Errors: HoldfastError where it cannot be had. */
  room(part: string, bytes: number): BufferRange {
    return whole(this.#create(part, bytes, STORAGE));
  }

  /** A buffer of these values, to be read as well. Errors: HoldfastError where it cannot be had. */
  holding(part: string, values: Float32Array<ArrayBuffer>): BufferRange {
    const buffer = this.#create(part, values.byteLength, STORAGE | COPY_DST | COPY_SRC);
    this.#device.gpu.queue.writeBuffer(buffer, 0, values);
    return whole(buffer);
  }

  /** A dispatch over these operands, with uniforms of its own. Errors: HoldfastError where their buffer cannot be had. */
  bind(
    label: string,
    pipeline: Pipeline,
    dispatch: Dispatch,
    operands: Readonly<Record<string, BufferRange>>,
  ): BoundDispatch {
    const data = packUniforms([{ pipeline, dispatch }]);
    const uniforms = this.#create('uniforms', data.byteLength, UNIFORM | COPY_DST);
    this.#device.gpu.queue.writeBuffer(uniforms, 0, data);
    return bindDispatch(this.#device, label, pipeline, dispatch.workgroups, operands, uniforms, 0);
  }

  /** Submits dispatches, each in a pass of its own. */
  run(dispatches: readonly BoundDispatch[]): void {
    const encoder = this.#device.gpu.createCommandEncoder();
    for (const bound of dispatches) {
      const pass = encoder.beginComputePass();
      encodeDispatch(pass, bound);
      pass.end();
    }
    this.#device.submit(encoder);
  }

  /** The bytes of a buffer, behind all that was submitted. */
  read({ buffer, bytes }: BufferRange): Promise<ArrayBuffer> {
    return this.#device.read(buffer, 0, bytes);
  }

  close(): void {
    for (const buffer of this.#made.splice(0)) this.#device.allocator.destroy(buffer);
  }

  #create(part: string, bytes: number, usage: number): GPUBuffer {
    const buffer = this.#device.allocator.create(this.#labelOf(part), bytes, usage);
    this.#made.push(buffer);
    return buffer;
  }
}

const whole = (buffer: GPUBuffer): BufferRange => ({ buffer, offset: 0, bytes: buffer.size });
