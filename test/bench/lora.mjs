// What a step that trains a low-rank update takes of one that trains all, in processor time on a software adapter, beside the
// share of arithmetic that `plan` counts: a Llama of 6 blocks, width 256, on 2 x 64 bytes, or of the shape given. By hand; it takes
// five minutes.
//
//   npm run bench:lora -- [--pairs 5] [--steps 12] [--layers 6] [--width 256] [--batch 2] [--context 64] [--json]

import { execFileSync } from 'node:child_process';
import path from 'node:path';
import { parseArgs } from 'node:util';
import { headlessHost } from '../../dist/headless.js';
import {
  initialWeights,
  makeModel,
  openDevice,
  parseConfig,
  RandomWindows,
  Trainer,
  withLora,
} from '../../dist/index.js';

const { values: options } = parseArgs({
  options: {
    pairs: { type: 'string', default: '5' },
    steps: { type: 'string', default: '12' },
    layers: { type: 'string', default: '6' },
    width: { type: 'string', default: '256' },
    batch: { type: 'string', default: '2' },
    context: { type: 'string', default: '64' },
    json: { type: 'boolean', default: false },
  },
});
const numbers = ['pairs', 'steps', 'layers', 'width', 'batch', 'context'].map((name) => Number(options[name]));
const [pairs, steps, LAYERS, WIDTH, BATCH, SEQ] = numbers;
const RANK = 16;
/** As `plan` makes a Llama of this width. */
const CONFIG = {
  ...{ model_type: 'llama', vocab_size: 256, hidden_size: WIDTH, num_hidden_layers: LAYERS },
  ...{ intermediate_size: Math.ceil((8 * WIDTH) / 3 / 8) * 8, tie_word_embeddings: true },
  ...{ num_attention_heads: 8, num_key_value_heads: 8, max_position_embeddings: SEQ },
};
/** By what is named on the command line. */
const TARGETS = { 'all-linear': undefined, 'q_proj,v_proj': ['q_proj', 'v_proj'] };

const full = makeModel(parseConfig(CONFIG, 'bench'));
const device = await openDevice(headlessHost(), { adapter: 'software' });
const tokens = Int32Array.from({ length: 20_000 }, (_, i) => (i * i) % 251);
try {
  const results = [];
  for (const [name, targets] of Object.entries(TARGETS)) {
    const update = withLora(full, { rank: RANK, alpha: 2 * RANK, dropout: 0, ...(targets && { targets }) });
    const ratios = [];
    for (let pair = 0; pair < pairs; pair++) {
      const order = pair % 2 === 0 ? [full, update] : [update, full];
      const seconds = new Map();
      for (const model of order) seconds.set(model, await processorSeconds(model));
      ratios.push(seconds.get(update) / seconds.get(full));
    }
    results.push({ targets: name, measured: median(ratios), counted: counted(name), ratios });
  }
  if (options.json) console.log(JSON.stringify(results));
  else for (const result of results) console.log(line(result));
} finally {
  device.close();
}

/** Of steps behind the first two, which compile. */
async function processorSeconds(model) {
  const schedule = { decay: 'constant', peak: 1e-3, min: 1e-3, warmup: 0, steps: steps + 2 };
  const trainer = await Trainer.create(device, model, { batch: BATCH, seq: SEQ, schedule });
  await trainer.setWeights(initialWeights(model, 1));
  const batches = new RandomWindows(tokens, BATCH, SEQ, 1);
  for (let step = 0; step < 2; step++) await trainer.start([batches.next()]);
  await trainer.settle();
  const before = process.cpuUsage();
  for (let step = 0; step < steps; step++) await trainer.start([batches.next()]);
  await trainer.settle();
  const { user, system } = process.cpuUsage(before);
  await trainer.destroy();
  return (user + system) / 1e6;
}

/** By arithmetic, as `plan` counts it where nothing is made again. */
function counted(targets) {
  const cli = path.join(import.meta.dirname, '../../dist/holdfast.js');
  const size = ['--layers', `${LAYERS}`, '--width', `${WIDTH}`, '--heads', '8', '--vocab-size', '256'];
  const shape = ['--model', 'llama', ...size];
  const step = ['--context', `${SEQ}`, '--batch', `${BATCH}`, '--activations', 'keep', '--gpu-memory', '8GB'];
  const lora = ['--lora-rank', `${RANK}`, '--lora-targets', targets];
  const { flops } = JSON.parse(execFileSync(process.execPath, [cli, 'plan', ...shape, ...step, ...lora, '--json']));
  return flops.step / flops.fullStep;
}

function median(values) {
  return values.toSorted((a, b) => a - b)[values.length >> 1];
}

function line({ targets, measured, counted, ratios }) {
  const all = ratios.map((ratio) => ratio.toFixed(3)).join(', ');
  return `${targets.padEnd(14)} of a step that trains all: ${measured.toFixed(3)} of its processor time (${all}), ${counted.toFixed(3)} of its arithmetic`;
}
