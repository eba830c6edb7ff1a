// Training with AdamW on the host: the same bits under every budget and tier, and the GPU's figures but for rounding.

import { afterEach, beforeAll, expect, test, vi } from 'vitest';
import type { MemoryOptions } from '../../src/engine/run/arrangement.ts';
import type { Device } from '../../src/gpu/device.ts';
import { leastHostChunks } from '../../src/memory/tiers/tier-limits.ts';
import { initialWeights } from '../../src/nn/initialise.ts';
import { at } from '../../src/util/at.ts';
import { collect } from '../../src/util/tensor-source.ts';
import { chooseVariants } from '../choose-variants.ts';
import { entry } from '../entry.ts';
import { testDevice } from '../harness.ts';
import { EVERY_CASE } from '../host.ts';
import { budgetFor, chunksUnder, expectSame, leastBudget, MODELS, memoryDisk, run, type Work } from './runs.ts';

let device: Device;
beforeAll(async () => {
  device = await testDevice();
});
afterEach(() => vi.restoreAllMocks());

const WORK: Work = {
  ...{ model: MODELS['gpt2, tied'], batch: 1, seq: 8, accumulate: 2, steps: 4, between: true },
  optimizerDevice: 'cpu',
};

/** All tiers at their least: a disk, and host memory for what an update holds. */
function leastTiers(memory: MemoryOptions): MemoryOptions {
  const disk = memoryDisk();
  const { chunks, bytes } = chunksUnder(device, WORK, memory);
  return { ...memory, host: leastHostChunks(chunks, true, true) * bytes, disk };
}

test('AdamW on the host gives the same bits whatever the budget, the tiers and the activations', async () => {
  chooseVariants(1);
  const { outcome: wanted, choices, report } = await run(device, WORK);
  const moved = report.link;
  expect(moved.d2hBytes).toBeGreaterThan(0);
  const least = leastBudget(device, WORK);
  const memories: MemoryOptions[] = [
    { gpu: least },
    { gpu: budgetFor(device, WORK, 0.3) },
    leastTiers({ gpu: least }),
    leastTiers({ gpu: budgetFor(device, WORK, 0.3), prefetch: false }),
    { gpu: budgetFor(device, WORK, 0.3), policy: 'LRU' },
    { gpu: budgetFor(device, WORK, 0.5), activations: 'recompute' },
  ];
  for (const memory of EVERY_CASE ? memories : memories.slice(1, 4)) {
    const { outcome } = await run(device, WORK, { memory, choices });
    expectSame(outcome, wanted, JSON.stringify(memory));
  }
});

test('after one step from the same state, AdamW on the host and on the GPU are 1 ulp apart at most', async () => {
  chooseVariants(1);
  const work = { ...WORK, steps: 1 };
  const { outcome: onGPU, choices } = await run(device, { ...work, optimizerDevice: 'gpu' });
  const { outcome: onHost } = await run(device, work, { choices });
  expect(onHost.steps).toEqual(onGPU.steps);
  const before = await collect(initialWeights(WORK.model, 3));
  for (const kind of ['parameter', 'moment1', 'moment2'] as const) {
    for (const [name, wanted] of onGPU[kind]) {
      const found = entry(onHost[kind], name);
      const was = kind === 'parameter' ? entry(before, name) : undefined;
      wanted.forEach((value, i) => {
        // Of a parameter that comes to lie near zero: of what it was, and of what was taken away from it.
        const scale = Math.max(Math.abs(value), Math.abs(was?.[i] ?? 0));
        const off = Math.abs(value - at(found, i)) / ulpOf(scale);
        if (!(off <= 1)) expect.fail(`${kind} ${name} ${i}: ${at(found, i)} is ${off} ulp from ${value}`);
      });
    }
  }
});

/** The distance of floats of 32 bits there. */
const ulpOf = (value: number): number => 2 ** (Math.max(-126, Math.floor(Math.log2(value))) - 23);
