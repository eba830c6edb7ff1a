// Training in bf16: kernels read sixteen bits of each parameter, the optimizer has all of its float32. The same bits in any
// memory, half the bytes for what the forward and the backward pass bring, and losses close to those of f32.

import { beforeAll, describe, expect, test } from 'vitest';
import { RandomWindows } from '../../src/data/batches.ts';
import { defaultCorpus } from '../../src/data/corpus.ts';
import { ByteTokenizer } from '../../src/data/tokenizer.ts';
import { fitMemory } from '../../src/engine/compile/fit.ts';
import { limitsOf, type MemoryOptions } from '../../src/engine/run/arrangement.ts';
import { parseConfig } from '../../src/formats/config.ts';
import type { Device } from '../../src/gpu/device.ts';
import { mapChunks } from '../../src/memory/layout/chunk-map.ts';
import { type TrainingDtype, trainedElementBytes } from '../../src/memory/layout/kinds.ts';
import { makeModel } from '../../src/nn/index.ts';
import { initialWeights } from '../../src/nn/initialise.ts';
import { computedIn, type Model } from '../../src/nn/model.ts';
import { Trainer } from '../../src/train/trainer.ts';
import { collect } from '../../src/util/tensor-source.ts';
import { chooseVariants } from '../choose-variants.ts';
import { testDevice } from '../harness.ts';
import { EVERY_CASE, testHost } from '../host.ts';
import {
  expectSame,
  LARGEST,
  leastBudget,
  MODELS,
  memoryDisk,
  openTrainer,
  run,
  train,
  type Work,
  workloadOf,
} from './runs.ts';

let device: Device;
beforeAll(async () => {
  device = await testDevice();
  chooseVariants(9);
});

const WORK: Work = { model: MODELS['gpt2, tied'], batch: 1, seq: 8, accumulate: 1, steps: 1 };

const NAMES = Object.keys(MODELS) as (keyof typeof MODELS)[];

describe.each(EVERY_CASE ? NAMES : (['gpt2, tied', 'qwen2, biases'] as const))('%s', (name) => {
  const model = computedIn(MODELS[name], 'bf16');
  const work: Work = { model, batch: 2, seq: 8, accumulate: 2, steps: 4, between: true };

  test('trains with the same bits in any memory, close to f32', async () => {
    const { outcome, choices } = await run(device, work);
    const least = leastBudget(device, work);
    const some = Math.floor(1.6 * least);
    const memories: MemoryOptions[] = [
      { gpu: least, host: 60_000, disk: memoryDisk() },
      { gpu: some, recovery: 'checkpoint', activations: 'keep' },
      { gpu: some, host: 60_000, disk: memoryDisk(), activations: 'recompute' },
      { gpu: some, policy: 'LRU' },
      { activations: 'light' },
      { gpu: some, activations: 'offload' },
    ];
    for (const memory of EVERY_CASE ? memories : memories.slice(0, 2)) {
      const found = await run(device, work, { memory, choices });
      expectSame(found.outcome, outcome, JSON.stringify(memory));
    }
    const wide = await run(device, { ...work, model: MODELS[name] }, { choices });
    const losses = (of: typeof wide) => of.outcome.steps.map(([loss]) => loss);
    expect(losses({ outcome, choices, report: wide.report })).not.toEqual(losses(wide));
    for (const [i, loss] of losses(wide).entries()) {
      expect(Math.abs((outcome.steps[i]?.[0] ?? 0) / loss - 1), `step ${i}`).toBeLessThan(0.01);
    }
  });
});

