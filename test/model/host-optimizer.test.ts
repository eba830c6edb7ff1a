// Training with AdamW on the host: the same bits under every budget and tier, and the GPU's figures but for rounding.

import { afterEach, beforeAll, expect, test, vi } from 'vitest';
import type { MemoryOptions } from '../../src/engine/run/arrangement.ts';
import type { Device } from '../../src/gpu/device.ts';
import { initialWeights } from '../../src/nn/initialise.ts';
import { at } from '../../src/util/at.ts';
import { collect, sourceOf } from '../../src/values/tensor-source.ts';
import { chooseVariants } from '../choose-variants.ts';
import { entry, leading } from '../entry.ts';
import { testDevice } from '../harness.ts';
import { EVERY_CASE, testHost } from '../host.ts';
import {
  batchesOf,
  budgetFor,
  expectSame,
  leastBudget,
  leastHostUnder,
  MODELS,
  memoryDisk,
  openTrainer,
  run,
  SMALLEST,
  type Work,
} from './runs.ts';

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
  return { ...memory, host: leastHostUnder(device, WORK, memory), disk };
}

test('AdamW on the host gives the same bits whatever the budget, the tiers and the activations', async () => {
  chooseVariants(1);
  const { outcome: wanted, choices, report } = await run(device, WORK, { threads: testHost.threads });
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
  for (const memory of EVERY_CASE ? memories : memories.slice(2, 4)) {
    const { outcome } = await run(device, WORK, { memory, choices });
    expectSame(outcome, wanted, JSON.stringify(memory));
  }
});

test('a run that goes on in another trainer, and in another budget on the way, ends in the same bits', async () => {
  chooseVariants(1);
  const work: Work = { ...WORK, model: SMALLEST, between: false };
  const { outcome: wanted, choices } = await run(device, work, { threads: testHost.threads });
  const least = leastBudget(device, work);
  const [one, two, three, four] = leading(4, batchesOf(work));
  const first = await openTrainer(device, work, { memory: { gpu: least }, choices });
  const steps = [await first.start(one), await first.start(two)];
  const state = await first.state();
  const kinds = ['parameter', 'moment1', 'moment2'] as const;
  const saved = await Promise.all(kinds.map((kind) => collect(first.values(kind))));
  await first.destroy();
  const second = await openTrainer(device, work, {
    memory: { gpu: 2 * least },
    choices,
    weights: sourceOf(at(saved, 0)),
  });
  await second.setValues('moment1', sourceOf(at(saved, 1)));
  await second.setValues('moment2', sourceOf(at(saved, 2)));
  second.restore(state);
  steps.push(await second.start(three));
  await second.setBudget(second.session.leastBudget);
  steps.push(await second.start(four));
  const [parameter, moment1, moment2] = await Promise.all(kinds.map((kind) => collect(second.values(kind))));
  await second.destroy();
  expect(steps.map(({ loss, gradNorm, skipped }) => [loss, gradNorm, skipped])).toEqual(wanted.steps);
  expect({ parameter, moment1, moment2 }).toEqual({
    parameter: wanted.parameter,
    moment1: wanted.moment1,
    moment2: wanted.moment2,
  });
});

test('a state that is lost with a device anyway is not asked for', async () => {
  const memory = { gpu: leastBudget(device, WORK), recovery: 'checkpoint' } as const;
  await expect(run(device, WORK, { memory })).rejects.toThrow(/recovery 'checkpoint': with the optimizer on the host/);
});

test('gradients go down once and parameters come up: the moments never do', async () => {
  chooseVariants(1);
  const work: Work = { ...WORK, model: SMALLEST, between: false, accumulate: 1, steps: 3 };
  const trainer = await openTrainer(device, work, { memory: { gpu: budgetFor(device, work, 3) } });
  const { map, residents, slots } = trainer.session.fit;
  expect(residents).toBe(map.list('parameter').chunks + map.list('gradient').chunks);
  expect(slots).toBe(residents);
  const [one, two] = leading(2, batchesOf(work));
  await trainer.start(one);
  await trainer.settle();
  const before = trainer.session.report().link;
  await trainer.start(two);
  await trainer.settle();
  const { h2dBytes, d2hBytes } = trainer.session.report().link;
  const bytes = map.list('parameter').chunks * map.chunkBytes;
  expect(h2dBytes - before.h2dBytes).toBe(bytes);
  expect(d2hBytes - before.d2hBytes).toBe(bytes);
  await trainer.destroy();
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
