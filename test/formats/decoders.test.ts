// Configurations of the decoders as they are published: what is read of them, what is written, what is refused by name.

import { describe, expect, test } from 'vitest';
import { parseConfig } from '../../src/formats/config.ts';
import type { DecoderDesign } from '../../src/formats/families/decoder.ts';
import { GEMMA3, type Gemma3Config } from '../../src/formats/families/gemma3.ts';
import { MISTRAL, type MistralConfig } from '../../src/formats/families/mistral.ts';
import { QWEN2, type Qwen2Config } from '../../src/formats/families/qwen2.ts';
import { QWEN3, type Qwen3Config } from '../../src/formats/families/qwen3.ts';
import { configOfShape } from '../../src/formats/shape.ts';
import { HoldfastError } from '../../src/util/errors.ts';

const parse = (model_type: string, fields: object = {}) => parseConfig({ model_type, ...fields }, 'config.json');
const windows = ({ attention }: DecoderDesign, layers: number) =>
  Array.from({ length: layers }, (_, i) => attention(i).window);

describe('what is read', () => {
  test("Llama's scaling of rotations, by either name", () => {
    const scaling = {
      ...{ rope_type: 'llama3', factor: 32, low_freq_factor: 1, high_freq_factor: 4 },
      original_max_position_embeddings: 8192,
    };
    const config = parse('llama', { rope_theta: 5e5, rope_scaling: scaling });
    expect(config).toMatchObject({ rope_theta: 5e5, rope_scaling: scaling });
    expect(parse('llama', { rope_parameters: { ...scaling, rope_theta: 5e5 } })).toEqual(config);
    expect(parse('llama', { rope_scaling: { type: 'linear', factor: 2 } })).toMatchObject({
      rope_scaling: { rope_type: 'linear', factor: 2 },
    });
    expect(parse('llama')).not.toHaveProperty('rope_scaling');
  });

  test("Mistral's window: 4096 where nothing is said, none where it is null", () => {
    const mistral = (fields: object) => parse('mistral', fields) as MistralConfig;
    expect(mistral({})).toMatchObject({ num_key_value_heads: 8, intermediate_size: 14336, sliding_window: 4096 });
    expect(mistral({ sliding_window: null }).sliding_window).toBe(null);
    expect(windows(MISTRAL.design(mistral({ sliding_window: null })), 2)).toEqual([undefined, undefined]);
    expect(windows(MISTRAL.design(mistral({ sliding_window: 7 })), 2)).toEqual([7, 7]);
  });

  test("Qwen's window: where it is switched on, in the layers that are named, or from one on", () => {
    const qwen2 = (fields: object) => parse('qwen2', { num_hidden_layers: 3, ...fields }) as Qwen2Config;
    const found = (fields: object) => windows(QWEN2.design(qwen2(fields)), 3);
    expect(qwen2({ sliding_window: 8, max_window_layers: 1 })).toMatchObject({ sliding_window: null });
    expect(found({ sliding_window: 8, max_window_layers: 1 })).toEqual([undefined, undefined, undefined]);
    expect(found({ use_sliding_window: true, sliding_window: 8, max_window_layers: 1 })).toEqual([undefined, 8, 8]);
    expect(found({ use_sliding_window: true, sliding_window: 8, max_window_layers: 0 })).toEqual([8, 8, 8]);
    expect(found({ use_sliding_window: true, sliding_window: 8 })).toEqual([undefined, undefined, undefined]);
    const layer_types = ['sliding_attention', 'full_attention', 'full_attention'];
    expect(found({ use_sliding_window: true, sliding_window: 8, layer_types })).toEqual([8, undefined, undefined]);
  });

  test("Qwen 3's heads have a size of their own, and windows as Qwen 2's", () => {
    expect(parse('qwen3', { hidden_size: 100, num_attention_heads: 4, num_key_value_heads: 2 })).toMatchObject({
      ...{ head_dim: 128, use_sliding_window: false, sliding_window: null },
    });
    const fields = { num_hidden_layers: 2, use_sliding_window: true, sliding_window: 8, max_window_layers: 1 };
    expect(windows(QWEN3.design(parse('qwen3', fields) as Qwen3Config), 2)).toEqual([undefined, 8]);
  });

  test("Gemma's layers: each with its window and its rotations", () => {
    const gemma = (fields: object) => parse('gemma3_text', { num_hidden_layers: 3, ...fields }) as Gemma3Config;
    const { attention, ...design } = GEMMA3.design(gemma({ hidden_size: 64, sliding_window: 512 }));
    expect(design).toEqual({
      ...{ headNorms: true, outputNorms: true, gainsFromOne: true, activation: 'gelu' },
      ...{ embeddingScale: 8, attentionScale: 1 / 16, softcap: undefined },
    });
    expect(attention(4)).toEqual({ window: 512, rope: { theta: 1e4 } });
    expect(attention(5)).toEqual({ rope: { theta: 1e6 } });
    const found = (fields: object) => windows(GEMMA3.design(gemma({ sliding_window: 7, ...fields })), 3);
    expect(found({ sliding_window_pattern: 2 })).toEqual([7, undefined, 7]);
    expect(found({ _sliding_window_pattern: 3 })).toEqual([7, 7, undefined]);
    const layer_types = ['full_attention', 'sliding_attention', 'sliding_attention'];
    expect(found({ sliding_window_pattern: 2, layer_types })).toEqual([undefined, 7, 7]);
    // As Transformers 5 describes the rotations, and with them scaled, as in larger Gemmas.
    const rope_parameters = {
      full_attention: { rope_type: 'linear', factor: 8, rope_theta: 2e6 },
      sliding_attention: { rope_type: 'default', rope_theta: 2e4 },
    };
    const scaled = { rope_theta: 2e6, rope_local_base_freq: 2e4, rope_scaling: { rope_type: 'linear', factor: 8 } };
    expect(gemma({ rope_parameters })).toEqual(gemma(scaled));
    expect(GEMMA3.design(gemma(scaled)).attention(5).rope).toEqual({
      ...{ theta: 2e6, scaling: { kind: 'linear', factor: 8 } },
    });
  });

  test("a new model's heads have the size that its shape says", () => {
    for (const family of ['qwen3', 'gemma3_text'] as const)
      expect(configOfShape({ family, width: 96, heads: 6 })).toMatchObject({ head_dim: 16 });
    expect(configOfShape({ family: 'gemma3_text', width: 96, heads: 6 })).toMatchObject({ query_pre_attn_scalar: 16 });
    expect(() => configOfShape({ family: 'qwen3', width: 65, heads: 4 })).toThrow('head_dim is 16.25');
  });
});

