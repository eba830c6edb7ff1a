// A measurement of this machine as `holdfast plan --hardware` describes one: its peaks, its link, its disk, its host, and what each
// kernel of a training step reaches of what arithmetic and memory allow it.
//
// Invariant: what could not be measured is left out or has the figure of the whole; nothing is made up.

import { isDispatch } from '../engine/compile/operations.ts';
import { copy, measurePeak, timeOf } from '../engine/observe/peak.ts';
import { profile } from '../engine/observe/profile.ts';
import type { HostUpdater } from '../engine/run/host-optimizer.ts';
import { HostThreads } from '../engine/run/host-threads.ts';
import {
  boundSeconds,
  type Machine,
  type MachineDisk,
  type MachineHostMemory,
  type MachineLink,
} from '../engine/simulate/machine.ts';
import { parseConfig } from '../formats/config.ts';
import { GPUBufferUsage, GPUMapMode } from '../gpu/constants.ts';
import type { Device } from '../gpu/device.ts';
import { mapBuffer } from '../gpu/mapping.ts';
import { HostAdamW } from '../kernels/host-adamw.ts';
import { HYPER, STATE } from '../kernels/step-control.ts';
import { BLOCK } from '../kernels/sum-squares.ts';
import { WasmHeap } from '../kernels/wasm-heap.ts';
import { makeModel } from '../nn/index.ts';
import { initialWeights } from '../nn/initialise.ts';
import { type Host, join } from '../runtime/host.ts';
import { Trainer } from '../train/trainer.ts';
import { HoldfastError } from '../util/errors.ts';
import { Random } from '../util/random.ts';

/** Memory of a machine, in bytes; where GPU and host share one, both are all of it. */
export interface MachineMemory {
  readonly gpuBytes: number;
  readonly hostBytes: number;
  readonly sharedMemory: boolean;
}

/** The step whose kernels are timed: what a laptop's GPU is full with, and what a CPU computes within a second. */
const STEP = { layers: 2, width: 768, heads: 12, vocabulary: 8192, batch: 4, seq: 512 };
const SOFTWARE_STEP = { layers: 2, width: 128, heads: 4, vocabulary: 256, batch: 4, seq: 128 };
/** Shorter sums of a kernel are the clock's more than the kernel's. */
const LEAST_MS = 1;
/** A copy, and how often it is tried: what else the machine does only takes from it. */
const LINK_BYTES = 32 * 2 ** 20;
const TRIES = 5;
/** Of a file on disk, and of one write or read. */
const DISK_BYTES = 256 * 2 ** 20;
const DISK_PIECE = 8 * 2 ** 20;
/** That AdamW on the host updates: past all caches. Bytes that it reads and writes of each. */
const HOST_ELEMENTS = 2 ** 23;
const HOST_ELEMENT_BYTES = 28;

/** `folder`: where the disk tier would be. */
export async function measureMachine(
  host: Host,
  device: Device,
  memory: MachineMemory,
  folder = join(host.cacheFolder, 'bench'),
): Promise<Machine> {
  const { gflops, gigabytesPerSecond } = await measurePeak(device);
  const peaks = { peakFlops: gflops * 1e9, memoryBytesPerSecond: gigabytesPerSecond * 1e9 };
  const smallest = (await timeOf(device, copy, { size: 4 })) / 1000;
  const kernels = await measureKernels(device, peaks, smallest);
  const disk = await measureDisk(host, folder);
  return {
    title: `${device.adapter.name}, ${host.name}`,
    ...memory,
    ...kernels,
    hostMemory: await measureHostMemory(host),
    link: await measureLink(device),
    ...(disk && { disk }),
  };
}

type Peaks = Pick<Machine, 'peakFlops' | 'memoryBytesPerSecond'>;

/**
 * The peaks again, or what a kernel does better: a peak is the best that was seen. `smallest`: seconds of a dispatch that does next
 * to nothing.
 */
