// Weights as Hugging Face's libraries have stored them: what models compute by themselves is left out, whatever its
// type; what says a thing twice is compared, or refused by both names.

import { describe, expect, test } from 'vitest';
import { checkWeights, loadAdapter, loadWeights } from '../../src/formats/checkpoint.ts';
import { type ModelConfig, parseConfig } from '../../src/formats/config.ts';
import { makeModel } from '../../src/nn/index.ts';
import { initialWeights } from '../../src/nn/initialise.ts';
import { collect } from '../../src/values/tensor-source.ts';
import { entry } from '../entry.ts';
import { MemoryFiles } from '../memory-files.ts';
import { fileOf, floats, type Stored } from './raw-tensors.ts';

const gpt2 = parseConfig({ model_type: 'gpt2', vocab_size: 5, n_positions: 3, n_embd: 4, n_layer: 2, n_head: 2 }, 'g');
const llama = parseConfig(
  {
    model_type: 'llama',
    vocab_size: 5,
    hidden_size: 4,
    intermediate_size: 6,
    num_hidden_layers: 2,
    num_attention_heads: 2,
    num_key_value_heads: 1,
    max_position_embeddings: 3,
    tie_word_embeddings: true,
  },
  'l',
);

const bert = parseConfig(
  {
    ...{ model_type: 'bert', vocab_size: 5, max_position_embeddings: 3, type_vocab_size: 2, hidden_size: 4 },
    ...{ intermediate_size: 6, num_hidden_layers: 2, num_attention_heads: 2 },
  },
  'b',
);

/** The weights of a model in a file with these tensors besides, and its own under `prefix`. */
async function load(config: ModelConfig, more: Record<string, Stored>, prefix = '') {
  const model = makeModel(config);
  const values = await collect(initialWeights(model, 1));
  const stored = new Map<string, Stored>();
  for (const { name, shape } of model.parameters) stored.set(prefix + name, floats(shape, entry(values, name)));
  for (const [name, tensor] of Object.entries(more)) stored.set(name, tensor);
  const files = new MemoryFiles({ 'm/config.json': JSON.stringify(config), 'm/model.safetensors': fileOf(stored) });
  const loaded = await loadWeights(files, 'm');
  checkWeights(loaded.shapes, model.parameters, 'm');
  expect(await collect(loaded.weights)).toEqual(values);
  return values;
}

const bytes = (count: number) => new Uint8Array(count).fill(1);

test('of a ViT, as a bare one has them: without a name of its own before them', async () => {
  const images = { image_size: 4, patch_size: 2, num_channels: 1, hidden_size: 4, intermediate_size: 6 };
  const config = { model_type: 'vit', ...images, num_hidden_layers: 2, num_attention_heads: 2 };
  const model = makeModel(parseConfig(config, 'v'));
  const values = await collect(initialWeights(model, 1));
  const stored = new Map(
    model.parameters
      .filter(({ name }) => name.startsWith('vit.'))
      .map(({ name, shape }) => [name.slice('vit.'.length), floats(shape, entry(values, name))]),
  );
  for (const name of ['pooler.dense.weight', 'pooler.dense.bias']) stored.set(name, floats([4], new Float32Array(4)));
  const files = new MemoryFiles({ 'm/config.json': JSON.stringify(config), 'm/model.safetensors': fileOf(stored) });
  const found = await collect((await loadWeights(files, 'm')).weights);
  expect(found).toEqual(new Map([...values].filter(([name]) => name.startsWith('vit.'))));
});

describe('of BERT', () => {
  const [word, bias] = ['bert.embeddings.word_embeddings.weight', 'cls.predictions.bias'];

  test('the head is the embedding, and heads of other tasks and numbers of positions are left out', async () => {
    const values = await load(bert, {
      'bert.embeddings.position_ids': { dtype: 'I64', shape: [1, 3], bytes: bytes(24) },
      'bert.pooler.dense.weight': floats([4, 4], new Float32Array(16)),
      'bert.pooler.dense.bias': floats([4], new Float32Array(4)),
      'cls.seq_relationship.weight': floats([2, 4], new Float32Array(8)),
      'cls.seq_relationship.bias': floats([2], new Float32Array(2)),
    });
    const copies = {
      'cls.predictions.decoder.weight': floats([5, 4], entry(values, word)),
      'cls.predictions.decoder.bias': floats([5], entry(values, bias)),
    };
    await load(bert, copies);
    const other = floats(
      [5],
      entry(values, bias).map((value) => value + 1),
    );
    await expect(load(bert, { ...copies, 'cls.predictions.decoder.bias': other })).rejects.toThrow(
      `cls.predictions.decoder.bias is not ${bias}, to which its config.json ties it`,
    );
  });

  test('gamma and beta are the weight and the bias of a LayerNorm', async () => {
    const { parameters } = makeModel(bert);
    const weights = await collect(initialWeights(makeModel(bert), 4));
    const stored = new Map(
      parameters.map(({ name, shape }) => [
        name.replace('LayerNorm.weight', 'LayerNorm.gamma').replace('LayerNorm.bias', 'LayerNorm.beta'),
        floats(shape, entry(weights, name)),
      ]),
    );
    expect([...stored.keys()].filter((name) => name.endsWith('gamma'))).toHaveLength(6);
    const files = new MemoryFiles({ 'm/config.json': JSON.stringify(bert), 'm/model.safetensors': fileOf(stored) });
    expect(await collect((await loadWeights(files, 'm')).weights)).toEqual(weights);
  });
});

