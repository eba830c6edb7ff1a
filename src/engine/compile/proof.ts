// Proof of a variant on a device: that units which adapters differ in, and which WGSL does not describe to the bit, compute what the
// kernel's reference does, of a problem of integers with exact sums. A variant that asks for it is chosen on no device without.

import type { Device } from '../../gpu/device.ts';
import type { BufferRange } from '../../gpu/dispatch.ts';
import type { Arrays, Kernel, Variant } from '../../kernels/kernel.ts';
import { Random } from '../../util/random.ts';
import { Scratch } from './scratch.ts';

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
  const { gpu, pipelines, traits } = device;
  const random = new Random(1, 'proof of a variant');
  const scratch = new Scratch(device, (part) => `proof ${part}`);
  const wanted: Arrays = {};
  const operands: Record<string, BufferRange> = {};
  try {
    for (const [name, { size }] of Object.entries(kernel.operands(problem))) {
      const most = reach[name] ?? 0;
      const values = Float32Array.from({ length: size }, () => random.below(2 * most + 1) - most);
      wanted[name] = Float64Array.from(values);
      operands[name] = scratch.holding(name, values);
    }
    kernel.reference(problem, wanted);
    const dispatch = variant.dispatch(problem, traits);
    const label = `${kernel.name}.${variant.name}`;
    // Of what is not WebGPU's yet, another version may have another text: that is no error of the device.
    gpu.pushErrorScope('validation');
    const compiled = pipelines.get(label, dispatch.shader, dispatch.constants).catch(() => undefined);
    const [pipeline] = await Promise.all([compiled, gpu.popErrorScope()]);
    if (!pipeline) return false;
    scratch.run([scratch.bind(label, pipeline, dispatch, operands)]);
    for (const [name, range] of Object.entries(operands)) {
      const found = new Float32Array(await scratch.read(range));
      if (!found.every((value, i) => value === wanted[name]?.[i])) return false;
    }
    return true;
  } finally {
    scratch.close();
  }
}
