// What moved activations take below the GPU: their own bytes, in host memory and on disk, whatever the size of a chunk; and
// the run is the same to the bit.

import { beforeAll, describe, expect, it } from 'vitest';
import { fitMemory } from '../../src/engine/compile/fit.ts';
import { smallestBudget } from '../../src/engine/compile/least.ts';
import { isTransfer } from '../../src/engine/compile/operations.ts';
import type { Pass } from '../../src/engine/compile/pass.ts';
import { limitsOf, type MemoryOptions } from '../../src/engine/run/arrangement.ts';
import type { Device } from '../../src/gpu/device.ts';
import { traceStep } from '../../src/train/step/step-programs.ts';
import { trainingWorkload } from '../../src/train/step/training-workload.ts';
import { chooseVariants } from '../choose-variants.ts';
import { testDevice } from '../harness.ts';
import { EVERY_CASE } from '../host.ts';
import { CountingFile } from '../memory/block-files.ts';
import { MemoryBlockFile } from '../memory-files.ts';
import { expectSame, MODELS, type Outcome, run, type Work } from './runs.ts';

/** The most bytes of activations that are below at once. */
function liveMoved({ operations }: Pass): number {
  let now = 0;
  return operations.filter(isTransfer).reduce((most, { op, pieces }) => {
    for (const { bytes } of pieces) now += op === 'offload' ? bytes : -bytes;
    return Math.max(most, now);
  }, 0);
}

describe.each([
  ['gpt2, tied', 1],
  ['llama, grouped heads', 2],
] as const)('%s in %d micro-batches', (name, accumulate) => {
  const work: Work = { model: MODELS[name], batch: 2, seq: 7, accumulate, steps: 3 };
  const workload = trainingWorkload(work.model, traceStep(work.model, work.batch, work.seq), accumulate, undefined, {
    activations: 'offload',
  });
  let device: Device;
  let wanted: Outcome;
  beforeAll(async () => {
    chooseVariants(3);
    device = await testDevice();
    wanted = (await run(device, work)).outcome;
  });

  it.each(EVERY_CASE ? [1, 3, 12] : [3])('takes what it moves, in %d times the smallest budget', async (times) => {
    const gpu = times * smallestBudget(workload, limitsOf(device));
    const fit = fitMemory(workload, limitsOf(device), gpu);
    const { map, passes } = fit;
    const live = liveMoved(passes.step);
    const chunks = map.count * map.chunkBytes;
    const underWay = map.largestPut * map.chunkBytes;
    expect(live).toBeGreaterThan(0);

    const memory: MemoryOptions = { gpu, activations: 'offload' };
    const onHost = await run(device, work, { memory });
    expectSame(onHost.outcome, wanted, 'moved to host memory');
    expect(onHost.report.host.peak).toBeLessThanOrEqual(chunks + underWay + 1.1 * live);
    expect(onHost.report.gpu.predictedPeak).toBe(fit.peak);

    let file: CountingFile | undefined;
    const open = async (bytes: number) => {
      file = new CountingFile(new MemoryBlockFile('/tier/block-file', bytes));
      return file;
    };
    const host = 4 * map.chunkBytes;
    const onDisk = await run(device, work, { memory: { ...memory, host, disk: { open } } });
    expectSame(onDisk.outcome, wanted, 'moved to disk');
    expect(onDisk.report.host.peak).toBeLessThanOrEqual(host);
    expect(onDisk.report.disk.peak).toBeLessThanOrEqual(chunks + underWay + 1.1 * live);
    expect(file?.bytes).toBeLessThanOrEqual(chunks + underWay + 1.1 * live);
    expect(onDisk.report.below.diskWriteBytes).toBe(file?.writtenBytes);
    expect(onDisk.report.below.diskReadBytes).toBe(file?.readBytes);
  });
});
