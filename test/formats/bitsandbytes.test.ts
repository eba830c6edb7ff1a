// Checkpoints as bitsandbytes publishes them, in NF4: made here by its layout with no code of the library's, of any indices
// and scales. Their values are its own, in float32; a run of low-rank updates on one has every bit of the run on the widened
// values; and what is damaged is one line.

import { describe, expect, test } from 'vitest';
import { loadCheckpoint, loadWeights } from '../../src/formats/checkpoint.ts';
import { parseConfig } from '../../src/formats/config.ts';
import { makeModel } from '../../src/nn/index.ts';
import { linearsOf } from '../../src/nn/lora.ts';
import { withModel } from '../../src/train/run/open-model.ts';
import { stateOf } from '../../src/train/run/saved-state.ts';
import { at } from '../../src/util/at.ts';
import { Random } from '../../src/util/random.ts';
import { collect } from '../../src/values/tensor-source.ts';
import { done, inProcess } from '../cli/in-process.ts';
import { EVERY_CASE } from '../host.ts';
import { MemoryFiles } from '../memory-files.ts';
import { floats, type Stored, shardedFolder } from './raw-tensors.ts';

const LEVELS = Float32Array.of(
  ...[-1, -0.6961928009986877, -0.5250730514526367, -0.39491748809814453, -0.28444138169288635],
  ...[-0.18477343022823334, -0.09105003625154495, 0, 0.07958029955625534, 0.16093020141124725],
  ...[0.24611230194568634, 0.33791524171829224, 0.44070982933044434, 0.5626170039176941, 0.7229568362236023, 1],
);
const CONFIG = {
  ...{ model_type: 'llama', vocab_size: 256, hidden_size: 64, intermediate_size: 96, num_hidden_layers: 1 },
  ...{ num_attention_heads: 2, max_position_embeddings: 16 },
};
const QUANTISED = {
  ...CONFIG,
  quantization_config: {
    ...{ quant_method: 'bitsandbytes', load_in_4bit: true, load_in_8bit: false, _load_in_4bit: true },
    ...{ bnb_4bit_quant_type: 'nf4', bnb_4bit_compute_dtype: 'bfloat16', bnb_4bit_quant_storage: 'uint8' },
    ...{ bnb_4bit_use_double_quant: true, llm_int8_threshold: 6, llm_int8_skip_modules: null },
  },
};

const raw = (dtype: string, shape: readonly number[], bytes: Uint8Array): Stored => ({ dtype, shape, bytes });
const f32 = (values: Float32Array) => floats([values.length], values);

/** A matrix's tensors, and its values. Every other block has no index of a level of size 1: nothing tells its scale but the file. */
function quantised(name: string, [rows = 1, columns = 1]: readonly number[], nested: boolean) {
  const random = new Random(name.length, name);
  const count = rows * columns;
  const blocks = count / 64;
  const indices = Array.from({ length: count }, (_, i) => 1 + random.below(Math.floor(i / 64) % 2 ? 15 : 14));
  const map = Float32Array.from({ length: 256 }, (_, i) => (i - 100) / 256);
  const nestedScales = Float32Array.from({ length: Math.ceil(blocks / 16) }, () => 0.01 + random.uniform() / 100);
  const codes = Uint8Array.from({ length: blocks }, () => 120 + random.below(136));
  const offset = 0.031;
  const scales = Float32Array.from(codes, (code, block) =>
    nested ? Math.fround(at(map, code) * at(nestedScales, Math.floor(block / 16))) + Math.fround(offset) : code / 4096,
  );
  const values = Float32Array.from(indices, (index, i) => at(LEVELS, index) * at(scales, Math.floor(i / 64)));
  const state = {
    ...{ quant_type: 'nf4', blocksize: 64, dtype: 'bfloat16', shape: [rows, columns] },
    ...(nested && { nested_blocksize: 16, nested_dtype: 'float32', nested_offset: offset }),
  };
  const pairs = Uint8Array.from({ length: count / 2 }, (_, i) => (at(indices, 2 * i) << 4) | at(indices, 2 * i + 1));
  const text = new TextEncoder().encode(JSON.stringify(state));
  const tensors: (readonly [string, Stored])[] = [
    [name, raw('U8', [count / 2, 1], pairs)],
    [`${name}.absmax`, nested ? raw('U8', [blocks], codes) : f32(scales)],
    [`${name}.quant_map`, f32(LEVELS)],
    ...(nested
      ? ([
          [`${name}.nested_absmax`, f32(nestedScales)],
          [`${name}.nested_quant_map`, f32(map)],
        ] as const)
      : []),
    [`${name}.quant_state.bitsandbytes__nf4`, raw('U8', [text.length], text)],
  ];
  return { tensors, values };
}

