// Caches of keys and values in tiers: the same text to the bit wherever they lie, within budgets that they alone would not fit
// into; what a budget counts is what is used; a text begun anew, or after the budget changed, is as it was; and what moves are
// new rows down and those before them up, to the byte.

import { afterAll, describe, expect, test } from 'vitest';
import { KernelChoices } from '../../src/engine/compile/choices.ts';
import { smallestBudget } from '../../src/engine/compile/least.ts';
import type { Pass } from '../../src/engine/compile/pass.ts';
import { fetchedBytes, offloadedBytes } from '../../src/engine/compile/pass-figures.ts';
import { limitsOf, type MemoryOptions } from '../../src/engine/run/arrangement.ts';
import { Session } from '../../src/engine/run/session.ts';
import { parseConfig } from '../../src/formats/config.ts';
import { openDevice } from '../../src/gpu/device.ts';
import { makeTokens } from '../../src/graph/operators/embedding.ts';
import { touchedBy } from '../../src/graph/program.ts';
import { makeModel } from '../../src/nn/index.ts';
import { initialWeights } from '../../src/nn/initialise.ts';
import { withLora } from '../../src/nn/lora.ts';
import { generationWorkload, passNameOf, traceGeneration } from '../../src/train/inference/generation-workload.ts';
import { Generator } from '../../src/train/inference/generator.ts';
import { Random } from '../../src/util/random.ts';
import { chooseVariants } from '../choose-variants.ts';
import { ADAPTER, EVERY_CASE, testHost } from '../host.ts';
import { memoryDisk } from './runs.ts';

chooseVariants(11);
const device = await openDevice(testHost, { adapter: ADAPTER });
const limits = limitsOf(device);
afterAll(() => device.close());

const CAPACITY = 77;
const sizes = { vocab_size: 31, max_position_embeddings: CAPACITY, hidden_size: 24, num_hidden_layers: 5 };
const MODELS = {
  llama: makeModel(
    parseConfig(
      {
        ...{ model_type: 'llama', ...sizes, intermediate_size: 20, tie_word_embeddings: true },
        ...{ num_attention_heads: 4, num_key_value_heads: 4, head_dim: 12 },
      },
      'test',
    ),
  ),
  'gpt2 with an adapter': withLora(
    makeModel(
      parseConfig(
        { model_type: 'gpt2', vocab_size: 31, n_positions: CAPACITY, n_embd: 24, n_layer: 3, n_head: 2 },
        'test',
      ),
    ),
    { rank: 2 },
  ),
};

describe.each(Object.entries(MODELS).slice(0, EVERY_CASE ? 2 : 1))('%s', (_, model) => {
  const generation = traceGeneration(model, CAPACITY);
  const caches = generation.caches.reduce((sum, { keys, values }) => sum + 4 * (keys.size + values.size), 0);
  const smallest = smallestBudget(generationWorkload(model, generation), limits);
  const asBefore = smallestBudget(generationWorkload(model, generation, 'keep'), limits);

  /** Past the end of the context, where it begins again from the half of it. */
  async function written(memory?: MemoryOptions) {
    device.allocator.restartPeak();
    const before = device.allocator.bytes;
    const generator = await Generator.open(device, model, initialWeights(model, 3), memory ? { memory } : {});
    const prompt = Int32Array.from({ length: 19 }, (_, i) => (7 * i) % 31);
    const tokens: number[] = [];
    for await (const id of generator.generate(prompt, 66, { temperature: 0.9 }, new Random(5, 'text'))) tokens.push(id);
    const logits = [...(await generator.next(prompt)), ...(await generator.next(Int32Array.of(9, 30)))];
    const peak = device.allocator.peak - before;
    await generator.close();
    return { tokens, logits, peak };
  }

  test('the smallest budget falls by what most of the caches take', () => {
    expect(asBefore).toBeGreaterThan(caches);
    // Those of one layer, on their way.
    expect(smallest).toBeLessThan(asBefore - 0.5 * caches);
  });

  test('no two programs share a place of what is up', () => {
    const { programs } = generationWorkload(model, generation, 'offload');
    const activations = programs.map(({ instructions }) => {
      const touched = instructions.flatMap(touchedBy).map(({ tensor }) => tensor);
      return [...new Set(touched.filter(({ role }) => role === 'activation'))];
    });
    expect(activations.length).toBeGreaterThan(1);
    expect(new Set(activations.flat()).size).toBe(activations.flat().length);
  });

  test('writes the same within every budget, counted', async () => {
    const { peak: most, ...wanted } = await written();
    const disk = { ...memoryDisk(), limit: 2 ** 24 };
    const budgets: MemoryOptions[] = [
      { gpu: smallest },
      { gpu: Math.round((smallest + asBefore) / 2) },
      ...(EVERY_CASE ? [{ gpu: asBefore }, { gpu: most, activations: 'offload' as const }] : []),
      { gpu: smallest, host: 48 * 1024, disk },
    ];
    for (const memory of budgets) {
      const { peak, ...found } = await written(memory);
      expect(found, JSON.stringify(memory)).toEqual(wanted);
      expect(peak, JSON.stringify(memory)).toBeLessThanOrEqual(memory.gpu as number);
    }
  });

  test('moves new rows down and those before them up, as the passes say, whatever was written before', async () => {
    const workload = generationWorkload(model, generation, 'offload');
    const disk = { ...memoryDisk(), limit: 2 ** 24 };
    const memory: MemoryOptions = { gpu: smallest, host: 48 * 1024, disk, activations: 'offload' };
    const session = await Session.open(device, workload, new KernelChoices(device), memory);
    await session.values.set('parameter', initialWeights(model, 3));
    const generator = new Generator(session, model, generation);
    const { passes } = session.fit;
    const adapter = generation.programs[0]?.adapter;
    const all = generation.caches.flatMap(({ keys, values }) => [keys, values]);
    const row = all.reduce((sum, { size }) => sum + (4 * size) / CAPACITY, 0);
    for (const length of [19, 70, 2]) {
      const before = session.report().link.activationBytes;
      const prompt = Int32Array.from({ length }, (_, i) => (5 * i + length) % 31);
      await generator.next(prompt);
      let predicted = 0;
      for (let position = 0; position < length; ) {
        const seq = length - position >= 16 ? 16 : 1;
        const pass = passes[passNameOf({ tokens: makeTokens(1, seq), adapter })] as Pass;
        expect(offloadedBytes(pass)).toBe(seq * row);
        expect(fetchedBytes(pass, position)).toBe(position * row);
        predicted += offloadedBytes(pass) + fetchedBytes(pass, position);
        position += seq;
      }
      expect(session.report().link.activationBytes - before, `${length} tokens`).toBe(predicted);
    }
    await session.close();
  });
});
