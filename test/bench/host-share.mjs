// What the host's share of a training step takes: encoding, binding, submitting and reading results, in processor time a dispatch, on
// Dawn's null backend, which validates as others do and computes nothing. Everything stays on its GPU: it would copy what moves in
// the process's memory. What a driver takes to write its commands is not in it. By hand; it takes half a minute.
//
//   npm run bench:host -- [--rounds 5] [--steps 200] [--json]

import process from 'node:process';
import { parseArgs } from 'node:util';
import * as dawn from 'webgpu';
import { headlessHost } from '../../dist/headless.js';
import { initialWeights, makeModel, openDevice, parseConfig, RandomWindows, Trainer } from '../../dist/index.js';

const { values: options } = parseArgs({
  options: {
    rounds: { type: 'string', default: '5' },
    steps: { type: 'string', default: '200' },
    json: { type: 'boolean', default: false },
  },
});
const [rounds, steps] = [Number(options.rounds), Number(options.steps)];
/** As many blocks as the models of this size have, narrow: the null backend's buffers end at 256 MiB. */
const CONFIGS = {
  'GPT-2': { model_type: 'gpt2', vocab_size: 8192, n_positions: 64, n_embd: 256, n_layer: 12, n_head: 4 },
  Llama: {
    ...{ model_type: 'llama', vocab_size: 8192, hidden_size: 256, intermediate_size: 688, num_hidden_layers: 12 },
    ...{ num_attention_heads: 4, num_key_value_heads: 4, max_position_embeddings: 64, tie_word_embeddings: true },
  },
};
const [BATCH, SEQ] = [2, 64];

/** An instance lives as long as the process. */
const gpu = dawn.create(['backend=null', 'enable-dawn-features=allow_unsafe_apis']);
const source = { name: 'the null backend', embedded: false, open: async () => gpu };
const device = await openDevice({ ...headlessHost(), gpuSources: async () => [source] });
try {
  const found = new Map(Object.keys(CONFIGS).map((name) => [name, []]));
  for (let round = 0; round < rounds; round++)
    for (const [name, config] of Object.entries(CONFIGS)) found.get(name).push(await timed(config));
  const results = [...found].map(([name, all]) => ({
    name,
    dispatches: all[0].dispatches,
    microseconds: median(all.map(({ microseconds }) => microseconds)),
    range: [Math.min, Math.max].map((most) => most(...all.map(({ microseconds }) => microseconds))),
  }));
  if (options.json) console.log(JSON.stringify(results));
  else {
    console.log(`${process.version}, ${device.adapter.name}; medians of ${rounds} rounds of ${steps} steps (range)`);
    for (const { name, dispatches, microseconds, range } of results) {
      const [least, most] = range.map((one) => one.toFixed(1));
      const times = `${microseconds.toFixed(1)} µs a dispatch (${least} - ${most})`;
      console.log(`${name.padEnd(6)} ${dispatches} dispatches a step, ${times}`);
    }
  }
} finally {
  device.close();
}
// The instance would keep the process.
process.exit(0);

/** Processor time of all threads: what other processes take is not in it. */
async function timed(config) {
  const model = makeModel(parseConfig(config, 'bench'));
  const schedule = { decay: 'constant', peak: 1e-3, min: 1e-3, warmup: 0, steps: 1e6 };
  const trainer = await Trainer.create(device, model, { batch: BATCH, seq: SEQ, schedule });
  try {
    await trainer.setWeights(initialWeights(model, 1));
    const tokens = Int32Array.from({ length: 4096 }, (_, i) => (i * 31) % 8192);
    const batches = new RandomWindows(tokens, BATCH, SEQ, 1);
    const train = async (count) => {
      for (let i = 0; i < count; i++) await trainer.start([batches.next()]);
    };
    await train(Math.ceil(steps / 4));
    const before = process.cpuUsage();
    await train(steps);
    const { user, system } = process.cpuUsage(before);
    const dispatches = trainer.session.fit.passes.step.operations.length;
    return { dispatches, microseconds: (user + system) / steps / dispatches };
  } finally {
    await trainer.destroy();
  }
}

function median(values) {
  const sorted = values.toSorted((a, b) => a - b);
  return (sorted[(sorted.length - 1) >> 1] + sorted[sorted.length >> 1]) / 2;
}
