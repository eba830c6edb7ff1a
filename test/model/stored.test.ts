// Frozen parameters that stay in sixteen bits, or in blocks of eight or four: a run of low-rank updates on them has every bit of the run on the widened
// ones, in any memory, and they take half the bytes everywhere; text is written with the same bits.

import { beforeAll, describe, expect, test } from 'vitest';
import { fitMemory } from '../../src/engine/compile/fit.ts';
import { limitsOf, type MemoryOptions } from '../../src/engine/run/arrangement.ts';
import { parseConfig } from '../../src/formats/config.ts';
import type { Device } from '../../src/gpu/device.ts';
import { isMade, STORED_BLOCKS, type StoredElement } from '../../src/kernels/stored.ts';
import { makeModel } from '../../src/nn/index.ts';
import { initialWeights } from '../../src/nn/initialise.ts';
import { withLora } from '../../src/nn/lora.ts';
import { type Model, withStored } from '../../src/nn/model.ts';
import { Generator } from '../../src/train/inference/generator.ts';
import { baseStorage, roundedWeights } from '../../src/train/run/base-dtype.ts';
import { at } from '../../src/util/at.ts';
import { collect, sourceOf, type Values } from '../../src/values/tensor-source.ts';
import { chooseVariants } from '../choose-variants.ts';
import { testDevice } from '../harness.ts';
import { EVERY_CASE } from '../host.ts';
import { losable } from './narrow-runs.ts';
import { expectSame, leastBudget, MODELS, memoryDisk, openTrainer, run, train, type Work, workloadOf } from './runs.ts';

let device: Device;
beforeAll(async () => {
  device = await testDevice();
  chooseVariants(9);
});

type Storing = (name: string) => StoredElement;

const STORED = {
  bf16: () => 'bf16',
  f16: () => 'f16',
  // As published models have it now and then.
  'bf16, norms in f32': (name) => (/norm|ln_/.test(name) ? 'f32' : 'bf16'),
  'every third f16, the others f32 and bf16': (name) => (['f32', 'f16', 'bf16'] as const)[name.length % 3] ?? 'f32',
  'q8_0 where rows are whole blocks, the others bf16': () => 'q8_0',
  'q4_0 where rows are whole blocks, the others bf16': () => 'q4_0',
  'nf4 where rows are whole blocks, the others bf16': () => 'nf4',
} as const satisfies Record<string, Storing>;

/** The base's parameters stored so, the update's in f32. */
function storedAs(model: Model, storing: Storing): Model {
  const files = new Map(model.parameters.map(({ name }) => [name, 'bf16' as const]));
  return withStored(model, (name) => {
    if (name.includes('lora_')) return 'f32';
    const stored = storing(name);
    return isMade(stored) && STORED_BLOCKS[stored].elements > 1 ? baseStorage(model, files, stored)(name) : stored;
  });
}

/** Drawn weights of which those that are stored narrow have values that fit. */
async function weightsOf(model: Model): Promise<Values> {
  const stored = new Map(model.parameters.map(({ name, stored = 'f32' }) => [name, stored]));
  return collect(roundedWeights(initialWeights(model, 3), (name) => stored.get(name) ?? 'f32', 'drawn'));
}

const bits = (values: Float32Array | undefined) =>
  values && [...new Uint32Array(values.buffer, values.byteOffset, values.length)];

const CASES = [
  ['gpt2, tied', 'bf16'],
  ['gpt2, untied', 'f16'],
  ['llama, grouped heads', 'bf16, norms in f32'],
  ['qwen2, biases', 'every third f16, the others f32 and bf16'],
  ['qwen3, norms of heads', 'bf16'],
  ['gemma3, every switch', 'f16'],
  ['llama, grouped heads', 'q8_0 where rows are whole blocks, the others bf16'],
  ['gpt2, tied', 'nf4 where rows are whole blocks, the others bf16'],
  ['gpt2, tied', 'q8_0 where rows are whole blocks, the others bf16'],
  ['llama, grouped heads', 'q4_0 where rows are whole blocks, the others bf16'],
  ['gemma3, every switch', 'nf4 where rows are whole blocks, the others bf16'],
] as const;

