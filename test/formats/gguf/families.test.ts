// The records of families, on configurations of all: what llama.cpp needs of each is there, by its names, and what it cannot
// compute is refused.

import { describe, expect, test } from 'vitest';
import { ruleOf } from '../../../src/formats/gguf/families/family.ts';
import { type AnyConfig, ggufFamilyOf } from '../../../src/formats/gguf/families/index.ts';
import { modelOf, randomValues, type ShapesByName, written } from './models.ts';

const decoder = {
  ...{ vocab_size: 11, max_position_embeddings: 64, hidden_size: 10, intermediate_size: 14, num_hidden_layers: 3 },
  ...{ num_attention_heads: 2, num_key_value_heads: 1, head_dim: 6, rms_norm_eps: 1e-6, rope_theta: 1e4 },
};
const llama3 = {
  ...{ rope_type: 'llama3', factor: 8, low_freq_factor: 1, high_freq_factor: 4, original_max_position_embeddings: 32 },
};
const gemma = {
  ...{ model_type: 'gemma3_text', ...decoder, query_pre_attn_scalar: 6, sliding_window: 16, sliding_window_pattern: 2 },
  ...{ rope_local_base_freq: 500, final_logit_softcapping: null },
};
const qwen = { ...decoder, sliding_window: null, max_window_layers: 28 };

interface Case {
  readonly config: AnyConfig & typeof decoder;
  readonly architecture: string;
  /** In each block beside what all have. */
  readonly own?: readonly string[];
  readonly norms?: readonly string[];
  readonly keys?: Readonly<Record<string, unknown>>;
}

const cases: Readonly<Record<string, Case>> = {
  llama: { config: { model_type: 'llama', ...decoder }, architecture: 'llama' },
  'llama, linear': {
    config: { model_type: 'llama', ...decoder, rope_scaling: { rope_type: 'linear', factor: 4 } } as Case['config'],
    architecture: 'llama',
    keys: { 'rope.scaling.type': 'linear', 'rope.scaling.factor': 4 },
  },
  mistral: {
    config: { model_type: 'mistral', ...decoder, sliding_window: 24 } as Case['config'],
    architecture: 'llama',
    keys: { context_length: 24 },
  },
  qwen2: {
    config: { model_type: 'qwen2', ...qwen },
    architecture: 'qwen2',
    own: ['attn_q.bias', 'attn_k.bias', 'attn_v.bias'],
  },
  'qwen3, windowed': {
    config: { model_type: 'qwen3', ...qwen, sliding_window: 8, max_window_layers: 1 } as Case['config'],
    architecture: 'qwen3',
    own: ['attn_q_norm.weight', 'attn_k_norm.weight'],
    keys: { context_length: 8, 'attention.key_length': 6 },
  },
  gemma3_text: {
    config: gemma,
    architecture: 'gemma3',
    own: ['attn_q_norm.weight', 'attn_k_norm.weight', 'post_attention_norm.weight', 'post_ffw_norm.weight'],
    keys: { 'attention.sliding_window': 16, 'attention.sliding_window_pattern': 2, 'rope.freq_base_swa': 500 },
  },
};

/** By Hugging Face's names. */
function shapesOf({ model_type, ...config }: Case['config']): ShapesByName {
  const { hidden_size: C, intermediate_size: inner, head_dim: HS, vocab_size: V } = config;
  const [q, kv] = [config.num_attention_heads * HS, config.num_key_value_heads * HS];
  const block: [string, number[]][] = [
    ...([
      ['input_layernorm', [C]],
      ['post_attention_layernorm', [C]],
    ] as [string, number[]][]),
    ...([
      ['self_attn.q_proj', [q, C]],
      ['self_attn.k_proj', [kv, C]],
    ] as [string, number[]][]),
    ...([
      ['self_attn.v_proj', [kv, C]],
      ['self_attn.o_proj', [C, q]],
    ] as [string, number[]][]),
    ...([
      ['mlp.gate_proj', [inner, C]],
      ['mlp.up_proj', [inner, C]],
      ['mlp.down_proj', [C, inner]],
    ] as [string, number[]][]),
  ];
  const weights = block.map(([name, shape]) => [`${name}.weight`, shape] as const);
  const heads = ['q', 'k'].map((name) => [`self_attn.${name}_norm.weight`, [HS]] as const);
  const biases = [['q', q] as const, ['k', kv] as const, ['v', kv] as const].map(
    ([name, size]) => [`self_attn.${name}_proj.bias`, [size]] as const,
  );
  const outer = ['pre', 'post'].map((name) => [`${name}_feedforward_layernorm.weight`, [C]] as const);
  const all = [
    ...weights,
    ...(model_type === 'qwen2' ? biases : []),
    ...(model_type === 'qwen3' ? heads : []),
    ...(model_type === 'gemma3_text' ? [...heads, ...outer] : []),
  ];
  return new Map<string, readonly number[]>([
    ['model.embed_tokens.weight', [V, C]],
    ...Array.from({ length: config.num_hidden_layers }, (_, i) =>
      all.map(([name, shape]) => [`model.layers.${i}.${name}`, shape] as const),
    ).flat(),
    ['model.norm.weight', [C]],
  ]);
}

