// What the device tests share: one device a process, and one kernel run on plain arrays with guard zones.

import { GPUBufferUsage, GPUMapMode } from '../src/gpu/constants.ts';
import { type Device, openDevice } from '../src/gpu/device.ts';
import { bindDispatch, encodeDispatch, packUniforms } from '../src/gpu/dispatch.ts';
import type { Kernel, Operand, Variant } from '../src/kernels/kernel.ts';
import { TILE_SHAPES } from '../src/kernels/matmul-tiles.ts';
import { type NarrowElement, readingStored, STORED_BLOCKS, storedBytes } from '../src/kernels/stored.ts';
import { assert } from '../src/util/errors.ts';
import { CODECS, isMade } from '../src/values/stored-elements.ts';
import { ADAPTER, EVERY_CASE, testHost } from './host.ts';

let opened: Promise<Device> | undefined;

/** Another one where a test before has broken it. */
export async function testDevice(): Promise<Device> {
  try {
    (await opened)?.check();
  } catch {
    opened = undefined;
  }
  opened ??= openDevice(testHost, { adapter: ADAPTER });
  return opened;
}

/** Behind a test file: a device on which it left something is of no use to the next, which counts what lies there. */
export async function releaseDevice(): Promise<void> {
  const device = await opened?.catch(() => undefined);
  if (!device || device.allocator.bytes === 0) return;
  device.close();
  opened = undefined;
}

const UNROLLED = new Set(TILE_SHAPES.filter(({ unrolled }) => unrolled).map(({ name }) => name));

/**
 * The variants of a kernel that the adapter under test can run, whatever the problem: `quads` needs subgroups of one known size,
 * and those that read only what is stored in some way have tests of their own. A software adapter takes seconds for each shader whose
 * steps are written out: in `npm test` it has one of each shape, in matmul.test.ts.
 */
export async function runnable<P>(kernel: Kernel<P>): Promise<Variant<P>[]> {
  const { traits } = await testDevice();
  const isLeftOut = ({ name, readsOnly }: Variant<P>) =>
    readsOnly !== undefined ||
    (name === 'quads' ? traits.subgroupSize < 4 : UNROLLED.has(name) && traits.software && !EVERY_CASE);
  return kernel.variants.filter((variant) => !isLeftOut(variant));
}

/**
 * Whether the n-th problem is worth a variant's compilation. One for GPUs takes seconds to compile on a software
 * adapter, which never chooses it: there it runs on one problem of twice `stride`; one for that adapter, which takes up to a
 * second, on more of them. On all in `npm run test:all`.
 */
export async function isWorthwhile({ name }: { name: string }, n: number, stride: number): Promise<boolean> {
  const { software } = (await testDevice()).traits;
  if (EVERY_CASE || !software) return true;
  const share = name.startsWith('tiled') ? 2 : name === 'quads' ? 1 / 2 : ['lanes', 'block'].includes(name) ? 1 / 4 : 0;
  return n % Math.max(1, Math.ceil(share * stride)) === 0;
}

/** A bit pattern that no kernel writes: a NaN with a payload. */
export const SENTINEL = 0x7fc5a17e;
const GUARD_WORDS = 64;

/** As the GPU finds them. */
function wordsOf(given: HostArray, as: StoredAs | undefined): Uint32Array {
  if (!as) return new Uint32Array(given.buffer, given.byteOffset, given.length);
  const { element, bytes } = as;
  if (bytes) {
    const words = new Uint32Array(storedBytes(element, given.length) / 4).fill(SENTINEL);
    new Uint8Array(words.buffer).set(bytes);
    return words;
  }
  assert(isMade(element), `${element} is made of nothing`);
  const { elements } = STORED_BLOCKS[element];
  const whole = new Float32Array(Math.ceil(given.length / elements) * elements);
  whole.set(given);
  const words = new Uint32Array(storedBytes(element, given.length) / 4).fill(SENTINEL);
  new Uint8Array(words.buffer).set(CODECS[element].narrow(whole));
  return words;
}

/** How an operand is stored; its bytes, where they are not to be made of its values. */
export interface StoredAs {
  readonly element: NarrowElement;
  readonly bytes?: Uint8Array;
}

export type HostArray = Float32Array | Int32Array | Uint32Array;

