// Model data in pieces: initial weights are the same whatever the pieces, and what goes to the device comes back.

import { describe, expect, test } from 'vitest';
import { smallestBudget } from '../../src/engine/compile/least.ts';
import { limitsOf } from '../../src/engine/run/arrangement.ts';
import { parseConfig } from '../../src/formats/config.ts';
import { makeModel } from '../../src/nn/index.ts';
import { initialWeights } from '../../src/nn/initialise.ts';
import { withLora } from '../../src/nn/lora.ts';
import { traceStep } from '../../src/train/step/step-programs.ts';
import { Trainer } from '../../src/train/step/trainer.ts';
import { trainingWorkload } from '../../src/train/step/training-workload.ts';
import { Random } from '../../src/util/random.ts';
import { collect, sourceOf } from '../../src/values/tensor-source.ts';
import { chooseVariants } from '../choose-variants.ts';
import { testDevice } from '../harness.ts';

chooseVariants(12);

const config = { model_type: 'gpt2', vocab_size: 23, n_positions: 7, n_embd: 6, n_layer: 2, n_head: 3 };
const model = makeModel(parseConfig(config, 'test'));
const adapted = withLora(model, { rank: 2 });

describe('initial weights', () => {
  test('are drawn from a stream for each parameter, or constant', async () => {
    const weights = await collect(initialWeights(adapted, 5));
    expect([...weights.keys()]).toEqual(adapted.parameters.map(({ name }) => name));
    for (const { name, shape, initial } of adapted.parameters) {
      const random = new Random(5, `weights ${name}`);
      const value = () => {
        if ('constant' in initial) return initial.constant;
        return 'normal' in initial ? initial.normal * random.normal() : initial.uniform * (2 * random.uniform() - 1);
      };
      expect(weights.get(name), name).toEqual(Float32Array.from({ length: shape.reduce((a, b) => a * b, 1) }, value));
    }
  });

  test('are the same in pieces of any size, in any order, at every read', async () => {
    const whole = await collect(initialWeights(adapted, 5));
    for (const size of [1, 17, 138]) {
      const source = initialWeights(adapted, 5, size);
      const backwards = { ...source, names: source.names.toReversed() };
      expect(await collect(backwards)).toEqual(whole);
      expect(await collect(source)).toEqual(whole);
    }
  });

  test('are drawn into the memory of one piece', async () => {
    const memory = new Set<ArrayBuffer>();
    for await (const piece of initialWeights(adapted, 5, 10).read('wte.weight')) {
      memory.add(piece.buffer);
    }
    expect([...memory].map(({ byteLength }) => byteLength)).toEqual([40]);
  });
});

describe('in the tiers', () => {
  const schedule = { decay: 'constant', peak: 1e-3, min: 0, warmup: 0, steps: 10 } as const;

  // Without a budget all lies on the GPU; with the smallest one nearly nothing does.
  test.each([undefined, 'smallest'])(
    'what is written in pieces of any size is read back, budget %s',
    async (budget) => {
      const device = await testDevice();
      const workload = trainingWorkload(model, traceStep(model, 1, 7), 1);
      const memory = budget ? { memory: { gpu: smallestBudget(workload, limitsOf(device)) } } : {};
      const trainer = await Trainer.create(device, model, { batch: 1, seq: 7, schedule, ...memory });
      const weights = await collect(initialWeights(model, 5));
      const other = new Map([...weights].map(([name, values]) => [name, values.map((value, i) => value + i)]));
      await trainer.setWeights(sourceOf(weights, 17));
      await trainer.setValues('moment1', sourceOf(other, 5));
      expect(await collect(trainer.values('parameter'))).toEqual(weights);
      expect(await collect(trainer.values('moment1'))).toEqual(other);
      const zeros = new Map([...weights].map(([name, values]) => [name, new Float32Array(values.length)]));
      expect(await collect(trainer.values('moment2'))).toEqual(zeros);
      // Some of a chunk: the rest stays.
      const bias = new Map([['ln_f.bias', Float32Array.of(1, 2, 3, 4, 5, 6)]]);
      await trainer.setValues('parameter', sourceOf(bias));
      expect(await collect(trainer.values('parameter'))).toEqual(new Map([...weights, ...bias]));
      await trainer.destroy();
    },
  );
});
