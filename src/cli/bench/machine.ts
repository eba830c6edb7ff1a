// A measurement of this machine as `holdfast plan --hardware` describes one: its peaks, its link, its disk, its host, and what each
// kernel of a training step reaches of what arithmetic and memory allow it.
//
// Invariant: what could not be measured is left out or has the figure of the whole; nothing is made up.

import { isDispatch } from '../../engine/compile/operations.ts';
import { measureHostMemory, measureLink } from '../../engine/observe/bandwidths.ts';
import { copy, measurePeak, timeOf } from '../../engine/observe/peak.ts';
import { profile } from '../../engine/observe/profile.ts';
import { boundSeconds, type Machine, type MachineDisk } from '../../engine/simulate/machine.ts';
import { parseConfig } from '../../formats/config.ts';
import type { Device } from '../../gpu/device.ts';
import { makeModel } from '../../nn/index.ts';
import { initialWeights } from '../../nn/initialise.ts';
import { type Host, join } from '../../runtime/host.ts';
import { Trainer } from '../../train/step/trainer.ts';
import { HoldfastError } from '../../util/errors.ts';
import { Random } from '../../util/random.ts';

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
/** Of a file on disk, and of one write or read. */
const DISK_BYTES = 256 * 2 ** 20;
const DISK_PIECE = 8 * 2 ** 20;

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
    hostMemory: await measureHostMemory(host.threads),
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
