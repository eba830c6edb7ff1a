// What a training step may cost: after the first one nothing is created, few command buffers are submitted,
// and steps are started without waiting for the ones before.

import { afterEach, beforeAll, describe, expect, test, vi } from 'vitest';
import { RandomWindows } from '../../src/data/batches.ts';
import type { ChoiceRecord } from '../../src/engine/compile/choices.ts';
import { parseConfig } from '../../src/formats/config.ts';
import { GPUBufferUsage } from '../../src/gpu/constants.ts';
import { openDevice } from '../../src/gpu/device.ts';
import { makeModel } from '../../src/nn/index.ts';
import { initialWeights } from '../../src/nn/initialise.ts';
import { Trainer } from '../../src/train/step/trainer.ts';
import { collect, sourceOf } from '../../src/values/tensor-source.ts';
import { testDevice } from '../harness.ts';
import { ADAPTER, testHost } from '../host.ts';

const shape = { vocab_size: 67, n_positions: 24, n_embd: 24, n_layer: 2, n_head: 3 };
const model = makeModel(parseConfig({ model_type: 'gpt2', ...shape }, 'test'));
const tokens = Int32Array.from({ length: 500 }, (_, i) => (i * i + 3 * i) % 67);
const schedule = { decay: 'constant', peak: 1e-3, min: 0, warmup: 0, steps: 10 } as const;

/** All with the kernel choices of the first: another variant may round otherwise. */
let choices: ChoiceRecord = {};

async function makeTrainer(accumulate: number, device = testDevice()): Promise<Trainer> {
  const trainer = await Trainer.create(await device, model, { batch: 2, seq: 17, accumulate, schedule, choices });
  choices = trainer.choices.record();
  await trainer.setWeights(initialWeights(model, 3));
  return trainer;
}

const windows = () => new RandomWindows(tokens, 2, 17, 1);

describe('a step after the first', () => {
  const created = ['createBuffer', 'createBindGroup', 'createComputePipelineAsync', 'createShaderModule'] as const;
  let trainer: Trainer;
  beforeAll(async () => {
    trainer = await makeTrainer(2);
  });
  afterEach(() => vi.restoreAllMocks());

  test('creates no buffer, bind group, pipeline or shader; submits one command buffer a micro-batch', async () => {
    const { gpu } = trainer.device;
    const batches = windows();
    await trainer.start([batches.next(), batches.next()]);
    const prototype = Object.getPrototypeOf(gpu);
    const spies = created.map((name) => vi.spyOn(prototype, name));
    const submit = vi.spyOn(Object.getPrototypeOf(gpu.queue), 'submit');
    const before = trainer.device.allocator.created;
    for (let i = 0; i < 3; i++) await trainer.start([batches.next(), batches.next()]);
    for (const spy of spies) expect(spy).not.toHaveBeenCalled();
    expect(trainer.device.allocator.created).toBe(before);
    expect(submit).toHaveBeenCalledTimes(3 * 2);
  });

  test('takes weights only whole: a source that lacks a parameter is refused before any is written', async () => {
    const before = await collect(trainer.values('parameter'));
    const weights = new Map([...before].map(([name, values]) => [name, values.map((value) => value + 1)]));
    weights.delete('ln_f.bias');
    await expect(trainer.setWeights(sourceOf(weights))).rejects.toThrow('the weights have no ln_f.bias');
    expect(await collect(trainer.values('parameter'))).toEqual(before);
  });

  test('may be started before the ones before it are done, with the same results', async () => {
    const [ahead, behind] = [await makeTrainer(1), await makeTrainer(1)];
    const [a, b] = [windows(), windows()];
    const started = [0, 1, 2, 3].map(() => ahead.start([a.next()]));
    const expected = [];
    for (let i = 0; i < 4; i++) expected.push(await behind.start([b.next()]));
    expect(await Promise.all(started)).toEqual(expected);
    await ahead.destroy();
    await behind.destroy();
  });

  test('gives all memory back when the trainer is destroyed', async () => {
    const { allocator } = trainer.device;
    const before = allocator.bytes;
    await (await makeTrainer(1)).destroy();
    expect(allocator.bytes).toBe(before);
  });
});

test('evaluation changes nothing and does not depend on how its windows are batched', async () => {
  const trainer = await makeTrainer(1);
  const batch = new RandomWindows(tokens, 5, 17, 9).next();
  const loss = await trainer.evaluate(batch);
  expect(await trainer.evaluate(batch)).toBe(loss);
  let sum = 0;
  for (let row = 0; row < 5; row++) {
    const part = (ids: Int32Array<ArrayBuffer>) => ids.slice(row * 17, (row + 1) * 17);
    sum += await trainer.evaluate({ ids: part(batch.ids), targets: part(batch.targets), batch: 1, seq: 17 });
  }
  // Two orders of adding 85 losses of about 4.2: at most 85 roundings of the sum.
  expect(Math.abs(sum / 5 - loss)).toBeLessThan(85 * 2 ** -24 * 4.2);
  await trainer.destroy();
});

describe('a device that fails', () => {
  test('lost: the next step says so', async () => {
    const trainer = await makeTrainer(1, openDevice(testHost, { adapter: ADAPTER }));
    trainer.device.gpu.destroy();
    await trainer.device.gpu.lost;
    await new Promise((resolve) => setTimeout(resolve, 0));
    await expect(trainer.start([windows().next()])).rejects.toThrow(/the GPU device was lost/);
  });

  test('an adapter that is not there: the error lists those that are', async () => {
    await expect(openDevice(testHost, { adapter: 'imaginary' })).rejects.toThrow(
      /no adapter matches "imaginary"; tried: .+/,
    );
  });

  test('a buffer past the limit: the error names it, the size and the limit', async () => {
    const device = await testDevice();
    const bytes = device.adapter.limits.maxBufferSize + 4;
    expect(() => device.allocator.create('huge', bytes, GPUBufferUsage.STORAGE)).toThrow(
      /buffer huge needs \d+ bytes, this adapter allows \d+/,
    );
  });
});