describe.each(EVERY_CASE ? CASES : [CASES[0], CASES[3], CASES[6], CASES[7]])('%s in %s', (name, storing) => {
  const wide = withLora(MODELS[name], { rank: 3, alpha: 4, dropout: 0.2 });
  const narrowed = storedAs(wide, STORED[storing]);
  const work: Work = { model: wide, batch: 2, seq: 8, accumulate: 2, steps: 4, between: true };
  const narrowWork: Work = { ...work, model: narrowed };

  test('trains with every bit of the widened base, in any memory and with activations kept or not', async () => {
    const weights = sourceOf(await weightsOf(narrowed));
    const { outcome, choices } = await run(device, work, { weights });
    expect(outcome.steps.every(([loss, norm]) => Number.isFinite(loss) && norm > 0)).toBe(true);
    const least = leastBudget(device, narrowWork);
    expect(least).toBeLessThanOrEqual(leastBudget(device, work));
    const some = Math.floor(1.6 * least);
    const memories: MemoryOptions[] = [
      {},
      { gpu: least, host: 60_000, disk: memoryDisk() },
      { gpu: some, recovery: 'checkpoint', activations: 'keep' },
      { gpu: some, host: 60_000, disk: memoryDisk(), activations: 'recompute' },
      { activations: 'light' },
      { gpu: some, activations: 'spill' },
      { gpu: some, activations: 'offload' },
    ];
    const nth = CASES.findIndex((each) => each[0] === name && each[1] === storing);
    for (const memory of EVERY_CASE ? memories : [at(memories, nth % 2)]) {
      const found = await run(device, narrowWork, { memory, choices, weights });
      expectSame(found.outcome, outcome, JSON.stringify(memory));
    }
  });
});

test('a lost device and a new budget on the way change no bit', async () => {
  const wide = withLora(MODELS['gpt2, tied'], { rank: 2 });
  const narrowed = storedAs(wide, () => 'bf16');
  const work: Work = { model: wide, batch: 2, seq: 8, accumulate: 1, steps: 8 };
  const weights = sourceOf(await weightsOf(narrowed));
  const { outcome, choices } = await run(device, work, { weights });
  const narrowWork = { ...work, model: narrowed };
  const least = leastBudget(device, narrowWork);
  const memory = { gpu: 2 * least, recovery: 'step' } as const;
  const { device: own, lose } = await losable(device);
  const trainer = await openTrainer(own, narrowWork, { memory, choices, weights });
  const found = await train(trainer, narrowWork, async (pair) => {
    if (pair === 1) await trainer.setBudget(trainer.session.leastBudget);
    if (pair === 2) lose(trainer);
  });
  expect(trainer.recoveries).toBe(1);
  expectSame(found, outcome, 'after a loss');
  const last = trainer.device;
  await trainer.destroy();
  last.close();
});

test.each([
  ['bf16', 1 / 2],
  ['f16', 1 / 2],
  ['q8_0', 17 / 64],
  // Of linears alone; the embeddings are a fifth of this model.
  ['q4_0', 1 / 5],
  ['nf4', 1 / 5],
] as const)('in %s it takes %f of the bytes of f32', (element, share) => {
  const config = { model_type: 'gpt2', vocab_size: 512, n_positions: 32, n_embd: 128, n_layer: 2, n_head: 4 };
  const wide = withLora(makeModel(parseConfig(config, 'test')), { rank: 2 });
  const frozenBytes = (model: Model) => {
    const work: Work = { model, batch: 1, seq: 8, accumulate: 1, steps: 1 };
    const { map } = fitMemory(workloadOf(work), limitsOf(device), undefined);
    return map.frozen.chunks * map.chunkBytes;
  };
  // Vectors stay bf16 where matrices are q8_0; the rest is padding.
  expect(frozenBytes(storedAs(wide, () => element)) / frozenBytes(wide)).toBeLessThan(1.1 * share);
});

test('is never written back', async () => {
  const model = storedAs(withLora(MODELS['gpt2, tied'], { rank: 2 }), () => 'bf16');
  const work: Work = { model, batch: 1, seq: 8, accumulate: 1, steps: 4 };
  const { trace } = fitMemory(workloadOf(work), limitsOf(device), leastBudget(device, work)).passes.step;
  const list = trace.lists.find(({ kind }) => kind === 'frozenBF16');
  const modes = new Set(
    trace.moments.flatMap(({ accesses }) =>
      accesses.flatMap(({ chunk, mode }) =>
        list && chunk >= list.first && chunk < list.first + list.chunks ? [mode] : [],
      ),
    ),
  );
  expect([...modes]).toEqual(['read']);
});

test('text is written with the bits of the widened model, in half the memory', async () => {
  const wide = MODELS['llama, grouped heads'];
  const narrowed = withStored(wide, () => 'bf16');
  const weights = sourceOf(await weightsOf(narrowed));
  const prompt = Int32Array.of(3, 1, 4, 1, 5);
  const first = await Generator.open(device, wide, weights);
  const second = await Generator.open(device, narrowed, weights);
  try {
    expect(bits(await second.next(prompt))).toEqual(bits(await first.next(prompt)));
  } finally {
    await first.close();
    await second.close();
  }
});
