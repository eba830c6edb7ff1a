// AdamW on the GPU for some tensors and on the host for others: each as the device that has it computes it, the same bits under
// every budget and tier and over a lost device, and where the split is, if it is left to the trainer.

import { afterEach, beforeAll, describe, expect, test, vi } from 'vitest';
import { fitMemory } from '../../src/engine/compile/fit.ts';
import { limitsOf, type MemoryOptions } from '../../src/engine/run/arrangement.ts';
import type { Device } from '../../src/gpu/device.ts';
import { computedIn, momentsIn, rowsIn } from '../../src/nn/model.ts';
import { chooseSplit, trainedTensors } from '../../src/train/step/optimizer-split.ts';
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
  workloadOf,
} from './runs.ts';

let device: Device;
beforeAll(async () => {
  device = await testDevice();
});
afterEach(() => vi.restoreAllMocks());

const PLAIN = MODELS['gpt2, tied'];
const TENSORS = trainedTensors(PLAIN).length;
/** Of the embedding, about half of the rows. */
const CUT = 0.5;

const WIDTHS = [
  ['f32', 'f32'],
  ['bf16', 'bf16'],
  ['f16', 'f32'],
  ['f32', 'bf16'],
] as const;

describe.each(EVERY_CASE ? WIDTHS : WIDTHS.slice(0, 2))('parameters in %s, moments in %s', (dtype, moments) => {
  const model = momentsIn(computedIn(PLAIN, dtype), moments);
  const on = (optimizerDevice: 'gpu' | 'cpu' | 'auto', optimizerSplit?: number): Work => ({
    ...{ model, batch: 1, seq: 8, accumulate: 2, steps: 3, optimizerDevice },
    ...(optimizerSplit !== undefined && { optimizerSplit }),
  });

  test('after one step each tensor is what the device that has it makes of it', async () => {
    chooseVariants(1);
    const { outcome: onGPU, choices } = await run(device, { ...on('gpu'), steps: 1 });
    const { outcome: onHost } = await run(device, { ...on('cpu'), steps: 1 }, { choices });
    for (const split of EVERY_CASE ? [0, CUT, 1, 2, 3, TENSORS - 1, TENSORS] : [CUT, TENSORS - 1]) {
      const work = { ...on('auto', split), steps: 1 };
      const { outcome } = await run(device, work, { choices });
      // Their arithmetic may be alike to the bit.
      expect(namesOnHost(work)).toEqual(model.parameters.slice(Math.floor(split)).map(({ name }) => name));
      expect(outcome.steps).toEqual(onGPU.steps);
      for (const kind of ['parameter', 'moment1', 'moment2'] as const) {
        model.parameters.forEach(({ name, shape }, i) => {
          const [gpus, hosts] = [entry(onGPU[kind], name), entry(onHost[kind], name)];
          const rows = i === Math.floor(split) ? rowsIn({ name, shape }, split % 1) : 0;
          const cut = i < Math.floor(split) ? gpus.length : (rows * gpus.length) / at(shape, 0);
          const wanted = Float32Array.from([...gpus.subarray(0, cut), ...hosts.subarray(cut)]);
          expect(entry(outcome[kind], name), `${kind} ${name} of ${split}`).toEqual(wanted);
        });
      }
    }
  });

  test('the bits are the same whatever the budget, the tiers and what is kept for a lost device', async () => {
    chooseVariants(1);
    // Of the bits of f32, in the midst of a tensor.
    const work = on('auto', dtype === 'f32' ? CUT : 4);
    const { outcome: wanted, choices } = await run(device, work, { threads: testHost.threads });
    const least = leastBudget(device, work);
    const onDisk = (memory: MemoryOptions): MemoryOptions => ({
      ...memory,
      host: leastHostUnder(device, work, memory),
      disk: memoryDisk(),
    });
    const memories: MemoryOptions[] = [
      onDisk({ gpu: least }),
      { gpu: budgetFor(device, work, 0.4, 'checkpoint'), recovery: 'checkpoint' },
      onDisk({ gpu: budgetFor(device, work, 0.3) }),
      { gpu: least, policy: 'LRU' },
      { gpu: budgetFor(device, work, 0.5), activations: 'recompute' },
    ];
    for (const memory of EVERY_CASE ? memories : [at(memories, dtype === 'f32' ? 0 : 1)]) {
      const { outcome } = await run(device, work, { memory, choices });
      expectSame(outcome, wanted, JSON.stringify(memory));
    }
  });
});

