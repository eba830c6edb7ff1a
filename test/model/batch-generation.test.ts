// Several texts at once: each is the one that it would be by itself, to the bit, whatever the others are, where it begins anew
// past the end of its context, within the smallest budget with caches below the GPU, and with an adapter. A device that is lost
// ends all of them, as it ends one by itself.

import { afterAll, expect, test } from 'vitest';
import { KernelChoices } from '../../src/engine/compile/choices.ts';
import { smallestBudget } from '../../src/engine/compile/least.ts';
import { limitsOf } from '../../src/engine/run/arrangement.ts';
import { parseConfig } from '../../src/formats/config.ts';
import { openDevice } from '../../src/gpu/device.ts';
import { makeModel } from '../../src/nn/index.ts';
import { initialWeights } from '../../src/nn/initialise.ts';
import { withLora } from '../../src/nn/lora.ts';
import type { Model } from '../../src/nn/model.ts';
import { BatchGenerator } from '../../src/train/inference/batch-generator.ts';
import { generationWorkload, traceGeneration } from '../../src/train/inference/generation-workload.ts';
import { Generator, type GeneratorOptions } from '../../src/train/inference/generator.ts';
import { HoldfastError, messageOf } from '../../src/util/errors.ts';
import { Random } from '../../src/util/random.ts';
import { chooseVariants } from '../choose-variants.ts';
import { ADAPTER, testHost } from '../host.ts';
import { type Call, fragileDevice } from './fragile.ts';
import { memoryDisk } from './runs.ts';

chooseVariants(7);
const device = await openDevice(testHost, { adapter: ADAPTER });
afterAll(() => device.close());

const CAPACITY = 37;
const GPT2 = withLora(
  makeModel(
    parseConfig(
      { model_type: 'gpt2', vocab_size: 31, n_positions: CAPACITY, n_embd: 12, n_layer: 2, n_head: 2 },
      'test',
    ),
  ),
  { rank: 2 },
  'other',
);
const WINDOWS = makeModel(
  parseConfig(
    {
      ...{ model_type: 'mistral', vocab_size: 31, max_position_embeddings: CAPACITY, sliding_window: 6 },
      ...{ hidden_size: 24, num_hidden_layers: 3, intermediate_size: 20, tie_word_embeddings: true },
      ...{ num_attention_heads: 4, num_key_value_heads: 2, head_dim: 12 },
    },
    'test',
  ),
);

/** Lengths of prompts, and of what is written behind them: one past the context. */
const TEXTS = [
  [19, 26],
  [1, 3],
  [35, 5],
  [16, 9],
  [4, 8],
] as const;
const promptOf = (length: number) => Int32Array.from({ length }, (_, i) => (7 * i * i + 3 * length) % 31);
const choices = new KernelChoices(device).record();

type Writer = Pick<Generator, 'generate'>;
const write = async (generator: Writer, n: number, adapter?: string): Promise<number[]> => {
  const [length, count] = TEXTS[n] ?? [1, 1];
  const ids: number[] = [];
  // Every other one takes the likeliest.
  const sampling = { temperature: n % 2 === 0 ? 0.9 : 0 };
  for await (const id of generator.generate(promptOf(length), count, sampling, new Random(5, 'text'), { adapter }))
    ids.push(id);
  return ids;
};

async function alone(model: Model, adapter?: string) {
  const generator = await Generator.open(device, model, initialWeights(model, 3), { choices });
  const texts: number[][] = [];
  for (const n of TEXTS.keys()) texts.push(await write(generator, n, adapter));
  await generator.close();
  return texts;
}

/** A place is taken by the next text once its own is written. */
async function together(model: Model, batch: number, options: GeneratorOptions = {}, adapter?: string) {
  device.allocator.restartPeak();
  const before = device.allocator.bytes;
  const generator = await BatchGenerator.open(device, model, initialWeights(model, 3), { choices, batch, ...options });
  const texts: number[][] = [];
  const rest = TEXTS.keys();
  const next = async () => {
    for (const n of rest) texts[n] = await write(generator, n, adapter);
  };
  await Promise.all(Array.from({ length: batch }, next));
  const peak = device.allocator.peak - before;
  await generator.close();
  return { texts, peak };
}

