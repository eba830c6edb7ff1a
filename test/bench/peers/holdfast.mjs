// Holdfast, as its users get it: from dist/, with kernel choices measured anew in every process.

import { headlessHost } from '../../../dist/headless.js';
import { makeModel, openDevice, parseConfig, sourceOf, Trainer } from '../../../dist/index.js';
import { ADAM, firstWeights, LAYERNORM_EPSILON, report, SHAPE } from './task.mjs';

const [adapter, seconds] = process.argv.slice(2);
const { layers, width, heads, vocabulary, batch, seq } = SHAPE;
const config = {
  model_type: 'gpt2',
  n_layer: layers,
  n_embd: width,
  n_head: heads,
  vocab_size: vocabulary,
  n_positions: seq,
  layer_norm_epsilon: LAYERNORM_EPSILON,
};
const { learningRate: peak, ...adam } = ADAM;

await report(Number(seconds), async () => {
  const device = await openDevice(headlessHost(), { adapter });
  const trainer = await Trainer.create(device, makeModel(parseConfig(config, 'peers')), {
    batch,
    seq,
    schedule: { decay: 'constant', peak, min: peak, warmup: 0, steps: 1 },
    optimizer: { ...adam, weightDecay: 0, clip: 0 },
  });
  const weights = new Map(Object.entries(firstWeights()).map(([name, { values }]) => [name, values]));
  await trainer.setWeights(sourceOf(weights));
  const step = async (ids, targets) => (await trainer.start([{ ids, targets, batch, seq }])).loss;
  return { adapter: device.adapter.name, step };
});