/** The files of a folder, quantised and widened. Companions lie in other shards than their matrices. */
function folders(nested: boolean, change: (tensors: Map<string, Stored>) => void = () => {}) {
  const model = makeModel(parseConfig(CONFIG, 'test'));
  const linears = new Set(linearsOf(model).map(({ weight }) => weight));
  const [tensors, wide] = [new Map<string, Stored>(), new Map<string, Stored>()];
  for (const { name, shape } of model.parameters) {
    if (linears.has(name)) {
      const made = quantised(name, shape, nested);
      for (const [each, tensor] of made.tensors) tensors.set(each, tensor);
      wide.set(name, floats(shape, made.values));
    } else {
      const random = new Random(7, name);
      const tensor = floats(
        shape,
        Float32Array.from({ length: shape.reduce((a, b) => a * b) }, () => random.normal() / 30),
      );
      tensors.set(name, tensor);
      wide.set(name, tensor);
    }
  }
  change(tensors);
  const shards: Record<string, Map<string, Stored>> = {
    'model-1.safetensors': new Map(),
    'model-2.safetensors': new Map(),
  };
  for (const [i, [name, tensor]] of [...tensors].entries())
    shards[`model-${1 + (i % 2)}.safetensors`]?.set(name, tensor);
  return new MemoryFiles({
    'nf4/config.json': JSON.stringify(QUANTISED),
    ...shardedFolder('nf4', shards),
    'wide/config.json': JSON.stringify(CONFIG),
    ...shardedFolder('wide', { 'model-1.safetensors': wide }),
    'text.txt': 'hold fast, and then hold on; '.repeat(100),
  });
}

const bits = (values: Float32Array | undefined) =>
  values && [...new Uint32Array(values.buffer, values.byteOffset, values.length)];

describe.each([
  ['scales in float32', false],
  ['scales in eight bits', true],
])('a model with %s', (_, nested) => {
  const files = folders(nested);

  test('has its values, and lies in memory as in its files', async () => {
    const [own, wide] = await Promise.all(['nf4', 'wide'].map(async (folder) => loadWeights(files, folder)));
    const [values, wanted] = [await collect(own!.weights), await collect(wide!.weights)];
    expect([...values.keys()].toSorted()).toEqual([...wanted.keys()].toSorted());
    for (const [name, data] of wanted) expect(bits(values.get(name)), name).toEqual(bits(data));
    await withModel(files, 'nf4', {}, async ({ model }) => {
      const linears = new Set(linearsOf(model).map(({ weight }) => weight));
      for (const { name, stored = 'f32' } of model.parameters) expect(stored).toBe(linears.has(name) ? 'nf4' : 'f32');
    });
  });

  test.runIf(EVERY_CASE || nested)('is tuned with every bit of the widened one', async () => {
    const tuned = async (folder: string) => {
      const flags = [
        '--batch',
        '2',
        '--steps',
        '3',
        '--lr',
        '0.02',
        '--warmup',
        '0',
        '--sample-tokens',
        '0',
        '--eval-windows',
        '1',
      ];
      const out = `${folder}-tuned`;
      await done(files, ['train', '--model', folder, '--data', 'text.txt', '--lora-rank', '3', ...flags, '--out', out]);
      const checkpoint = await loadCheckpoint(files, out);
      const { steps } = stateOf(checkpoint).history;
      const values = await collect(checkpoint.weights);
      return { steps: steps.map(({ loss, gradNorm }) => [loss, gradNorm]), values };
    };
    expect(await tuned('nf4')).toEqual(await tuned('wide'));
  });
});

type Change = (tensors: Map<string, Stored>) => void;

const NAME = 'model.layers.0.self_attn.q_proj.weight';
const STATE = `${NAME}.quant_state.bitsandbytes__nf4`;

const stateOfBytes = (change: Readonly<Record<string, unknown>>): Change => {
  return (tensors) => {
    const state: unknown = JSON.parse(new TextDecoder().decode(tensors.get(STATE)?.bytes));
    const text = new TextEncoder().encode(JSON.stringify({ ...(state as object), ...change }));
    tensors.set(STATE, raw('U8', [text.length], text));
  };
};

test.each<[string, Change, string]>([
  [
    'another type',
    (tensors) => renamed(tensors, STATE, STATE.replace('nf4', 'fp4')),
    'is in fp4 of bitsandbytes; nf4 is read',
  ],
  ['another block', stateOfBytes({ blocksize: 128 }), 'blocksize is 128; it must be 64'],
  ['another shape', stateOfBytes({ shape: [64, 128] }), 'is not the 4096 bytes of its shape, [64,128]'],
  ['half blocks', stateOfBytes({ shape: [3, 35] }), 'has 105 values; whole'],
  ['an endless shape', stateOfBytes({ shape: [2 ** 53, 64] }), 'shape'],
  ['no shape', stateOfBytes({ shape: undefined }), 'shape is missing'],
  ['a state that is no JSON', (tensors) => tensors.set(STATE, raw('U8', [2], Uint8Array.of(1, 2))), 'not JSON'],
  [
    'a long state',
    (tensors) => tensors.set(STATE, raw('U8', [20_000], new Uint8Array(20_000))),
    'a state of 20000 bytes',
  ],
  ['other levels', (tensors) => tensors.set(`${NAME}.quant_map`, f32(LEVELS.toReversed())), 'has other levels'],
  ['no scales', (tensors) => tensors.delete(`${NAME}.absmax`), 'has no absmax of 64 values'],
  [
    'fewer scales',
    (tensors) => tensors.set(`${NAME}.absmax`, raw('U8', [63], new Uint8Array(63))),
    'has no absmax of 64',
  ],
  [
    'no nested scales',
    (tensors) => tensors.delete(`${NAME}.nested_absmax`),
    'has no nested_quant_map and nested_absmax',
  ],
])('%s is refused in one line', async (_, change, message) => {
  const { status, said } = await inProcess(folders(true, change), ['generate', 'nf4']);
  expect(said).toContain(message);
  expect(said).toMatch(/^holdfast: [^\n]+\n$/);
  expect(status).toBe(2);
});

function renamed(tensors: Map<string, Stored>, from: string, to: string) {
  const tensor = tensors.get(from);
  tensors.delete(from);
  if (tensor) tensors.set(to, tensor);
}
