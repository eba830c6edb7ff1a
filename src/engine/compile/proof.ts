// Proof of a variant on a device: that units which adapters differ in, and which WGSL does not describe to the bit, compute what the
// kernel's reference does, of a problem of integers with exact sums. A variant that asks for it is chosen on no device without.

import { GPUBufferUsage } from '../../gpu/constants.ts';
import type { Device } from '../../gpu/device.ts';
import { type BufferRange, bindDispatch, encodeDispatch, packUniforms } from '../../gpu/dispatch.ts';
import { type Arrays, ELEMENT_TYPES, type Kernel, type Variant } from '../../kernels/kernel.ts';
import { Random } from '../../util/random.ts';

const known = new WeakMap<Device, Map<object, Promise<boolean>>>();

/** Whether the variant needs no proof, or has it on this device: found once. */
export function isProven<P>(device: Device, kernel: Kernel<P>, variant: Variant<P>): Promise<boolean> {
  const { provenOn } = variant;
  if (!provenOn) return Promise.resolve(true);
  const found = known.get(device) ?? new Map<object, Promise<boolean>>();
  known.set(device, found);
  const proof = found.get(variant) ?? prove(device, kernel, variant, provenOn);
  found.set(variant, proof);
  // What failed is tried again.
  proof.catch(() => found.delete(variant));
  return proof;
}

async function prove<P>(
  device: Device,
  kernel: Kernel<P>,
  variant: Variant<P>,
  { problem, reach }: NonNullable<Variant<P>['provenOn']>,
): Promise<boolean> {
  const { allocator, gpu, pipelines, traits } = device;
  const random = new Random(1, 'proof of a variant');
  const wanted: Arrays = {};
  const ranges: Record<string, BufferRange> = {};
  const made: GPUBuffer[] = [];
  const create = (label: string, bytes: number, usage: number) => {
    const buffer = allocator.create(`proof ${label}`, bytes, usage);
    made.push(buffer);
    return buffer;
  };
  try {
    const operands = Object.entries(kernel.operands(problem));
    for (const [name, { size, type }] of operands) {
      const most = reach[name] ?? 0;
      const values = Float32Array.from({ length: size }, () => random.below(2 * most + 1) - most);
      wanted[name] = Float64Array.from(values);
      const { STORAGE, COPY_DST, COPY_SRC } = GPUBufferUsage;
      const buffer = create(name, size * ELEMENT_TYPES[type], STORAGE | COPY_DST | COPY_SRC);
      gpu.queue.writeBuffer(buffer, 0, values);
      ranges[name] = { buffer, offset: 0, bytes: buffer.size };
    }
    kernel.reference(problem, wanted);
    const dispatch = variant.dispatch(problem, traits);
    const label = `${kernel.name}.${variant.name}`;
    // Of what is not WebGPU's yet, another version may have another text: that is no error of the device.
    gpu.pushErrorScope('validation');
    const compiled = pipelines.get(label, dispatch.shader, dispatch.constants).catch(() => undefined);
    const [pipeline] = await Promise.all([compiled, gpu.popErrorScope()]);
    if (!pipeline) return false;
    const data = packUniforms([{ pipeline, dispatch }]);
    const uniforms = create('uniforms', data.byteLength, GPUBufferUsage.UNIFORM | GPUBufferUsage.COPY_DST);
    gpu.queue.writeBuffer(uniforms, 0, data);
    const encoder = gpu.createCommandEncoder();
    const pass = encoder.beginComputePass();
    encodeDispatch(pass, bindDispatch(device, label, pipeline, dispatch.workgroups, ranges, uniforms, 0));
    pass.end();
    device.submit(encoder);
    for (const [name, { buffer, bytes }] of Object.entries(ranges)) {
      const found = new Float32Array(await device.read(buffer, 0, bytes));
      if (!found.every((value, i) => value === wanted[name]?.[i])) return false;
    }
    return true;
  } finally {
    for (const buffer of made) allocator.destroy(buffer);
  }
}
