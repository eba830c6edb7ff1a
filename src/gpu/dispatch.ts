// From a dispatch as data to one that a pass can encode: its pipeline, and a bind group over buffer ranges.

import type { Dispatch } from '../kernels/kernel.ts';
import { assert } from '../util/errors.ts';
import type { Device } from './device.ts';
import type { Pipeline } from './pipelines.ts';
import { packParams } from './shader.ts';

export interface BufferRange {
  readonly buffer: GPUBuffer;
  /** A multiple of 256 (WebGPU's storage and uniform offset alignment). */
  readonly offset: number;
  readonly bytes: number;
}

/** What a compute pass needs for one dispatch. */
export interface BoundDispatch {
  readonly pipeline: GPUComputePipeline;
  readonly bindGroup: GPUBindGroup;
  readonly workgroups: readonly [number, number, number];
}

/** Bytes between the uniform blocks of two dispatches. */
export const UNIFORM_STRIDE = 256;

/** Writes the uniform blocks of `dispatches`, one every UNIFORM_STRIDE bytes. */
export function packUniforms(dispatches: readonly { pipeline: Pipeline; dispatch: Dispatch }[]): ArrayBuffer {
  const block = new ArrayBuffer(Math.max(1, dispatches.length) * UNIFORM_STRIDE);
  dispatches.forEach(({ pipeline, dispatch }, i) => {
    packParams(pipeline.shader, dispatch.params, block, i * UNIFORM_STRIDE);
  });
  return block;
}

/** Binds operand ranges by name, and the uniform block at `uniformIndex`. */
export function bindDispatch(
  device: Device,
  label: string,
  pipeline: Pipeline,
  workgroups: readonly [number, number, number],
  operands: Readonly<Record<string, BufferRange>>,
  uniforms: GPUBuffer,
  uniformIndex: number,
): BoundDispatch {
  const { shader } = pipeline;
  const entries: GPUBindGroupEntry[] = [...shader.bindings].map(([binding, { name }]) => {
    const range = operands[name];
    assert(range, `${label}: nothing is bound to ${name}`);
    return { binding, resource: { buffer: range.buffer, offset: range.offset, size: range.bytes } };
  });
  if (shader.params.length > 0) {
    const resource = { buffer: uniforms, offset: uniformIndex * UNIFORM_STRIDE, size: shader.params.length * 4 };
    entries.push({ binding: 0, resource });
  }
  const bindGroup = device.gpu.createBindGroup({ label, layout: pipeline.layout, entries });
  return { pipeline: pipeline.pipeline, bindGroup, workgroups };
}

export function encodeDispatch(pass: GPUComputePassEncoder, bound: BoundDispatch): void {
  pass.setPipeline(bound.pipeline);
  pass.setBindGroup(0, bound.bindGroup);
  pass.dispatchWorkgroups(...bound.workgroups);
}
