// How long weights take from a checkpoint into the tiers below the GPU, beside reading the file alone: a model of SmolLM2-135M's
// shape in each element type, in the page cache and out of it. By hand; it takes a minute, and 0.6 GB of disk.
//
//   npm run bench:loading -- [--rounds 6] [--json]

import { execFileSync } from 'node:child_process';
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { readFile } from 'node:fs/promises';
import os from 'node:os';
import path from 'node:path';
import { performance } from 'node:perf_hooks';
import { parseArgs } from 'node:util';
import { headlessHost } from '../../dist/headless.js';
import { loadWeights, makeModel, openDevice, parameterCount, parseConfig, Trainer } from '../../dist/index.js';

const { values: options } = parseArgs({
  options: { rounds: { type: 'string', default: '6' }, json: { type: 'boolean', default: false } },
});
const rounds = Number(options.rounds);
const CONFIG = {
  ...{ model_type: 'llama', vocab_size: 49152, hidden_size: 576, intermediate_size: 1536, num_hidden_layers: 30 },
  ...{ num_attention_heads: 9, num_key_value_heads: 3, max_position_embeddings: 8192, tie_word_embeddings: true },
};
/** Bytes of an element, and one that is a small number in each type. */
const TYPES = { F32: [4, 0x3c], BF16: [2, 0x3c], F16: [2, 0x2c] };

const model = makeModel(parseConfig(CONFIG, 'bench'));
const folder = mkdtempSync(path.join(os.tmpdir(), 'holdfast-loading-'));
const host = headlessHost();
const device = await openDevice(host, { adapter: 'software' });
try {
  const results = [];
  for (const type of Object.keys(TYPES)) {
    results.push(await measure(type, writeModel(type)));
  }
  if (options.json) console.log(JSON.stringify(results));
  else for (const result of results) console.log(line(result));
} finally {
  device.close();
  rmSync(folder, { recursive: true, force: true });
}

/** A model's folder with weights of this type; the path of its file. */
function writeModel(type) {
  const [width, value] = TYPES[type];
  const header = {};
  let bytes = 0;
  for (const { name, shape } of model.parameters) {
    const size = shape.reduce((a, b) => a * b, width);
    header[name] = { dtype: type, shape, data_offsets: [bytes, bytes + size] };
    bytes += size;
  }
  const json = Buffer.from(JSON.stringify(header));
  const length = Buffer.alloc(8);
  length.writeBigUInt64LE(BigInt(json.length));
  writeFileSync(path.join(folder, 'config.json'), JSON.stringify(CONFIG));
  const file = path.join(folder, 'model.safetensors');
  writeFileSync(file, Buffer.concat([length, json, Buffer.alloc(bytes, value)]));
  return file;
}

/** Medians of milliseconds: reading the file into memory, and loading it. */
async function measure(type, file) {
  const budget = { gpu: 256e6, host: 4e9, recovery: 'checkpoint' };
  const schedule = { decay: 'constant', peak: 1e-4, min: 1e-4, warmup: 0, steps: 1 };
  const times = { cached: { read: [], load: [] }, evicted: { read: [], load: [] } };
  for (let round = 0; round < rounds; round++) {
    for (const [state, { read, load }] of Object.entries(times)) {
      const prepare = () => (state === 'cached' ? readFileSync(file) : evict(file));
      prepare();
      read.push(await timed(() => readFile(file)));
      // Memory as fresh for both: a trainer that has loaded once has its slots.
      const trainer = await Trainer.create(device, model, { batch: 1, seq: 8, schedule, memory: budget });
      prepare();
      load.push(await timed(async () => trainer.setWeights((await loadWeights(host.files, folder)).weights)));
      await trainer.destroy();
    }
  }
  const medians = Object.fromEntries(
    Object.entries(times).map(([state, { read, load }]) => [state, { read: median(read), load: median(load) }]),
  );
  return { type, parameters: parameterCount(model), ...medians };
}

/** Takes a file's pages out of the cache of the system (Linux). */
function evict(file) {
  execFileSync('dd', [`if=${file}`, 'iflag=nocache', 'count=0'], { stdio: 'ignore' });
}

async function timed(work) {
  const start = performance.now();
  await work();
  return performance.now() - start;
}

function median(values) {
  return values.toSorted((a, b) => a - b)[values.length >> 1];
}

function line({ type, cached, evicted }) {
  const share = ({ read, load }) =>
    `${read.toFixed(0)} of ${load.toFixed(0)} ms (${((100 * read) / load).toFixed(0)} %)`;
  return `${type.padEnd(5)} reading alone, of loading: in the cache ${share(cached)}, out of it ${share(evicted)}`;
}
