// Layers that ranks share of a frozen model in blocks, with low-rank updates and dropout: each rank has whole blocks, as they are
// stored; steps agree with those of ranks that each have all layers, and have the same bits whatever is sharded, within any budget.

import fc from 'fast-check';
import { beforeAll, describe, expect, it } from 'vitest';
import { smallestBudget } from '../../src/engine/compile/least.ts';
import type { ZeroStage } from '../../src/engine/ranks/sharding.ts';
import { limitsOf, type MemoryOptions } from '../../src/engine/run/arrangement.ts';
import { parseConfig } from '../../src/formats/config.ts';
import type { Device } from '../../src/gpu/device.ts';
import { makeModel } from '../../src/nn/index.ts';
import { initialWeights } from '../../src/nn/initialise.ts';
import { withLora } from '../../src/nn/lora.ts';
import { type Model, type Parameter, withStored } from '../../src/nn/model.ts';
import { partsOf, splitModel } from '../../src/nn/tensor-parallel.ts';
import { baseStorage, roundedWeights } from '../../src/train/run/base-dtype.ts';
import { traceStep } from '../../src/train/step/step-programs.ts';
import { trainingWorkload } from '../../src/train/step/training-workload.ts';
import { at } from '../../src/util/at.ts';
import { assert } from '../../src/util/errors.ts';
import { STORED_BLOCKS } from '../../src/values/stored-elements.ts';
import { collect, sourceOf, widenedParts } from '../../src/values/tensor-source.ts';
import { testDevice } from '../harness.ts';
import { EVERY_CASE, THOROUGH } from '../host.ts';
import { memoryDisk } from '../model/runs.ts';
import { caseOf, trainOnRanks } from './reference-runs.ts';

it('has every block of a stored tensor on one rank, in words that can be read where they lie', async () => {
  const cases = fc.record({
    element: fc.constantFrom('q8_0', 'q4_0', 'nf4'),
    ranks: fc.integer({ min: 1, max: 3 }),
    each: fc.array(fc.integer({ min: 1, max: 3 }), { minLength: 1, maxLength: 2 }),
    other: fc.integer({ min: 1, max: 3 }),
    axis: fc.constantFrom(0, 1),
    pieceBlocks: fc.integer({ min: 1, max: 5 }),
  });
  await fc.assert(
    fc.asyncProperty(cases, async ({ element, ranks, each, other, axis, pieceBlocks }) => {
      const { elements } = STORED_BLOCKS[element];
      const sections = each.map((blocks) => blocks * ranks * (axis === 1 ? elements : 1));
      const length = sections.reduce((a, b) => a + b, 0);
      const shape = axis === 0 ? [length, other * elements] : [other, length];
      const size = shape.reduce((a, b) => a * b, 1);
      const values = Float32Array.from({ length: size }, (_, i) => ((i * 7919) % 1009) - 500);
      const floats = sourceOf(new Map([['w', values]]), pieceBlocks * elements);
      const whole = roundedWeights(floats, () => element, 'drawn');
      for (let rank = 0; rank < ranks; rank++) {
        const parameter: Parameter = {
          ...{ name: 'w', initial: { constant: 0 }, trainable: false, stored: element },
          shape: shape.map((size, i) => (i === axis ? size / ranks : size)),
          split: { by: 'rows', ranks, rank, axis, sections },
        };
        const source = partsOf({ parameters: [parameter] }, whole);
        const packed = source.packed?.('w');
        assert(packed?.element === element, 'it is stored as the whole');
        const found: number[] = [];
        for await (const piece of packed.read()) {
          expect([piece.byteOffset % 4, piece.length % STORED_BLOCKS[element].bytes]).toEqual([0, 0]);
          for (const part of widenedParts(element, piece)) found.push(...part);
        }
        expect(found).toEqual([...((await collect(source)).get('w') ?? [])]);
        expect(found).toHaveLength(size / ranks);
      }
    }),
    { seed: 5, numRuns: EVERY_CASE ? 200 : 40 },
  );
});