test('means of losses over 20 steps stay within 1 % of those of f32 on real text', async () => {
  const steps = EVERY_CASE ? 200 : 20;
  const tokens = new ByteTokenizer().encode(
    new TextDecoder().decode((await defaultCorpus(testHost)).bytes.subarray(0, 200_000)),
  );
  const shape = { model_type: 'gpt2', vocab_size: 256, n_positions: 32, n_embd: 32, n_layer: 2, n_head: 2 };
  const model = makeModel(parseConfig(shape, 'test'));
  const schedule = { decay: 'cosine', peak: 6e-3, min: 6e-4, warmup: steps / 10, steps } as const;
  const losses = async (dtype: TrainingDtype) => {
    const narrow = computedIn(model, dtype);
    const trainer = await Trainer.create(device, narrow, { batch: 8, seq: 32, schedule });
    try {
      await trainer.setWeights(initialWeights(narrow, 3));
      const batches = new RandomWindows(tokens, 8, 32, 1);
      const found: number[] = [];
      for (let step = 0; step < steps; step++) found.push((await trainer.start([batches.next()])).loss);
      return found;
    } finally {
      await trainer.destroy();
    }
  };
  const [wide, narrow] = [await losses('f32'), await losses('bf16')];
  expect(wide.at(-1)).toBeLessThan(EVERY_CASE ? 3 : 4.5);
  expect(narrow).not.toEqual(wide);
  // Of single steps any two runs differ by more, once their weights are not the same.
  const means = (all: readonly number[]) =>
    Array.from({ length: steps / 20 }, (_, i) => all.slice(20 * i, 20 * i + 20).reduce((a, b) => a + b) / 20);
  for (const [i, loss] of means(wide).entries()) {
    expect(Math.abs((means(narrow)[i] ?? 0) / loss - 1), `steps from ${20 * i} on`).toBeLessThan(0.01);
  }
});

test('weights come back as they were set, to the bit', async () => {
  const model = computedIn(MODELS['gpt2, untied'], 'bf16');
  const work: Work = { model, batch: 1, seq: 8, accumulate: 1, steps: 1 };
  const trainer = await openTrainer(await device.reopen(), work, { memory: { gpu: 2 * leastBudget(device, work) } });
  try {
    const [set, found] = [await collect(initialWeights(model, 3)), await collect(trainer.values('parameter'))];
    expect([...found.keys()].sort()).toEqual([...set.keys()].sort());
    for (const [name, values] of set) expect(found.get(name), name).toEqual(values);
  } finally {
    await trainer.destroy();
    trainer.device.close();
  }
});

test('a lost device and a new budget on the way change no bit', async () => {
  const work: Work = {
    ...{ model: computedIn(MODELS['gpt2, tied'], 'bf16'), batch: 2, seq: 8, accumulate: 1, steps: 8 },
  };
  const { outcome, choices } = await run(device, work);
  const memory = { gpu: 2 * leastBudget(device, work) };
  const trainer = await openTrainer(await device.reopen(), work, { memory, choices });
  try {
    const found = await train(trainer, work, async (pair) => {
      if (pair === 1) await trainer.setBudget(trainer.session.leastBudget);
      if (pair === 2) trainer.device.gpu.destroy();
    });
    expectSame(found, outcome, 'lost and moved');
    expect(trainer.recoveries).toBe(1);
  } finally {
    await trainer.destroy();
    trainer.device.close();
  }
});

test('twelve bytes of each parameter live on, and two more when its gradient is complete', () => {
  const wide = MODELS['gpt2, tied'];
  const odd = [8, 12, 16, 24, 32].map((kilobytes) => {
    const listsOf = ({ parameters }: Model) => {
      const { lists } = mapChunks(parameters, true, { minBytes: 0, maxBytes: 1024 * kilobytes });
      return Object.fromEntries(lists.map(({ kind, chunks }) => [kind, chunks]));
    };
    const n = listsOf(wide).parameter ?? 0;
    expect(listsOf(wide)).toEqual({ parameter: n, gradient: n, moment1: n, moment2: n });
    const half = Math.ceil(n / 2);
    const found = listsOf(computedIn(wide, 'bf16'));
    expect(found).toEqual({
      ...{ parameterBF16: half, parameterLow: half, gradient: n, gradientBF16: half, moment1: n, moment2: n },
    });
    return n % 2;
  });
  expect(new Set(odd)).toEqual(new Set([0, 1]));
  expect([trainedElementBytes('f32'), trainedElementBytes('bf16')]).toEqual([16, 14]);
  // All on the GPU: what gradients are rounded from is there for a moment.
  const limits = { ...limitsOf(device), binding: 32_768, buffer: 32_768 };
  const all = (model: Model) => fitMemory(workloadOf({ ...WORK, model }), limits, undefined);
  const { slots, map } = all(computedIn(LARGEST, 'bf16'));
  expect(map.list('gradient').chunks).toBeGreaterThan(9);
  expect(slots).toBeLessThan(map.count);
  expect(all(LARGEST).slots).toBe(all(LARGEST).map.count);
});
