// Bandwidths of what a training step moves and updates outside the GPU, measured: the link each way, and host memory as AdamW there
// reads and writes it. What is measured is what runs then: the same copies, the same arithmetic in the same threads.

import { GPUBufferUsage, GPUMapMode } from '../../gpu/constants.ts';
import type { Device } from '../../gpu/device.ts';
import { mapBuffer } from '../../gpu/mapping.ts';
import type { HostUpdater } from '../../kernels/host-adamw.ts';
import { HostAdamW } from '../../kernels/host-adamw.ts';
import { HYPER, STATE } from '../../kernels/step-control.ts';
import { BLOCK } from '../../kernels/sum-squares.ts';
import { WasmHeap } from '../../kernels/wasm-heap.ts';
import type { Threads } from '../../runtime/host.ts';
import { HostThreads } from '../run/host-threads.ts';
import type { MachineHostMemory, MachineLink } from '../simulate/machine.ts';

/** A copy, and how often it is tried: what else the machine does only takes from it. */
const LINK_BYTES = 32 * 2 ** 20;
const TRIES = 5;
/** That AdamW on the host updates: past all caches. Bytes that it reads and writes of each. */
const HOST_ELEMENTS = 2 ** 23;
const HOST_ELEMENT_BYTES = 28;

/** As chunks are moved: through buffers that are mapped, both ways. A write to the queue takes eight times as long on an H100. */
export async function measureLink(device: Device, bytes = LINK_BYTES): Promise<MachineLink> {
  const { gpu, allocator } = device;
  const { COPY_SRC, COPY_DST, MAP_READ, MAP_WRITE, STORAGE } = GPUBufferUsage;
  const buffer = allocator.create('bench', bytes, STORAGE | COPY_SRC | COPY_DST);
  const upload = allocator.create('bench upload', bytes, COPY_SRC | MAP_WRITE);
  const staging = allocator.create('bench staging', bytes, COPY_DST | MAP_READ);
  const values = new Uint8Array(bytes).fill(1);
  const copied = (from: GPUBuffer, to: GPUBuffer, size = bytes) => {
    const encoder = gpu.createCommandEncoder();
    encoder.copyBufferToBuffer(from, 0, to, 0, size);
    device.submit(encoder);
  };
  const answer = async () => {
    copied(buffer, staging, 4);
    await mapBuffer(staging, GPUMapMode.READ, 4);
    staging.unmap();
  };
  const up = async () => {
    device.copyBytes(new Uint8Array(upload.getMappedRange()), values);
    upload.unmap();
    copied(upload, buffer);
    await mapBuffer(upload, GPUMapMode.WRITE);
  };
  const down = async () => {
    copied(buffer, staging);
    await mapBuffer(staging, GPUMapMode.READ, bytes);
    device.copyBytes(values, new Uint8Array(staging.getMappedRange(0, bytes)));
    staging.unmap();
  };
  try {
    await mapBuffer(upload, GPUMapMode.WRITE);
    return {
      upBytesPerSecond: bytes / (await secondsOf(up)),
      downBytesPerSecond: bytes / (await secondsOf(down)),
      // WebGPU has one queue.
      copies: 'serial',
      answerSeconds: await secondsOf(answer),
    };
  } finally {
    for (const one of [buffer, upload, staging]) allocator.destroy(one);
  }
}

/** As AdamW on the host reads and writes it, in all of its threads: all of that is reached. */
export async function measureHostMemory(
  threads: Threads | undefined,
  elements = HOST_ELEMENTS,
): Promise<MachineHostMemory> {
  const heap = WasmHeap.make();
  const part = (): Uint8Array => {
    const size = elements * Float32Array.BYTES_PER_ELEMENT;
    const bytes = heap?.allocate(size) ?? new Uint8Array(size);
    // Neither zeros nor subnormals, with which a processor computes at other speeds.
    new Float32Array(bytes.buffer, bytes.byteOffset, elements).fill(1e-3);
    return bytes;
  };
  const values = { parameter: part(), gradient: part(), moment1: part(), moment2: part() };
  const hyper = new Float32Array(HYPER.size).fill(1e-3);
  const state = new Float32Array(STATE.size).fill(1);
  state[STATE.skip] = 0;
  const decayMask = new Uint32Array(elements / BLOCK / 32);
  const updater: HostUpdater = heap && threads ? new HostThreads(threads, heap) : new HostAdamW(heap);
  try {
    const extent = { size: elements, firstBlock: 0 };
    const seconds = await secondsOf(async () => updater.update(values, extent, { hyper, state, decayMask }));
    return { bytesPerSecond: (elements * HOST_ELEMENT_BYTES) / seconds, reached: 1 };
  } finally {
    await updater.end?.();
  }
}

/** The best of some tries behind a first one. */
async function secondsOf(work: () => Promise<void>): Promise<number> {
  await work();
  let best = Number.POSITIVE_INFINITY;
  for (let i = 0; i < TRIES; i++) {
    const start = performance.now();
    await work();
    best = Math.min(best, (performance.now() - start) / 1000);
  }
  return best;
}
