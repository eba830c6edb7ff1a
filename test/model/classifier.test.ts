// What a classifier makes of one example: the probabilities of the logits that its forward pass gives, within any budget.

import { expect, test } from 'vitest';
import { KernelChoices } from '../../src/engine/compile/choices.ts';
import { parseConfig } from '../../src/formats/config.ts';
import { makeModel } from '../../src/nn/index.ts';
import { initialWeights } from '../../src/nn/initialise.ts';
import { Classifier } from '../../src/train/inference/classifier.ts';
import { forwardActivations } from '../../src/train/step/inspect.ts';
import { collect, sourceOf } from '../../src/values/tensor-source.ts';
import { testDevice } from '../harness.ts';

test('the probabilities of the logits, within a budget to the same bit', async () => {
  const fields = {
    ...{ model_type: 'vit', image_size: 4, patch_size: 2, hidden_size: 32, intermediate_size: 64 },
    ...{ num_hidden_layers: 4, num_attention_heads: 2, num_labels: 3, initializer_range: 0.2 },
  };
  const model = makeModel(parseConfig(fields, 'the config'));
  const weights = await collect(initialWeights(model, 1));
  const pixels = Float32Array.from({ length: 3 * 4 * 4 }, (_, i) => Math.sin(i));
  const example = { pixels, batch: 1, seq: model.shape.context };
  const device = await testDevice();
  const made = new KernelChoices(device);
  const logits = (await forwardActivations(device, model, weights, example, made)).get('logits') ?? new Float32Array();
  const choices = made.record();
  const classifier = await Classifier.open(device, model, sourceOf(weights), { choices });
  const told = await classifier.tell(example);
  await classifier.close();
  expect(told.reduce((a, b) => a + b, 0)).toBeCloseTo(1, 12);
  for (const [i, p] of told.entries())
    expect(Math.log(p / (told[0] ?? 0))).toBeCloseTo((logits[i] ?? 0) - (logits[0] ?? 0), 9);
  const small = await Classifier.open(device, model, sourceOf(weights), { choices, memory: { gpu: 80_000 } });
  expect(await small.tell(example)).toEqual(told);
  await small.close();
});