// As they are on the hub, sizes apart.
test.each([
  ['mistral', { attention_dropout: 0, head_dim: 128, rope_theta: 1e6, sliding_window: null, use_cache: true }],
  [
    'qwen2',
    {
      ...{ attention_dropout: 0, max_window_layers: 21, rope_theta: 1e6, sliding_window: 32768, use_cache: true },
      ...{ use_mrope: false, use_sliding_window: false },
    },
  ],
  [
    'qwen3',
    {
      ...{ attention_bias: false, head_dim: 128, max_window_layers: 28, rope_scaling: null, rope_theta: 1e6 },
      ...{ sliding_window: null, use_sliding_window: false },
    },
  ],
  [
    'gemma3_text',
    {
      ...{ _sliding_window_pattern: 6, attn_logit_softcapping: null, cache_implementation: 'hybrid' },
      ...{ final_logit_softcapping: null, hidden_activation: 'gelu_pytorch_tanh', query_pre_attn_scalar: 256 },
      ...{ rope_local_base_freq: 1e4, rope_scaling: null, rope_theta: 1e6, sliding_window: 512 },
      ...{ sliding_window_pattern: 6, use_bidirectional_attention: false },
    },
  ],
])('%s: each field of a published configuration is read or changes nothing, and no other passes', (family, fields) => {
  expect(() => parse(family, fields)).not.toThrow();
  expect(() => parse(family, { ...fields, nova: 1 })).toThrow('config.json: nova is 1; this field is not known here');
});

test.each([
  ['llama', { rope_scaling: { rope_type: 'linear', factor: 4 } }],
  ['qwen3', {}],
  ['gemma3_text', { final_logit_softcapping: 30, rope_scaling: { rope_type: 'linear', factor: 8 } }],
  ['gemma3_text', { num_hidden_layers: 2, layer_types: ['full_attention', 'sliding_attention'] }],
  ['mistral', { sliding_window: null }],
  ['mistral', { sliding_window: 9, tie_word_embeddings: true }],
  ['qwen2', { sliding_window: 9 }],
  ['qwen2', { num_hidden_layers: 1, use_sliding_window: true, layer_types: ['sliding_attention'] }],
])('a configuration of %s reads back as itself: %j', (family, fields) => {
  const config = parse(family, fields);
  expect(parseConfig(JSON.parse(JSON.stringify(config)), 'x')).toEqual(config);
});

test.each([
  ['llama', { sliding_window: 512 }, 'sliding_window is 512, shorter than the context of 2048'],
  ['mistral', { use_sliding_window: false }, 'use_sliding_window is false; supported: true, null'],
  ['mistral', { sliding_window: 0 }, 'sliding_window is 0; it must be a whole number above 0'],
  ['mistral', { layer_types: ['sliding_attention'] }, 'layer_types has "sliding_attention" in it'],
  ['mistral', { attention_bias: true }, 'attention_bias is true; supported: false'],
  ['qwen2', { hidden_act: 'gelu' }, 'hidden_act is "gelu"; supported: "silu"'],
  ['qwen2', { use_mrope: true }, 'use_mrope is true; supported: false, null'],
  ['qwen2', { max_window_layers: -1 }, 'max_window_layers is -1; it must be a whole number, 0 or above'],
  ['qwen2', { num_hidden_layers: 2, layer_types: ['full_attention'] }, 'layer_types has 1 items; it must have 2'],
  [
    'qwen2',
    { num_hidden_layers: 1, layer_types: ['sliding_attention'] },
    'layer_types has "sliding_attention" in it, but there is no window',
  ],
  ['qwen2', { layer_types: ['chunked_attention'] }, 'layer_types has "chunked_attention" in it'],
  ['qwen3', { attention_bias: true }, 'attention_bias is true; supported: false'],
  ['qwen3', { num_experts: 128 }, 'num_experts is 128'],
  ['gemma3_text', { attn_logit_softcapping: 50 }, 'attn_logit_softcapping is 50; supported: null'],
  ['gemma3_text', { final_logit_softcapping: 0 }, 'final_logit_softcapping is 0; it must be a number above 0'],
  ['gemma3_text', { hidden_activation: 'gelu' }, 'hidden_activation is "gelu"; supported: "gelu_pytorch_tanh"'],
  ['gemma3_text', { use_bidirectional_attention: true }, 'use_bidirectional_attention is true'],
  ['gemma3_text', { sliding_window: -1 }, 'sliding_window is -1'],
  [
    'gemma3_text',
    { rope_parameters: { full_attention: {}, sliding_attention: { rope_type: 'linear', factor: 8 } } },
    'rope_parameters.sliding_attention.rope_type is "linear"; supported: "default"',
  ],
])('%s refuses %j', (family, fields, message) => {
  expect(() => parse(family, fields)).toThrow(HoldfastError);
  expect(() => parse(family, fields)).toThrow(`config.json: ${message}`);
});