/**
 * Runs one dispatch. `data` holds the operands' contents; one that the kernel only writes is filled with
 * the sentinel instead. Those in `stored` are narrowed. Returns the written operands. Throws when a word behind an
 * operand's end changed.
 */
export async function runKernel<P>(
  kernel: Kernel<P>,
  variant: Variant<P>,
  problem: P,
  data: Readonly<Record<string, HostArray>>,
  stored: Readonly<Record<string, StoredAs>> = {},
): Promise<Record<string, HostArray>> {
  const device = await testDevice();
  const { gpu, allocator, pipelines, traits } = device;
  const operands = kernel.operands(problem);
  const extents: { name: string; operand: Operand; buffer: GPUBuffer; bytes: number }[] = [];
  const ranges: Record<string, { buffer: GPUBuffer; offset: number; bytes: number }> = {};
  for (const [name, operand] of Object.entries(operands)) {
    const bytes = storedBytes(stored[name]?.element ?? 'f32', operand.size);
    const usage = GPUBufferUsage.STORAGE | GPUBufferUsage.COPY_SRC | GPUBufferUsage.COPY_DST;
    const buffer = allocator.create(`${kernel.name}.${name}`, bytes + GUARD_WORDS * 4, usage);
    const words = new Uint32Array(bytes / 4 + GUARD_WORDS).fill(SENTINEL);
    if (operand.access !== 'write') {
      const given = data[name];
      if (!given || given.length !== operand.size) {
        throw new Error(`${kernel.name}: operand ${name} wants ${operand.size} elements, got ${given?.length}`);
      }
      words.set(wordsOf(given, stored[name]));
    }
    gpu.queue.writeBuffer(buffer, 0, words);
    extents.push({ name, operand, buffer, bytes: bytes + GUARD_WORDS * 4 });
    ranges[name] = { buffer, offset: 0, bytes: Math.max(4, bytes) };
  }
  const dispatch = variant.dispatch(problem, traits);
  const shader = Object.entries(stored).reduce(
    (text, [name, { element }]) => readingStored(text, name, element),
    dispatch.shader,
  );
  const pipeline = await pipelines.get(`${kernel.name}.${variant.name}`, shader, dispatch.constants);
  const uniformData = packUniforms([{ pipeline, dispatch }]);
  const uniforms = allocator.create(
    'uniforms',
    uniformData.byteLength,
    GPUBufferUsage.UNIFORM | GPUBufferUsage.COPY_DST,
  );
  gpu.queue.writeBuffer(uniforms, 0, uniformData);
  const bound = bindDispatch(device, kernel.name, pipeline, dispatch.workgroups, ranges, uniforms, 0);
  const encoder = gpu.createCommandEncoder();
  const pass = encoder.beginComputePass();
  encodeDispatch(pass, bound);
  pass.end();
  // All operands come back in one read: some runtimes take 10 ms for each.
  const total = extents.reduce((sum, { bytes }) => sum + bytes, 0);
  const staging = allocator.create('staging', total, GPUBufferUsage.MAP_READ | GPUBufferUsage.COPY_DST);
  let offset = 0;
  for (const { buffer, bytes } of extents) {
    encoder.copyBufferToBuffer(buffer, 0, staging, offset, bytes);
    offset += bytes;
  }
  device.submit(encoder);
  await staging.mapAsync(GPUMapMode.READ);
  const read = staging.getMappedRange().slice(0);
  allocator.destroy(staging);

  const results: Record<string, HostArray> = {};
  offset = 0;
  for (const { name, operand, bytes } of extents) {
    const end = offset + bytes - GUARD_WORDS * 4;
    const guard = new Uint32Array(read, end, GUARD_WORDS);
    if (guard.some((word) => word !== SENTINEL))
      throw new Error(`${kernel.name}.${variant.name} wrote past the end of ${name}`);
    const payload = read.slice(offset, end);
    offset += bytes;
    if (operand.access === 'read') continue;
    const Type = { f32: Float32Array, i32: Int32Array, u32: Uint32Array }[operand.type];
    results[name] = new Type(payload);
  }
  for (const { buffer } of extents) allocator.destroy(buffer);
  allocator.destroy(uniforms);
  device.check();
  return results;
}
