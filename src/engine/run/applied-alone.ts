// Trial of a device: whether its kernels give an activation by itself the bits that it has at the end of a product. Both are one
// function of the same float; but a GPU's compiler may contract a product and a sum to one rounding in one kernel and not in the other, and
// WGSL allows it. So it is tried, once for a device, with each variant of the product.

import { GPUBufferUsage } from '../../gpu/constants.ts';
import type { Device } from '../../gpu/device.ts';
import { type BufferRange, bindDispatch, encodeDispatch, packUniforms } from '../../gpu/dispatch.ts';
import { ACTIVATIONS, type ActivationName } from '../../kernels/activations.ts';
import type { Kernel, Variant } from '../../kernels/kernel.ts';
import { matmul } from '../../kernels/matmul.ts';
import { epiloguesOf, type MatmulProblem } from '../../kernels/matmul-problem.ts';
import { at } from '../../util/at.ts';
import { Random } from '../../util/random.ts';

/** Rows and columns of what is compared; of few rows, more columns. */
const SIZES = [
  { M: 64, N: 64 },
  { M: 4, N: 256 },
] as const;
/** Steps of k, and how far sums then go, on either side of where an activation does something. */
const [K, REACH] = [4, 12];

const known = new WeakMap<Device, Map<ActivationName, Promise<boolean>>>();

/** Whether these have the same bits either way, with all variants of the product that may be chosen. `names` is asked where it matters. */
export async function appliesAlone(device: Device, names: () => Iterable<ActivationName>): Promise<boolean> {
  // Adapters that run shaders on a CPU round each operation.
  if (device.adapter.software) return true;
  const found = known.get(device) ?? new Map<ActivationName, Promise<boolean>>();
  known.set(device, found);
  for (const name of names()) {
    const same = found.get(name) ?? isSame(device, name);
    found.set(name, same);
    if (!(await same)) return false;
  }
  return true;
}

async function isSame(device: Device, name: ActivationName): Promise<boolean> {
  for (const variant of matmul.variants) {
    const problems = SIZES.map(
      (size): MatmulProblem => ({
        ...{ layout: 'NN', K, ...size },
        epilogue: epiloguesOf(name).forward,
      }),
    );
    const problem = problems.find((each) => variant.supports?.(each, device.traits) ?? true);
    if (problem && !(await isSameIn(device, name, variant, problem))) return false;
  }
  return true;
}

async function isSameIn(
  device: Device,
  name: ActivationName,
  variant: Variant<MatmulProblem>,
  problem: MatmulProblem,
): Promise<boolean> {
  const { allocator, gpu } = device;
  const { M, N } = problem;
  const random = new Random(1, 'activations by themselves');
  const draw = (count: number, reach: number) =>
    Float32Array.from({ length: count }, () => reach * (2 * random.uniform() - 1));
  const values = {
    a: draw(M * K, 1),
    b: draw(K * N, REACH / K),
    bias: draw(N, 1),
    c: new Float32Array(M * N),
    preactivation: new Float32Array(M * N),
    y: new Float32Array(M * N),
  };
  const { STORAGE, COPY_DST, COPY_SRC, UNIFORM } = GPUBufferUsage;
  const made: GPUBuffer[] = [];
  const create = (label: string, size: number, usage: number) => {
    const buffer = allocator.create(`${label} of ${name}`, size, usage);
    made.push(buffer);
    return buffer;
  };
  try {
    const buffers = Object.fromEntries(
      Object.entries(values).map(([operand, data]) => {
        const buffer = create(operand, data.byteLength, STORAGE | COPY_DST | COPY_SRC);
        gpu.queue.writeBuffer(buffer, 0, data);
        return [operand, { buffer, offset: 0, bytes: data.byteLength }];
      }),
    ) as Record<keyof typeof values, BufferRange>;
    const encoder = gpu.createCommandEncoder();
    const encode = async <P>(
      kernel: Kernel<P>,
      one: Variant<P>,
      p: P,
      operands: Readonly<Record<string, BufferRange>>,
    ) => {
      const dispatch = one.dispatch(p, device.traits);
      const pipeline = await device.pipelines.get(`${kernel.name}.${one.name}`, dispatch.shader, dispatch.constants);
      const data = packUniforms([{ pipeline, dispatch }]);
      const uniforms = create('uniforms', data.byteLength, UNIFORM | COPY_DST);
      gpu.queue.writeBuffer(uniforms, 0, data);
      const bound = bindDispatch(device, kernel.name, pipeline, dispatch.workgroups, operands, uniforms, 0);
      const pass = encoder.beginComputePass();
      encodeDispatch(pass, bound);
      pass.end();
    };
    await encode(matmul, variant, problem, buffers);
    const { forward } = ACTIVATIONS[name];
    await encode(forward, at(forward.variants, 0), { size: M * N }, { x: buffers.preactivation, y: buffers.y });
    device.submit(encoder);
    const bitsOf = async ({ buffer }: BufferRange) => new Uint32Array(await device.read(buffer, 0, 4 * M * N));
    const [product, alone] = [await bitsOf(buffers.c), await bitsOf(buffers.y)];
    return product.every((bits, i) => bits === alone[i]);
  } finally {
    for (const buffer of made) allocator.destroy(buffer);
  }
}
