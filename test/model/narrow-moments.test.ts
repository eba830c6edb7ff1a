// Moments kept in bf16, rounded by chance: seeded, so that the same run has the same bits in any memory, updated at the end or
// inside the backward pass, on a new device or in another trainer; another seed rounds otherwise.

import { beforeAll, describe, expect, test } from 'vitest';
import { fitMemory } from '../../src/engine/compile/fit.ts';
import { limitsOf } from '../../src/engine/run/arrangement.ts';
import type { Device } from '../../src/gpu/device.ts';
import { trainedElementBytes } from '../../src/memory/layout/kinds.ts';
import { computedIn, momentsIn } from '../../src/nn/model.ts';
import { Trainer } from '../../src/train/step/trainer.ts';
import { at } from '../../src/util/at.ts';
import { collect, sourceOf, type Values } from '../../src/values/tensor-source.ts';
import { chooseVariants } from '../choose-variants.ts';
import { testDevice } from '../harness.ts';
import { EVERY_CASE, testHost } from '../host.ts';
import { expectClose, expectSameAfterLoss, runInAny } from './narrow-runs.ts';
import {
  batchesOf,
  expectSame,
  LARGEST,
  leastBudget,
  leastHostUnder,
  MODELS,
  memoryDisk,
  openTrainer,
  run,
  SMALLEST,
  train,
  type Work,
  workloadOf,
} from './runs.ts';

let device: Device;
beforeAll(async () => {
  device = await testDevice();
  chooseVariants(5);
});

const NAMES = Object.keys(MODELS) as (keyof typeof MODELS)[];
const CASES = EVERY_CASE
  ? (['f32', 'bf16', 'f16'] as const).flatMap((dtype) => NAMES.map((name) => [dtype, name] as const))
  : [['f32', 'gpt2, tied'] as const];

/** Whether a value has a bit that bf16 does not. */
const hasMore = (values: Values) =>
  [...values.values()].some((floats) => new Uint32Array(floats.slice().buffer).some((bits) => (bits & 0xffff) !== 0));

describe.each(CASES)('%s, %s', (dtype, name) => {
  const wide = computedIn(MODELS[name], dtype);
  const work: Work = { model: momentsIn(wide, 'bf16'), batch: 2, seq: 8, accumulate: 2, steps: 4, between: true };

  test('the same bits in any memory, close to those with moments in f32', async () => {
    const ran = await runInAny(device, work, 1, (least, some) => [
      { gpu: least, host: 60_000, disk: memoryDisk() },
      { gpu: some, recovery: 'checkpoint', activations: 'recompute' },
      { gpu: some, host: 60_000, disk: memoryDisk(), policy: 'LRU' },
      { gpu: some, activations: 'offload', accumulateOrder: 'layer' },
    ]);
    const { outcome, choices } = ran;
    expect([hasMore(outcome.moment1), hasMore(outcome.moment2), hasMore(outcome.parameter)]).toEqual([
      ...[false, false, true],
    ]);
    if (dtype !== 'f16') {
      const once = { ...work, accumulate: 1, steps: 2, between: false };
      const early = await run(device, { ...once, update: 'in-backward' }, { choices });
      expectSame(early.outcome, (await run(device, once, { choices })).outcome, 'updated in the backward pass');
    }
    await expectClose(device, work, wide, ran);
  });
});

const narrow = (dtype: 'f32' | 'bf16' | 'f16', model = SMALLEST) => momentsIn(computedIn(model, dtype), 'bf16');

test.runIf(EVERY_CASE)('a lost device and a new budget on the way change no bit', async () => {
  const model = narrow('f32', MODELS['gpt2, tied']);
  await expectSameAfterLoss(device, { model, batch: 2, seq: 8, accumulate: 1, steps: 8 });
});