describe('buffers are left out', () => {
  test.each(['', 'transformer.'])('of GPT-2, under the prefix "%s"', async (prefix) => {
    const buffers = ['U8', 'BOOL'].flatMap((dtype, i) => [
      [`${prefix}h.${i}.attn.bias`, { dtype, shape: [1, 1, 3, 3], bytes: bytes(9) }],
      [`${prefix}h.${i}.attn.masked_bias`, floats([], Float32Array.of(-1e4))],
    ]);
    await load(gpt2, Object.fromEntries(buffers), prefix);
    await load(gpt2, { [`${prefix}h.1.attn.bias`]: floats([1, 1, 3, 3], new Float32Array(9)) }, prefix);
  });

  test.each(['model.layers.0.self_attn.rotary_emb.inv_freq', 'model.rotary_emb.inv_freq', 'rotary_emb.inv_freq'])(
    'of Llama: %s',
    async (name) => {
      await load(llama, { [name]: floats([1], Float32Array.of(1)) });
      await load(llama, { [name]: { dtype: 'BF16', shape: [1], bytes: bytes(2) } });
    },
  );

  test.each([
    [gpt2, 'h.0.attn.biases', 'F32', 'tensor h.0.attn.biases is no parameter'],
    [gpt2, 'h.0.mlp.bias', 'F32', 'tensor h.0.mlp.bias is no parameter'],
    [gpt2, 'model.rotary_emb.inv_freq', 'F32', 'tensor model.rotary_emb.inv_freq is no parameter'],
    [llama, 'h.0.attn.bias', 'F32', 'tensor h.0.attn.bias is no parameter'],
    [gpt2, 'h.0.mlp.bias', 'I64', 'm/model.safetensors: h.0.mlp.bias is I64'],
    [gpt2, 'wte.weight', 'U8', 'm/model.safetensors: wte.weight is U8'],
  ])('and nothing else: %#', async (config, name, dtype, message) => {
    await expect(load(config, { [name]: { dtype, shape: [1], bytes: bytes(4) } })).rejects.toThrow(message);
  });
});

describe.each([
  ['GPT-2', gpt2, 'wte.weight'],
  ['Llama', llama, 'model.embed_tokens.weight'],
] as const)('the tied head of %s', (_, config, embedding) => {
  test('is left out where it is the embedding, and an error where it is not', async () => {
    const values = entry(await load(config, {}), embedding);
    await load(config, { 'lm_head.weight': floats([5, 4], values) });
    for (const at of [0, 7, 19]) {
      const other = values.slice();
      other[at] = (other[at] ?? 0) + 1e-6;
      await expect(load(config, { 'lm_head.weight': floats([5, 4], other) })).rejects.toThrow(
        `m/model.safetensors: lm_head.weight is not ${embedding}, to which its config.json ties it`,
      );
    }
    await expect(load(config, { 'lm_head.weight': floats([4, 5], values) })).rejects.toThrow('lm_head.weight is not');
    await expect(
      load(config, { 'lm_head.weight': { dtype: 'I64', shape: [5, 4], bytes: bytes(160) } }),
    ).rejects.toThrow('"lm_head.weight" has dtype "I64"');
  });

  test('stays where it is not tied', async () => {
    const untied = { ...config, tie_word_embeddings: false };
    const values = await load(untied, {});
    expect(values.get('lm_head.weight')).not.toEqual(values.get(embedding));
  });
});

test('one weight under two names is an error that names both', async () => {
  const wte = floats([5, 4], new Float32Array(20));
  await expect(load(gpt2, { 'transformer.wte.weight': wte })).rejects.toThrow(
    'm/model.safetensors: wte.weight and transformer.wte.weight are one weight',
  );
});

test('and so is one of an adapter', async () => {
  const name = 'model.layers.0.self_attn.q_proj.lora_A.weight';
  const a = floats([2, 4], new Float32Array(8));
  const files = new MemoryFiles({
    'a/adapter_config.json': JSON.stringify({ peft_type: 'LORA', r: 2, target_modules: ['q_proj'] }),
    'a/adapter_model.safetensors': fileOf(
      new Map([
        [`base_model.model.${name}`, a],
        [name, a],
      ]),
    ),
  });
  await expect(loadAdapter(files, 'a', llama)).rejects.toThrow(
    `a/adapter_model.safetensors: base_model.model.${name} and ${name} are one weight; write it under one of these names`,
  );
});