async function measureKernels(
  device: Device,
  given: Peaks,
  smallest: number,
): Promise<Peaks & Pick<Machine, 'reached' | 'reachedBy' | 'launchSeconds'>> {
  const { layers, width, heads, vocabulary, batch, seq } = device.adapter.software ? SOFTWARE_STEP : STEP;
  const fields = { vocab_size: vocabulary, n_positions: seq, n_embd: width, n_layer: layers, n_head: heads };
  const model = makeModel(parseConfig({ model_type: 'gpt2', ...fields }, 'bench'));
  const random = new Random(1, 'bench');
  const tokens = Int32Array.from({ length: batch * seq + 1 }, () => random.below(vocabulary));
  const schedule = { decay: 'constant', peak: 1e-3, min: 1e-3, warmup: 0, steps: 1 } as const;
  const trainer = await Trainer.create(device, model, { batch, seq, schedule });
  try {
    await trainer.setWeights(initialWeights(model, 1));
    await trainer.start([{ ids: tokens.slice(0, -1), targets: tokens.slice(1), batch, seq }]);
    const pass = trainer.session.fit.passes.step;
    const { kernels, milliseconds, wall } = await profile(trainer.session, pass);
    // Timed one by one they take longer than in a step as it is trained, whose time is the one to predict.
    const busy = Math.max(0, wall / 1000 - pass.operations.length * smallest);
    const share = milliseconds === undefined ? 0 : Math.min(1, busy / (milliseconds / 1000)) || 1;
    const long = kernels.flatMap(({ milliseconds = 0, ...kernel }) =>
      milliseconds < LEAST_MS ? [] : [{ ...kernel, seconds: (share * milliseconds) / 1000 }],
    );
    const peaks = {
      peakFlops: Math.max(given.peakFlops, ...long.map(({ flops, seconds }) => flops / seconds)),
      memoryBytesPerSecond: Math.max(given.memoryBytesPerSecond, ...long.map(({ bytes, seconds }) => bytes / seconds)),
    };
    const bounds = new Map<string, number>();
    for (const operation of pass.operations.filter(isDispatch)) {
      const { name } = operation.kernel;
      bounds.set(name, (bounds.get(name) ?? 0) + boundSeconds(peaks, operation));
    }
    // A kernel's dispatches are each bound by one of the two: together they may seem to do better than either.
    const part = (bound: number, seconds: number) => Math.min(1, bound / seconds);
    const all = [...bounds.values()].reduce((sum, seconds) => sum + seconds, 0);
    const reached = { ...peaks, reached: part(all, busy || wall / 1000), launchSeconds: smallest };
    if (milliseconds === undefined) return reached;
    return {
      ...reached,
      reachedBy: Object.fromEntries(
        long.flatMap(({ kernel, seconds }) => {
          const bound = bounds.get(kernel);
          return bound === undefined ? [] : [[kernel, part(bound, seconds)]];
        }),
      ),
    };
  } finally {
    await trainer.destroy();
  }
}

/** As chunks are moved: written to the queue, and read from buffers that are mapped. */
async function measureLink(device: Device): Promise<MachineLink> {
  const { gpu, allocator } = device;
  const { COPY_SRC, COPY_DST, MAP_READ, STORAGE } = GPUBufferUsage;
  const buffer = allocator.create('bench', LINK_BYTES, STORAGE | COPY_SRC | COPY_DST);
  const staging = allocator.create('bench staging', LINK_BYTES, COPY_DST | MAP_READ);
  const values = new Uint8Array(LINK_BYTES).fill(1);
  const up = async () => {
    gpu.queue.writeBuffer(buffer, 0, values);
    await device.idle();
  };
  const down = async () => {
    const encoder = gpu.createCommandEncoder();
    encoder.copyBufferToBuffer(buffer, 0, staging, 0, LINK_BYTES);
    device.submit(encoder);
    await mapBuffer(staging, GPUMapMode.READ, LINK_BYTES);
    values.set(new Uint8Array(staging.getMappedRange(0, LINK_BYTES)));
    staging.unmap();
  };
  try {
    return {
      upBytesPerSecond: LINK_BYTES / (await secondsOf(up)),
      downBytesPerSecond: LINK_BYTES / (await secondsOf(down)),
      // WebGPU has one queue.
      copies: 'serial',
    };
  } finally {
    allocator.destroy(buffer);
    allocator.destroy(staging);
  }
}

/** As AdamW on the host reads and writes it, in all of its threads: all of that is reached. */
async function measureHostMemory({ threads }: Host): Promise<MachineHostMemory> {
  const heap = WasmHeap.make();
  const part = (): Uint8Array => {
    const bytes = heap?.allocate(4 * HOST_ELEMENTS) ?? new Uint8Array(4 * HOST_ELEMENTS);
    // Neither zeros nor subnormals, with which a processor computes at other speeds.
    new Float32Array(bytes.buffer, bytes.byteOffset, HOST_ELEMENTS).fill(1e-3);
    return bytes;
  };
  const values = { parameter: part(), gradient: part(), moment1: part(), moment2: part() };
  const hyper = new Float32Array(HYPER.size).fill(1e-3);
  const state = new Float32Array(STATE.size).fill(1);
  state[STATE.skip] = 0;
  const decayMask = new Uint32Array(HOST_ELEMENTS / BLOCK / 32);
  const updater: HostUpdater = heap && threads ? new HostThreads(threads, heap) : new HostAdamW(heap);
  try {
    const extent = { size: HOST_ELEMENTS, firstBlock: 0 };
    const seconds = await secondsOf(async () => updater.update(values, extent, { hyper, state, decayMask }));
    return { bytesPerSecond: (HOST_ELEMENTS * HOST_ELEMENT_BYTES) / seconds, reached: 1 };
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

/** As the disk tier has it: through the system's cache. Undefined where there is no room. */
async function measureDisk(host: Host, folder: string): Promise<MachineDisk | undefined> {
  const file = await host.openBlockFile(folder, DISK_BYTES).catch((error: unknown) => {
    if (error instanceof HoldfastError) return undefined;
    throw error;
  });
  if (!file) return undefined;
  const piece = new Uint8Array(DISK_PIECE).fill(1);
  const pieces = async (move: (offset: number) => Promise<number>): Promise<number> => {
    const start = performance.now();
    for (let at = 0; at < DISK_BYTES; at += DISK_PIECE) await move(at);
    return DISK_BYTES / ((performance.now() - start) / 1000);
  };
  try {
    return {
      writeBytesPerSecond: await pieces((offset) => file.write(offset, piece)),
      readBytesPerSecond: await pieces((offset) => file.read(offset, piece)),
      bytes: (await host.files.freeBytes?.(folder)) ?? DISK_BYTES,
    };
  } finally {
    await file.remove();
  }
}