test('another trainer goes on from the middle with the same bits; another seed rounds otherwise', async () => {
  const work: Work = { model: narrow('bf16'), batch: 1, seq: 8, accumulate: 1, steps: 6 };
  const batches = batchesOf(work);
  const kinds = ['parameter', 'moment1', 'moment2'] as const;
  const valuesOf = async (trainer: Trainer) => Promise.all(kinds.map((kind) => collect(trainer.values(kind))));
  const first = await openTrainer(device, work);
  const choices = first.choices.record();
  const schedule = first.options.schedule;
  for (const batch of batches.slice(0, 3)) await first.start(batch);
  const [middle, state] = [await valuesOf(first), await first.state()];
  for (const batch of batches.slice(3)) await first.start(batch);
  const end = await valuesOf(first);
  await first.destroy();
  const goOn = async (seed: number) => {
    const other = await Trainer.create(device, work.model, { batch: 1, seq: 8, schedule, choices, seed });
    for (const [i, kind] of kinds.entries()) await other.setValues(kind, sourceOf(at(middle, i)));
    other.restore(state);
    for (const batch of batches.slice(3)) await other.start(batch);
    const found = await valuesOf(other);
    await other.destroy();
    return found;
  };
  expect(await goOn(1)).toEqual(end);
  expect(await goOn(2)).not.toEqual(end);
});

test('AdamW on the host rounds as the GPU does, with the same bits in any memory', async () => {
  const wide = EVERY_CASE ? MODELS['gpt2, tied'] : SMALLEST;
  const model = momentsIn(wide, 'bf16');
  const work: Work = { model, batch: 1, seq: 8, accumulate: 1, steps: 3, optimizerDevice: 'cpu' };
  const { outcome, choices } = await run(device, work, { threads: testHost.threads });
  const gpu = leastBudget(device, work);
  const least = { gpu, host: leastHostUnder(device, work, { gpu }), disk: memoryDisk() };
  for (const memory of EVERY_CASE ? [least, { gpu }, { gpu: 2 * gpu, activations: 'recompute' as const }] : [least]) {
    const found = await run(device, work, { memory, choices });
    expectSame(found.outcome, outcome, JSON.stringify(memory));
  }
  if (EVERY_CASE) {
    const early = await run(device, { ...work, update: 'in-backward' }, { choices });
    expectSame(early.outcome, outcome, 'updated in the backward pass');
    const trainer = await openTrainer(await device.reopen(), work, { memory: { gpu: 2 * gpu }, choices });
    const found = await train(trainer, work, async (pair) => {
      if (pair === 1) trainer.device.gpu.destroy();
    });
    expectSame(found, outcome, 'a lost device');
    await trainer.destroy();
    trainer.device.close();
  }
  const once = { ...work, steps: 1 };
  const [onHost, onGPU] = [
    await run(device, once, { choices }),
    await run(device, { ...once, optimizerDevice: 'gpu' }, { choices }),
  ];
  // From moments of zero the first step's are an ulp apart at most, and so rounded apart in one of 2^16 cases.
  const bitsOf = (values: Values) =>
    [...values.values()].flatMap((floats) => [...new Uint32Array(floats.slice().buffer)]);
  for (const kind of ['moment1', 'moment2'] as const) {
    const [here, there] = [bitsOf(onHost.outcome[kind]), bitsOf(onGPU.outcome[kind])];
    const apart = here.filter((bits, i) => bits !== there[i]);
    expect(here.length).toBeGreaterThan(1000);
    expect(apart.length).toBeLessThanOrEqual(3 + here.length / 2 ** 13);
  }
});

test('a parameter takes four bytes less, and what is counted is half the chunks of moments', () => {
  const bytes = (['f32', 'bf16', 'f16'] as const).map((dtype) => trainedElementBytes(dtype, 'bf16'));
  expect(bytes).toEqual([12, 10, 10]);
  const limits = { ...limitsOf(device), binding: 32_768, buffer: 32_768 };
  const chunksOf = (model: Work['model']) => {
    const { map } = fitMemory(workloadOf({ model, batch: 1, seq: 8, accumulate: 1, steps: 1 }), limits, undefined);
    return Object.fromEntries(map.lists.map(({ kind, chunks }) => [kind, chunks]));
  };
  const [wide, half] = [chunksOf(LARGEST), chunksOf(narrow('f32', LARGEST))];
  const n = wide['moment1'] ?? 0;
  expect(n).toBeGreaterThan(9);
  expect(wide).toEqual({ parameter: n, gradient: n, moment1: n, moment2: n });
  const rounded = Math.ceil(n / 2);
  expect(half).toEqual({ parameter: n, gradient: n, moment1BF16: rounded, moment2BF16: rounded });
});
