// GGUF files as models to start from: of every family, in every type, what was written is what is read, to the bit; runs,
// texts and tokens are those of the folder that the file was made of; and what is not read is refused by name, in one line.

import { describe, expect, test } from 'vitest';
import { loadCheckpoint, loadWeights } from '../../../src/formats/checkpoint.ts';
import { parseConfig } from '../../../src/formats/config.ts';
import { exportGGUF } from '../../../src/formats/gguf/export.ts';
import type { AnyConfig } from '../../../src/formats/gguf/families/index.ts';
import { TENSOR_TYPE_NAMES, type TensorType } from '../../../src/formats/gguf/tensor-types.ts';
import { makeModel } from '../../../src/nn/index.ts';
import { collect, type Values } from '../../../src/values/tensor-source.ts';
import { chooseVariants } from '../../choose-variants.ts';
import { inProcess, done as succeed } from '../../cli/in-process.ts';
import { EVERY_CASE } from '../../host.ts';
import { MemoryFiles } from '../../memory-files.ts';
import { modelOf, randomValues } from './models.ts';

chooseVariants(15);

const SIZES = {
  ...{ vocab_size: 40, max_position_embeddings: 64, hidden_size: 32, intermediate_size: 64, num_hidden_layers: 2 },
  ...{ num_attention_heads: 4, num_key_value_heads: 2, head_dim: 16 },
};

const CONFIGS = {
  gpt2: { model_type: 'gpt2', vocab_size: 40, n_positions: 7, n_embd: 32, n_layer: 2, n_head: 2, n_inner: 64 },
  'gpt2, untied': { model_type: 'gpt2', vocab_size: 40, n_embd: 32, n_layer: 1, n_head: 2, tie_word_embeddings: false },
  llama: { model_type: 'llama', ...SIZES, rms_norm_eps: 1e-5, rope_theta: 12345 },
  'llama, rotations scaled': { model_type: 'llama', ...SIZES, rope_scaling: { rope_type: 'linear', factor: 2.5 } },
  'llama 3.2': {
    ...{ model_type: 'llama', ...SIZES, rope_theta: 500000, tie_word_embeddings: true },
    rope_scaling: {
      ...{ rope_type: 'llama3', factor: 32, low_freq_factor: 1, high_freq_factor: 4 },
      original_max_position_embeddings: 8192,
    },
  },
  'llama 3, of few positions': {
    ...{ model_type: 'llama', ...SIZES },
    rope_scaling: {
      ...{ rope_type: 'llama3', factor: 8, low_freq_factor: 1, high_freq_factor: 4 },
      original_max_position_embeddings: 32,
    },
  },
  qwen2: { model_type: 'qwen2', ...SIZES, head_dim: 8, tie_word_embeddings: true },
  qwen3: { model_type: 'qwen3', ...SIZES },
  gemma3: {
    ...{ model_type: 'gemma3_text', ...SIZES, query_pre_attn_scalar: 16, final_logit_softcapping: 2.5 },
    ...{ sliding_window: 3, sliding_window_pattern: 2, rope_local_base_freq: 10 },
  },
} as const;

const bits = (values: Float32Array | undefined) =>
  values && [...new Uint32Array(values.buffer, values.byteOffset, values.length)];

async function made(name: keyof typeof CONFIGS, type: TensorType) {
  const config = parseConfig(CONFIGS[name], 'test');
  const shapes = new Map(makeModel(config).parameters.map(({ name, shape }) => [name, shape]));
  const values = randomValues(shapes);
  const files = new MemoryFiles();
  await exportGGUF(files, 'm.gguf', modelOf(config as AnyConfig, values, shapes), { type, modelfile: false });
  return { config, shapes, values, files };
}

/** Gains that are stored with 1 added are rounded on the way. */
function expectValues(found: Values, wanted: Values) {
  expect([...found.keys()].toSorted()).toEqual([...wanted.keys()].toSorted());
  for (const [name, values] of wanted) expect(bits(found.get(name)), name).toEqual(bits(values));
}

describe.each(Object.keys(CONFIGS) as (keyof typeof CONFIGS)[])('%s', (name) => {
  test('in F32 has its configuration and its values', async () => {
    const { config, shapes, values, files } = await made(name, 'F32');
    const found = await loadWeights(files, 'm.gguf');
    expect(found.config).toEqual(config);
    expect(new Map(found.shapes)).toEqual(shapes);
    const wanted = new Map(
      [...values].map(([name, data]) => {
        const isGain = config.model_type === 'gemma3_text' && name.endsWith('norm.weight');
        return [name, isGain ? data.map((gain) => Math.fround(gain + 1) - 1) : data];
      }),
    );
    expectValues(await collect(found.weights), wanted);
  });

  test.each(TENSOR_TYPE_NAMES.filter((type) => EVERY_CASE || type !== 'BF16'))(
    'in %s is written again as the same file, from what is stored and from its values',
    async (type) => {
      const { files } = await made(name, type);
      const { config, weights, shapes } = await loadWeights(files, 'm.gguf');
      const model = modelOf(config as AnyConfig, await collect(weights), shapes);
      await exportGGUF(files, 'again.gguf', { ...model, name: 'm' }, { type, modelfile: false });
      const [first, again] = [await files.read('m.gguf'), await files.read('again.gguf')];
      // The order of tensors is that of reading, and gains are rounded once more.
      const found = await loadWeights(files, 'again.gguf');
      expect(again.length).toBe(first.length);
      expectValues(await collect(found.weights), await collect(weights));
      for (const tensor of weights.names) {
        const packed = weights.packed?.(tensor);
        if (!packed) continue;
        const [stored, other] = [packed, found.weights.packed?.(tensor)];
        expect(stored.element).toBe(type.toLowerCase());
        const bytes = async (pieces: AsyncIterable<Uint8Array> | undefined) => {
          const all: number[] = [];
          for await (const piece of pieces ?? []) all.push(...piece);
          return all;
        };
        expect(await bytes(stored.read())).toEqual(await bytes(other?.read()));
      }
    },
  );
});