/** The tensors that operations on the host update, of a step that has everything on the GPU. */
function namesOnHost(work: Work): string[] {
  const { map, passes } = fitMemory(workloadOf(work), limitsOf(device), undefined);
  const updates = (op: string) =>
    passes.step.operations.flatMap(({ op: found, each }) =>
      found === op && each?.completes.includes(map.readKind) ? [each.index] : [],
    );
  const [onHost, onGPU] = [updates('host'), updates('dispatch')];
  expect([...onGPU, ...onHost].toSorted((a, b) => a - b)).toEqual(map.indices);
  const indicesOf = (name: string) => map.pieces(name, 'gradient').map(({ chunk }) => chunk);
  return work.model.parameters
    .map(({ name }) => name)
    .filter((name) => indicesOf(name).some((i) => onHost.includes(i)));
}

test('what the GPU updates stays there, and what the host updates never comes: bytes of a step', async () => {
  chooseVariants(1);
  const work: Work = {
    ...{ model: SMALLEST, batch: 1, seq: 8, accumulate: 1, steps: 3 },
    ...{ optimizerDevice: 'auto', optimizerSplit: 3 },
  };
  const trainer = await openTrainer(device, work);
  const { map } = trainer.session.fit;
  expect(map.hostIndex).toBeGreaterThan(0);
  const [one, two] = leading(2, batchesOf(work));
  await trainer.start(one);
  await trainer.settle();
  const before = trainer.session.report().link;
  await trainer.start(two);
  await trainer.settle();
  const after = trainer.session.report().link;
  const onHost = (map.trainable.chunks - map.hostIndex) * map.chunkBytes;
  expect(after.h2dBytes - before.h2dBytes).toBe(onHost);
  expect(after.d2hBytes - before.d2hBytes).toBe(onHost);
  await trainer.destroy();
});

describe('the split, where it is left to the trainer', () => {
  const work: Work = { model: PLAIN, batch: 1, seq: 8, accumulate: 1, steps: 4 };
  const chosen = (gpu: number | undefined, { link, hostBytes }: { link: number; hostBytes: number }): number => {
    const limits = limitsOf(device);
    return chooseSplit({
      model: work.model,
      workloadOf: (model) => workloadOf({ ...work, model }),
      memory: gpu === undefined ? {} : { gpu },
      limits: { ...limits, rates: { ...limits.rates, upBytes: link, downBytes: link, hostBytes } },
    }).split;
  };

  test('is all on the GPU where everything stays there', () => {
    expect(chosen(undefined, { link: 1e9, hostBytes: 1e12 })).toBe(TENSORS);
  });

  test('is all on the host where that is fast and the budget small, and all on the GPU where it is slow', () => {
    const gpu = leastBudget(device, work);
    expect(chosen(gpu, { link: 1e8, hostBytes: 1e12 })).toBe(0);
    expect(chosen(gpu, { link: 1e12, hostBytes: 1e5 })).toBe(TENSORS);
  });

  test('is measured, kept, and taken over by a trainer that goes on', async () => {
    chooseVariants(1);
    const memory = { gpu: budgetFor(device, work, 0.5) };
    const auto: Work = { ...work, optimizerDevice: 'auto' };
    const first = await openTrainer(device, auto, { memory, threads: testHost.threads });
    const { optimizerSplit } = first.options;
    expect(optimizerSplit).toBeGreaterThanOrEqual(0);
    expect(optimizerSplit).toBeLessThanOrEqual(TENSORS);
    const same: Work = { ...auto, optimizerSplit: optimizerSplit as number };
    const choices = first.choices.record();
    const { outcome: wanted } = await run(device, same, { choices });
    const [one, two, three, four] = leading(4, batchesOf(work));
    const steps = [await first.start(one), await first.start(two)];
    const state = await first.state();
    const kinds = ['parameter', 'moment1', 'moment2'] as const;
    const saved = await Promise.all(kinds.map((kind) => collect(first.values(kind))));
    await first.destroy();
    const second = await openTrainer(device, same, { choices, weights: sourceOf(at(saved, 0)) });
    await second.setValues('moment1', sourceOf(at(saved, 1)));
    await second.setValues('moment2', sourceOf(at(saved, 2)));
    second.restore(state);
    steps.push(await second.start(three), await second.start(four));
    const [parameter, moment1, moment2] = await Promise.all(kinds.map((kind) => collect(second.values(kind))));
    await second.destroy();
    expect(steps.map(({ loss, gradNorm, skipped }) => [loss, gradNorm, skipped])).toEqual(wanted.steps);
    expect({ parameter, moment1, moment2 }).toEqual({
      parameter: wanted.parameter,
      moment1: wanted.moment1,
      moment2: wanted.moment2,
    });
  });

  test.each([
    [{ optimizerDevice: 'cpu', optimizerSplit: 1 }, /let optimizerDevice be 'auto'/],
    [{ optimizerDevice: 'auto', optimizerSplit: TENSORS + 1 }, /tensors train in this model/],
    [{ optimizerDevice: 'auto', optimizerSplit: -0.5 }, /must be 0 or more/],
  ] as const)('%o is refused', async (where, message) => {
    await expect(openTrainer(device, { ...work, ...where })).rejects.toThrow(message);
  });
});