const IN_ALL = ['attn_norm', 'attn_q', 'attn_k', 'attn_v', 'attn_output', 'ffn_norm', 'ffn_gate', 'ffn_up', 'ffn_down'];

describe.each(Object.entries(cases))('%s', (_, { config, architecture, own = [], keys = {} }) => {
  test('has the names, the keys and every value', async () => {
    const shapes = shapesOf(config);
    const values = randomValues(shapes);
    const { tensors, metadata } = await written(modelOf(config, values, shapes));
    const inBlock = [...IN_ALL.map((name) => `${name}.weight`), ...own];
    const wanted = Array.from({ length: 3 }, (_, i) => inBlock.map((name) => `blk.${i}.${name}`)).flat();
    expect([...tensors.keys()].sort()).toEqual(['output_norm.weight', 'token_embd.weight', ...wanted].sort());
    for (const name of tensors.keys()) expect(new TextEncoder().encode(name).length).toBeLessThan(64);
    expect(metadata).toMatchObject({ 'general.architecture': architecture, 'general.type': 'model', version: 3 });
    const sizes = { context_length: 64, embedding_length: 10, block_count: 3, feed_forward_length: 14, vocab_size: 11 };
    const heads = { 'attention.head_count': 2, 'attention.head_count_kv': 1, 'rope.dimension_count': 6 };
    for (const [key, value] of Object.entries({ ...sizes, ...heads, 'rope.freq_base': 1e4, ...keys })) {
      expect(metadata[`${architecture}.${key}`], key).toBe(value);
    }
    // Values are the source's, but for the order of rows and what is added to gains.
    const family = ggufFamilyOf(config, 'm');
    for (const [weight, all] of values) {
      const { name, arrangement } = ruleOf(family, config, weight);
      const found = [...(tensors.get(name)?.values ?? [])];
      const shift = arrangement?.kind === 'plus one' ? 1 : 0;
      const shifted = Float64Array.from(all, (value) => Math.fround(value + shift));
      if (arrangement?.kind === 'paired') expect(found.sort()).toEqual([...shifted].sort());
      else expect(found).toEqual([...shifted]);
      expect(tensors.get(name)?.dims).toEqual([...(shapes.get(weight) ?? [])].reverse());
    }
  });
});

test('Llama 3’s slower rotations are what llama.cpp divides frequencies by', async () => {
  const config = { model_type: 'llama', ...decoder, head_dim: 16, rope_scaling: llama3 };
  const shapes = shapesOf(config);
  const { tensors } = await written(modelOf(config, randomValues(shapes), shapes), { type: 'Q8_0' });
  const found = tensors.get('rope_freqs.weight');
  expect(found).toMatchObject({ type: 0, dims: [8] });
  for (const [i, divisor] of [...(found?.values ?? [])].entries()) {
    const frequency = 1e4 ** (-i / 8);
    // By llama.cpp's converter, in wavelengths.
    const length = (2 * Math.PI) / frequency;
    const smooth = (32 / length - 1) / (4 - 1);
    const wanted = length < 32 / 4 ? 1 : length > 32 / 1 ? 8 : 1 / ((1 - smooth) / 8 + smooth);
    expect(divisor).toBe(Math.fround(wanted));
  }
  expect(new Set(found?.values).size).toBeGreaterThan(2);
});

describe('what a file cannot say is refused', () => {
  const layers = ['sliding_attention', 'full_attention', 'full_attention'];
  test.each<[AnyConfig, RegExp]>([
    [
      { model_type: 'bert', vocab_size: 5 },
      /m: no GGUF file is written for bert; for gpt2, llama, .*gemma3_text there is one/,
    ],
    [{ model_type: 'toString', vocab_size: 5 }, /no GGUF file is written for toString/],
    [{ ...gemma, query_pre_attn_scalar: 7 } as AnyConfig, /m: query_pre_attn_scalar is 7; .* llama.cpp takes 6/],
    [
      { ...gemma, layer_types: layers } as AnyConfig,
      /m: layer_types has layers without a window in no regular distance/,
    ],
  ])('%j', async (config, message) => {
    await expect(written(modelOf(config, new Map(), new Map()))).rejects.toThrow(message);
  });

  test('a tensor without a place', async () => {
    const shapes = new Map([['model.layers.0.mlp.experts', [2, 2]]]);
    const model = modelOf({ model_type: 'llama', ...decoder } as AnyConfig, randomValues(shapes), shapes);
    await expect(written(model)).rejects.toThrow(
      'model.layers.0.mlp.experts has no place in a GGUF file of a llama model',
    );
  });
});

test('layers that all have a window, or none, or by a list', async () => {
  const period = async (config: object) => {
    const { metadata } = await written(modelOf({ ...gemma, ...config } as AnyConfig, new Map(), new Map()));
    return metadata['gemma3.attention.sliding_window_pattern'];
  };
  const [full, sliding] = ['full_attention', 'sliding_attention'];
  expect(await period({ layer_types: [full, full, full] })).toBe(1);
  expect(await period({ layer_types: [sliding, sliding, full] })).toBe(3);
  expect(await period({ layer_types: [sliding, sliding, sliding] })).toBe(4);
  expect(await period({ sliding_window_pattern: 6 })).toBe(4);
});