/** Blocks lie along the inputs in one, along the outputs in the other; halves of either are whole blocks. */
const CONFIGS = {
  gpt2: { model_type: 'gpt2', n_layer: 1, n_embd: 128, n_head: 2, n_positions: 64, vocab_size: 120 },
  llama: {
    ...{ model_type: 'llama', hidden_size: 128, intermediate_size: 256, num_hidden_layers: 1, vocab_size: 120 },
    ...{ num_attention_heads: 2, num_key_value_heads: 2, max_position_embeddings: 64 },
  },
};
type Storing = 'q8_0' | 'q4_0' | 'nf4';

function adapted(config: object, storing: Storing): Model {
  const base = makeModel(parseConfig(config, 'base'));
  const lora = withLora(base, { rank: 2, alpha: 4, dropout: 0.2 });
  const storage = baseStorage(lora, new Map(base.parameters.map(({ name }) => [name, 'bf16' as const])), storing);
  return withStored(lora, (name) => (name.includes('lora_') ? 'f32' : storage(name)));
}

const CASES: readonly [keyof typeof CONFIGS, Storing][] = [
  ['gpt2', 'q8_0'],
  ['llama', 'nf4'],
  ['llama', 'q8_0'],
  ['gpt2', 'nf4'],
  ['llama', 'q4_0'],
];

describe.runIf(THOROUGH)('training', () => {
  let device: Device;
  beforeAll(async () => {
    device = await testDevice();
  });

  it.each(EVERY_CASE ? CASES : CASES.slice(0, 1))('agrees on ranks that share %s in %s', async (family, storing) => {
    const model = adapted(CONFIGS[family], storing);
    const stored = new Map(model.parameters.map(({ name, stored: how = 'f32' }) => [name, how]));
    const drawn = initialWeights(model, 3);
    const given = await collect(drawn);
    // Updates that are not 0, so that what is dropped shows from the first step on.
    for (const [name, values] of given) if (name.includes('lora_B')) values.fill(0.05);
    const rounded = roundedWeights(sourceOf(given), (name) => stored.get(name) ?? 'f32', 'drawn');
    const known = await caseOf('gpt2-accum4-ignore');
    const reference = { ...known, model, weights: await collect(rounded), gradients: new Map() };
    const { batch, seq, accumulate } = reference;
    const steps = 2;
    const { metrics: wanted } = await trainOnRanks(device, reference, 2, 0, { steps });
    const { choices, ...whole } = await trainOnRanks(device, reference, 4, 0, { steps, tensor: 2 });
    for (const { step, loss, gradNorm } of whole.metrics) {
      const { loss: alone, gradNorm: norm } = at(wanted, step);
      expect(Math.abs(loss / alone - 1), `loss of step ${step}`).toBeLessThan(ROUNDING);
      // Of a gradient that is all rounding AdamW makes a step as large as any: later norms differ by more.
      if (step === 0) expect(Math.abs(gradNorm / norm - 1), 'norm').toBeLessThan(ROUNDING);
    }
    const part = splitModel(model, { rank: 0, size: 2 });
    // Gathers follow what becomes of activations, which is to be alike.
    const activations = 'recompute' as const;
    const least = (rank: number, stage: ZeroStage) => {
      const options = { activations, accumulateOrder: 'batch', sharding: { rank, size: 2, stage } } as const;
      const workload = trainingWorkload(part, traceStep(part, batch, seq), accumulate / 2, undefined, options);
      return smallestBudget(workload, limitsOf(device), { recovery: 'checkpoint' });
    };
    for (const stage of EVERY_CASE ? ([0, 3] as const) : ([3] as const)) {
      const gpu = Math.max(least(0, stage), least(1, stage)) + 65_536;
      const memory = (): MemoryOptions => ({ gpu, activations, host: 600_000, disk: memoryDisk() });
      const { choices: _, ...within } = await trainOnRanks(device, reference, 4, stage, {
        ...{ steps, choices, tensor: 2, memory },
      });
      expect(within, `ZeRO ${stage}`).toEqual(whole);
    }
  });
});

/** Of sums of 256 terms and fewer, each rounded to 24 bits, one behind the other. */
const ROUNDING = 256 * 2 ** -24;