const files = new MemoryFiles({ 'text.txt': 'Hold fast, and then hold on; 12 345 times. '.repeat(100) });
const done = (...args: string[]) => succeed(files, args);
const prompt = ['--prompt', 'hold', '--tokens', '12', '--temperature', '1'];

test('a run’s model as a file writes, is evaluated and tuned as the folder is', async () => {
  await done('tokenizer', 'train', '--data', 'text.txt', '--vocab-size', '300', '--out', 'bpe');
  const shape = ['--layers', '1', '--width', '32', '--heads', '2', '--kv-heads', '1', '--context', '12'];
  const short = ['--batch', '2', '--steps', '2', '--eval-windows', '1', '--sample-tokens', '0', '--warmup', '0'];
  await done(
    'train',
    '--model',
    'llama',
    ...shape,
    ...short,
    '--data',
    'text.txt',
    '--tokenizer',
    'bpe',
    '--out',
    'run',
  );
  await done('export', 'run', '--gguf', 'F32', '--out', 'run.gguf');
  expect(await done('generate', 'run.gguf', ...prompt)).toBe(await done('generate', 'run', ...prompt));
  const evaluated = async (model: string) =>
    JSON.parse(await done('eval', model, '--data', 'text.txt', '--json')) as { loss: number };
  expect((await evaluated('run.gguf')).loss).toBe((await evaluated('run')).loss);
  const tuned = async (model: string) => {
    const out = `${model}-tuned`;
    await done('finetune', model, '--data', 'text.txt', '--lora-rank', '2', ...short, '--out', out);
    return [...(await collect((await loadCheckpoint(files, out)).weights))].map(([name, data]) => [name, bits(data)]);
  };
  expect(await tuned('run.gguf')).toEqual(await tuned('run'));
  expect(await done('generate', 'run.gguf-tuned', ...prompt)).toBe(await done('generate', 'run-tuned', ...prompt));
});

const HEADER = new TextEncoder().encode('GGUF');
const number = (value: number, bytes: number) => {
  const made = new Uint8Array(bytes);
  new DataView(made.buffer).setUint32(0, value, true);
  return made;
};

/** The file with a tensor of another type: its number stands behind the name, the dimensions and their sizes. */
function retyped(bytes: Uint8Array<ArrayBuffer>, tensor: string, id: number): Uint8Array<ArrayBuffer> {
  const name = new TextEncoder().encode(tensor);
  const at = bytes.findIndex((_, i) => name.every((letter, j) => bytes[i + j] === letter)) + name.length;
  const made = bytes.slice();
  made.set(number(id, 4), at + 4 + 8 * (bytes[at] ?? 0));
  return made;
}

describe('what is not read', async () => {
  const { files: own } = await made('llama', 'F32');
  const good = await own.read('m.gguf');
  const refusal = async (bytes: Uint8Array) => {
    const { status, said } = await inProcess(new MemoryFiles({ 'bad.gguf': bytes }), ['generate', 'bad.gguf']);
    expect(said).toMatch(/^holdfast: bad\.gguf: [^\n]+\n$/);
    expect(status).toBe(2);
    return said;
  };

  test.each([
    [10, 'blk.0.attn_q.weight is Q2_K; F32, F16, BF16, Q8_0, Q4_0, Q5_0, Q4_K, Q5_K, Q6_K are read'],
    [12, 'blk.0.attn_q.weight has rows of 32, no whole blocks of Q4_K'],
    [99, 'blk.0.attn_q.weight is type 99; F32'],
  ])('tensors of type %i', async (id, message) => {
    expect(await refusal(retyped(good, 'blk.0.attn_q.weight', id))).toContain(message);
  });

  test.each<[string, Uint8Array, string]>([
    ['another file', new TextEncoder().encode('PK, or anything else'), 'is no GGUF file'],
    ['no file', new Uint8Array(), 'is no GGUF file'],
    ['another version', Uint8Array.of(...HEADER, ...number(4, 4), ...number(0, 16)), 'of version 4; 2 and 3 are read'],
    ['the other byte order', Uint8Array.of(...HEADER, 0, 0, 0, 3, ...number(0, 16)), 'of version 50331648'],
    ['a file cut short', good.subarray(0, good.length - 40), 'lies at bytes'],
    ['a header cut short', good.subarray(0, 200), 'ends within its header'],
    [
      'a list that has no end',
      Uint8Array.of(...HEADER, ...number(3, 4), ...number(1, 8), ...number(2 ** 31, 8)),
      'claims',
    ],
    ['nothing in it', Uint8Array.of(...HEADER, ...number(3, 4), ...number(0, 16)), 'general.architecture is missing'],
  ])('%s', async (_, bytes, message) => {
    expect(await refusal(bytes)).toContain(message);
  });
});

test('a folder that keeps a GGUF file is its model, unless there is one beside it', async () => {
  const { config, values, files } = await made('qwen2', 'F32');
  await files.writeAtomic('kept/model.gguf', await files.read('m.gguf'));
  const found = await loadWeights(files, 'kept');
  expect(found.config).toEqual(config);
  expectValues(await collect(found.weights), values);
  await files.writeAtomic('kept/config.json', '{}');
  await expect(loadWeights(files, 'kept')).rejects.toThrow('kept/config.json: model_type is missing');
});