test.each([
  ['gpt2', GPT2, 'none'],
  ['gpt2 with an adapter', GPT2, 'other'],
  ['a decoder with windows', WINDOWS, undefined],
] as const)('%s: each text is that of its prompt alone', async (_, model, adapter) => {
  const wanted = await alone(model, adapter);
  expect((await together(model, 3, {}, adapter)).texts).toEqual(wanted);
  if (adapter === undefined) expect((await together(model, 5)).texts).toEqual(wanted);
});

test('within the smallest budget, caches of every text below the GPU, the same; what is used is what was counted', async () => {
  const generation = traceGeneration(WINDOWS, CAPACITY, undefined, 3);
  const gpu = smallestBudget(generationWorkload(WINDOWS, generation), limitsOf(device));
  const wanted = await alone(WINDOWS);
  const memory = { gpu, host: 32 * 1024, disk: { ...memoryDisk(), limit: 2 ** 24 } };
  const { texts, peak } = await together(WINDOWS, 3, { memory });
  expect(texts).toEqual(wanted);
  expect(peak).toBeLessThanOrEqual(gpu);
  const kept = smallestBudget(generationWorkload(WINDOWS, generation, 'keep'), limitsOf(device));
  const caches = generation.caches.reduce((sum, { keys, values }) => sum + 4 * (keys.size + values.size), 0);
  expect(gpu).toBeLessThan(kept - 0.5 * caches);
});

test('one more than the batch, and another adapter at once, are refused; a text that is left makes room', async () => {
  const generator = await BatchGenerator.open(device, GPT2, initialWeights(GPT2, 3), { choices, batch: 2 });
  const begin = (adapter?: string) =>
    generator.generate(promptOf(3), 5, { temperature: 0 }, new Random(1, 'text'), { adapter });
  const first = begin();
  await first.next();
  await expect(begin('other').next()).rejects.toThrow('texts of a batch have one adapter');
  const second = begin();
  // It waits for the first to go on, or to end.
  const waiting = second.next();
  await expect(begin().next()).rejects.toThrow('2 texts are being written, which is the batch');
  await first.return(undefined);
  expect((await waiting).done).toBe(false);
  await second.return(undefined);
  await expect(BatchGenerator.open(device, GPT2, initialWeights(GPT2, 3), { choices, batch: 0 })).rejects.toThrow(
    'a batch of 0 texts',
  );
  await generator.close();
});

/** Texts at once on a device that is lost at the n-th call of a kind behind the opening: how each ends, and one begun later. */
async function lostAt(batch: number, lost: Call, n: number) {
  const fragile = await fragileDevice(device);
  const generator =
    batch > 1
      ? await BatchGenerator.open(fragile.device, GPT2, initialWeights(GPT2, 3), { choices, batch })
      : await Generator.open(fragile.device, GPT2, initialWeights(GPT2, 3), { choices });
  let calls = 0;
  fragile.before = (call) => {
    if (call === lost && calls++ === n) fragile.lose();
  };
  const messages: string[] = [];
  for (const begun of [Array.from({ length: batch }, (_, i) => i), [0]]) {
    const ends = await Promise.allSettled(begun.map((i) => write(generator, i)));
    for (const end of ends) {
      expect(end, `${lost} ${n}`).toMatchObject({ status: 'rejected', reason: expect.any(HoldfastError) });
      if (end.status === 'rejected') messages.push(messageOf(end.reason));
    }
  }
  await generator.close();
  expect([fragile.losses, fragile.device.allocator.bytes]).toEqual([1, 0]);
  return messages;
}

test.each([
  ['submit', 0],
  ['submit', 4],
  ['writeBuffer', 5],
  ['mapAsync', 0],
  ['mapAsync', 2],
] as const)(
  'a device lost at %s %d ends each text, and those begun later, with the error of a text by itself',
  async (call, n) => {
    const [message = '', ...others] = await lostAt(1, call, n);
    expect(message).toMatch(/the GPU device was lost/);
    expect([...others, ...(await lostAt(3, call, n))]).toEqual(Array.from({ length: 5 }, () => message));
  },
);

test('a text that waits for one which was left ends with the generator', async () => {
  const generator = await BatchGenerator.open(device, GPT2, initialWeights(GPT2, 3), { choices, batch: 2 });
  const [one, left] = ['one', 'left'].map((name) =>
    generator.generate(promptOf(4), 9, { temperature: 0 }, new Random(5, name)),
  );
  await Promise.all([one?.next(), left?.next()]);
  const waiting = one?.next().catch((error: unknown) => error);
  await generator.close();
  expect(messageOf(await waiting)).toMatch(/was closed; make another$/);
});
