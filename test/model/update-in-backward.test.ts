// Training that updates chunks inside the backward pass: the bits of the update at the end, under every budget and tier, in the
// memory that was predicted; and steps whose loss or gradients are not finite.

import * as fc from 'fast-check';
import { afterEach, beforeAll, expect, test, vi } from 'vitest';
import { needBelow } from '../../src/engine/compile/candidate.ts';
import { fitMemory } from '../../src/engine/compile/fit.ts';
import { smallestBudget } from '../../src/engine/compile/least.ts';
import { limitsOf, type MemoryOptions } from '../../src/engine/run/arrangement.ts';
import type { Device } from '../../src/gpu/device.ts';
import { ACTIVATION_MODES, type ActivationMode } from '../../src/graph/activations.ts';
import { backwardPassesOf, OPTIMIZER_DEVICE_CHOICES } from '../../src/graph/operators/optimizer.ts';
import { HostAdamW } from '../../src/kernels/host-adamw.ts';
import { GROWTH_STEPS, initialState, LARGEST_SCALE, SCALER } from '../../src/kernels/step-control.ts';
import { trainingDtypeOf } from '../../src/memory/layout/chunk-map.ts';
import { KINDS, type TrainingDtype } from '../../src/memory/layout/kinds.ts';
import { leastHostBytes } from '../../src/memory/tiers/shares.ts';
import { initialWeights } from '../../src/nn/initialise.ts';
import { computedIn, optimizedOn } from '../../src/nn/model.ts';
import { traceStep } from '../../src/train/step/step-programs.ts';
import type { StepMetrics } from '../../src/train/step/trainer.ts';
import type { TrainerState } from '../../src/train/step/trainer-state.ts';
import { trainingWorkload } from '../../src/train/step/training-workload.ts';
import { collect, sourceOf, type TensorSource, type Values } from '../../src/values/tensor-source.ts';
import { chooseVariants } from '../choose-variants.ts';
import { entry, leading } from '../entry.ts';
import { testDevice } from '../harness.ts';
import { EVERY_CASE } from '../host.ts';
import {
  batchesOf,
  budgetFor,
  expectSame,
  LARGEST,
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

const inBackward = (work: Work): Work => ({ ...work, update: 'in-backward' });

/** `share`: of the model data that has room on the GPU; 0: the smallest budget; absent: no budget. */
const cases = fc.record({
  model: fc.constantFrom(...Object.keys(MODELS)) as fc.Arbitrary<keyof typeof MODELS>,
  dtype: fc.constantFrom('f32', 'f32', 'bf16', 'f16'),
  /** 0.1 clips each step of these models, 100 none. */
  clip: fc.constantFrom(0, 0.1, 100),
  accumulate: fc.constantFrom(1, 1, 3),
  optimizerDevice: fc.constantFrom(...OPTIMIZER_DEVICE_CHOICES),
  share: fc.option(fc.constantFrom(0, 0.1, 0.3, 0.6), { nil: undefined }),
  onDisk: fc.boolean(),
  activations: fc.constantFrom('auto', 'auto', ...ACTIVATION_MODES),
  policy: fc.constantFrom('planned', 'LRU'),
});
/** Of an optimizer on either: tensors on the GPU. */
const SPLIT = 5;
type Case = typeof cases extends fc.Arbitrary<infer C> ? C : never;

function memoryOf(work: Work, { share, onDisk, activations, policy }: Case): MemoryOptions {
  if (share === undefined) return { activations } as MemoryOptions;
  const { batch, seq, accumulate, clip = 1, optimizerDevice = 'gpu', optimizerSplit, update = 'at-end' } = work;
  const model = optimizedOn(work.model, optimizerDevice, optimizerSplit);
  const passes = backwardPassesOf(update, { clip, dtype: trainingDtypeOf(model.parameters) });
  const programs = traceStep(model, batch, seq, { passes });
  const options = { activations: activations as ActivationMode | 'auto' };
  const workload = trainingWorkload(model, programs, accumulate, undefined, options);
  const least = smallestBudget(workload, limitsOf(device));
  const gpu = share === 0 ? least : Math.max(least, budgetFor(device, work, share));
  const given = { gpu, policy, activations } as MemoryOptions;
  if (!onDisk) return given;
  // A little more than the least: what a smaller chunk needs may be more.
  const host = 2 * leastHostBytes(needBelow(fitMemory(workload, limitsOf(device), gpu)), true);
  return { ...given, disk: memoryDisk(), host };
}

async function sameBits(drawn: Case): Promise<void> {
  const { optimizerDevice } = drawn;
  const model = computedIn(MODELS[drawn.model], drawn.dtype as TrainingDtype);
  const { clip, accumulate } = drawn;
  const optimizerSplit = optimizerDevice === 'auto' ? SPLIT : undefined;
  const where = { optimizerDevice, ...(optimizerSplit !== undefined && { optimizerSplit }) };
  const work: Work = { model, batch: 1, seq: 8, accumulate, steps: EVERY_CASE ? 3 : 2, clip, ...where };
  chooseVariants(1);
  const { outcome: wanted, choices } = await run(device, work);
  const memory = memoryOf(inBackward(work), drawn);
  const { outcome } = await run(device, inBackward(work), { memory, choices });
  expectSame(outcome, wanted, JSON.stringify(drawn));
}

test('the bits are those of the update at the end, whatever is trained within whatever', async () => {
  // What runs without a budget is compared below. More by chance.
  const base = {
    model: 'gpt2, tied',
    dtype: 'f32',
    optimizerDevice: 'gpu',
    activations: 'auto',
    policy: 'planned',
  } as const;
  const few: Case[] = [
    { ...base, clip: 0.1, accumulate: 1, share: 0.3, onDisk: true, activations: 'offload', dtype: 'bf16' },
    { ...base, clip: 0, accumulate: 3, share: 0, onDisk: false, optimizerDevice: 'cpu' },
    { ...base, clip: 0, accumulate: 1, share: 0.3, onDisk: true, optimizerDevice: 'cpu', dtype: 'bf16' },
    { ...base, clip: 0.1, accumulate: 1, share: 0.3, onDisk: true, optimizerDevice: 'auto', dtype: 'bf16' },
    { ...base, clip: 0.1, accumulate: 1, share: 0.3, onDisk: false, dtype: 'f16' },
    { ...base, clip: 0, accumulate: 3, share: 0, onDisk: true, dtype: 'f16', activations: 'recompute' },
    { ...base, clip: 0.1, accumulate: 1, share: 0.3, onDisk: true, optimizerDevice: 'auto', dtype: 'f16' },
  ];
  for (const drawn of few) await sameBits(drawn);
  if (EVERY_CASE) await fc.assert(fc.asyncProperty(cases, sameBits), { seed: 14, numRuns: 40, endOnFailure: true });
});

test('gradients never lie anywhere whole, and the counted peaks are the predicted ones', async () => {
  chooseVariants(1);
  const gradientsIn = async (work: Work, memory: MemoryOptions) => {
    device.allocator.restartPeak();
    const before = device.allocator.bytes;
    const trainer = await openTrainer(device, work, { memory });
    const { map, held, peak, stashes } = trainer.session.fit;
    for (const batches of batchesOf(work)) await trainer.start(batches);
    await trainer.settle();
    expect(device.allocator.peak - before, 'the counted peak').toBe(peak);
    const moved = stashes.reduce((a, b) => a + b, 0);
    const onHost = (trainer.session.report().host.peak - moved) / map.chunkBytes;
    await trainer.destroy();
    const lasting = map.lists.reduce((sum, { kind, chunks }) => sum + (KINDS[kind].between === 'HOLD' ? chunks : 0), 0);
    return { share: (held - lasting) / map.list('gradient').chunks, onHost, held };
  };
  const work = inBackward({ model: LARGEST, batch: 1, seq: 8, accumulate: 1, steps: 2, clip: 0.1 });
  const found = await gradientsIn(work, { gpu: leastBudget(device, work, 'checkpoint') });
  // The embedding, which is the head's table, is a fifth of the model, and complete at the very end.
  expect(found.share).toBeLessThan(0.4);
  expect(found.onHost).toBeLessThanOrEqual(found.held);
  // A chunk that has a value is below, but for what is in a slot alone.
  expect(found.onHost).toBeGreaterThan(found.held - 16);
  const resident = await gradientsIn(work, {});
  expect(resident.share).toBeLessThan(0.6);
});

/** Weights with which the logits are finite, and the squares of gradients are not. */
async function steep(model: Work['model']): Promise<Values> {
  const weights = await collect(initialWeights(model, 3));
  entry(weights, 'ln_f.weight').fill(1e-25);
  entry(weights, 'lm_head.weight').fill(1e25);
  return weights;
}

test('a step whose gradients are not finite is skipped where a first pass sees them, and ends the training where none does', async () => {
  chooseVariants(1);
  const work: Work = { model: MODELS['gpt2, untied'], batch: 1, seq: 8, accumulate: 1, steps: 2, clip: 1 };
  const weights = await steep(work.model);
  const { outcome: wanted, choices } = await run(device, work, { weights: sourceOf(weights) });
  expect(wanted.steps.map(([loss, , skipped]) => [Number.isFinite(loss), skipped])).toEqual([
    [true, true],
    [true, true],
  ]);
  const { outcome } = await run(device, inBackward(work), { weights: sourceOf(weights), choices });
  expectSame(outcome, wanted, 'two passes');
  const once = inBackward({ ...work, clip: 0 });
  const trainer = await openTrainer(device, once, { weights: sourceOf(weights), choices });
  const [one, two] = leading(2, batchesOf(once));
  const [first, second] = [trainer.start(one), trainer.start(two)];
  second.catch(() => {});
  await expect(first).rejects.toThrow(/step 0 gave a gradient that is not finite.*--update at-end/);
  // What it made is not read, and nothing goes on from it.
  await expect(second).rejects.toThrow('not finite');
  await expect(collect(trainer.values('parameter'))).rejects.toThrow('step 0 gave a gradient');
  await trainer.destroy();
});

/** In f16: the scale of gradients before a first step, and the steps before it that did not overflow. */
const SCALES = [
  ['overflows, and halves until none does', LARGEST_SCALE, 0],
  ['doubles behind the first step', 2 ** 9, GROWTH_STEPS - 1],
] as const;

test.each(SCALES)('a scale of gradients that %s: the steps of the update at the end', async (_, scale, goodSteps) => {
  chooseVariants(1);
  const work: Work = { model: computedIn(SMALLEST, 'f16'), batch: 2, seq: 8, accumulate: 1, steps: 8, clip: 0.1 };
  const control = initialState(SCALER.size, scale);
  control[SCALER.goodSteps] = goodSteps;
  const { choices } = await run(device, work);
  /** All that the steps bring, their gradients included; a trainer goes on from the state of another in the middle. */
  const trained = async (works: readonly Work[], memory: MemoryOptions = {}) => {
    const found: unknown[] = [];
    let before: { readonly values: readonly [Values, Values, Values]; readonly state: TrainerState } | undefined;
    const batches = batchesOf(work);
    const each = batches.length / works.length;
    for (const [part, own] of works.entries()) {
      const trainer = await openTrainer(device, own, { choices, memory });
      try {
        if (before) {
          const [weights, moment1, moment2] = before.values;
          await trainer.setWeights(sourceOf(weights));
          await trainer.setValues('moment1', sourceOf(moment1));
          await trainer.setValues('moment2', sourceOf(moment2));
        }
        trainer.restore(before?.state ?? { step: 0, control: [...control] });
        for (const micros of batches.slice(part * each, (part + 1) * each)) {
          const inspect = async (gradients: TensorSource) => void found.push(await collect(gradients));
          found.push(await trainer.start(micros, { inspect }), await trainer.state());
        }
        const weights = await collect(trainer.values('parameter'));
        const [moment1, moment2] = [await collect(trainer.values('moment1')), await collect(trainer.values('moment2'))];
        before = { values: [weights, moment1, moment2], state: await trainer.state() };
      } finally {
        await trainer.destroy();
      }
    }
    return [...found, before?.values];
  };
  const wanted = await trained([work]);
  const skippedAt = (step: number) => (wanted[3 * step + 1] as StepMetrics).skipped;
  expect([skippedAt(0), skippedAt(work.steps - 1)]).toEqual([scale === LARGEST_SCALE, false]);
  const early = inBackward(work);
  expect(await trained([early])).toEqual(wanted);
  expect(await trained([early, work])).toEqual(wanted);
  const least = leastBudget(device, early, 'checkpoint');
  for (const activations of EVERY_CASE ? ACTIVATION_MODES : (['auto', 'offload'] as const))
    expect(await trained([work, early], { gpu: 2 * least, activations }), activations).toEqual(wanted);
  expect(await trained([early], { gpu: least, host: 400_000, disk: memoryDisk() })).toEqual(wanted);
});

test.each([0, 1])('clipped to %f: a step whose loss is not finite changes nothing', async (clip) => {
  chooseVariants(1);
  const work: Work = { model: SMALLEST, batch: 1, seq: 8, accumulate: 1, steps: 2, clip };
  const weights = await collect(initialWeights(work.model, 3));
  entry(weights, 'ln_f.weight').fill(Number.POSITIVE_INFINITY);
  const { outcome: wanted, choices } = await run(device, work, { weights: sourceOf(weights) });
  expect(wanted.steps.map(([, , skipped]) => skipped)).toEqual([true, true]);
  const { outcome } = await run(device, inBackward(work), { weights: sourceOf(weights), choices });
  expectSame(outcome, wanted, 'in the backward pass');
});

test('a run goes on in other budgets on the way, and gradients can be looked at', async () => {
  chooseVariants(1);
  const work: Work = { model: MODELS['gpt2, tied'], batch: 1, seq: 8, accumulate: 1, steps: 4, clip: 0.1 };
  const [one, ...others] = leading(4, batchesOf(work));
  const lookedAt = async (work: Work, memory: MemoryOptions, budgets: readonly number[] = [], more = 3) => {
    // In multiples of the smallest.
    const trainer = await openTrainer(device, work, { memory });
    let gradients: Values = new Map();
    await trainer.start(one, {
      inspect: async (found) => {
        gradients = await collect(found);
      },
    });
    for (const [i, batches] of others.slice(0, more).entries()) {
      const budget = budgets[i];
      if (budget !== undefined) await trainer.setBudget(budget * trainer.session.leastBudget);
      await trainer.start(batches);
    }
    const weights = await collect(trainer.values('parameter'));
    await trainer.destroy();
    return { gradients, weights };
  };
  const wanted = await lookedAt(work, {});
  const least = leastBudget(device, inBackward(work), 'checkpoint');
  const found = await lookedAt(inBackward(work), { gpu: 3 * least }, [1, 2]);
  expect(found).toEqual(wanted);
  // Of one pass, whose norm is known at the end.
  const once = await lookedAt(inBackward({ ...work, clip: 0 }), {}, [], 0);
  expect(once.gradients).toEqual(wanted.gradients);
});

test('an update on the host that takes long, above a disk and the least host memory, holds up the gradients behind it', async () => {
  chooseVariants(1);
  const model = computedIn(LARGEST, 'bf16');
  const work = inBackward({ model, batch: 1, seq: 8, accumulate: 1, steps: 3, clip: 0, optimizerDevice: 'cpu' });
  const memory: MemoryOptions = { gpu: Math.ceil(1.3 * leastBudget(device, work, 'checkpoint')) };
  const host = leastHostUnder(device, work, { ...memory, recovery: 'checkpoint' });
  const trainer = await openTrainer(device, work, { memory: { ...memory, host, disk: memoryDisk() } });
  const [one, two, three] = leading(3, batchesOf(work));
  for (const micros of [one, two]) await trainer.start(micros);
  const update = HostAdamW.prototype.update;
  vi.spyOn(HostAdamW.prototype, 'update').mockImplementationOnce(async function (this: HostAdamW, ...work) {
    await new Promise((resolve) => setTimeout(resolve, 1500));
    await update.apply(this, work);
  });
  const { loss } = await trainer.start(three);
  await trainer.settle();
  expect(loss).toBeGreaterThan(0);
  await trainer.destroy();
});
