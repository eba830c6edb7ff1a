import { readFileSync } from 'node:fs';
import { describe, expect, test } from 'vitest';
import { parseConfig } from '../../src/formats/config.ts';
import { FAMILY_NAMES } from '../../src/formats/families/index.ts';
import { HoldfastError } from '../../src/util/errors.ts';

const reference = (name: string) =>
  JSON.parse(readFileSync(new URL(`../fixtures/reference/${name}/config.json`, import.meta.url), 'utf8'));

const gpt2 = (fields: object = {}) => parseConfig({ model_type: 'gpt2', ...fields }, 'config.json');
const llama = (fields: object = {}) => parseConfig({ model_type: 'llama', ...fields }, 'config.json');

describe('parseConfig', () => {
  test("fills GPT-2's defaults", () => {
    expect(gpt2()).toEqual({
      model_type: 'gpt2',
      vocab_size: 50257,
      n_positions: 1024,
      n_embd: 768,
      n_layer: 12,
      n_head: 12,
      n_inner: 3072,
      activation_function: 'gelu_new',
      layer_norm_epsilon: 1e-5,
      initializer_range: 0.02,
      tie_word_embeddings: true,
    });
  });

  test("fills Llama's defaults", () => {
    expect(llama()).toEqual({
      model_type: 'llama',
      vocab_size: 32000,
      max_position_embeddings: 2048,
      hidden_size: 4096,
      intermediate_size: 11008,
      num_hidden_layers: 32,
      num_attention_heads: 32,
      num_key_value_heads: 32,
      head_dim: 128,
      hidden_act: 'silu',
      rms_norm_eps: 1e-6,
      rope_theta: 10000,
      initializer_range: 0.02,
      tie_word_embeddings: false,
    });
  });

  test('reads the reference configs; n_inner null is four times the width', () => {
    expect(parseConfig(reference('gpt2-stdinit'), 'x')).toMatchObject({ n_embd: 28, n_head: 4, n_inner: 112 });
    expect(parseConfig(reference('gpt2-tiny'), 'x')).toMatchObject({ vocab_size: 257, n_positions: 32 });
    expect(parseConfig(reference('llama-tiny'), 'x')).toMatchObject({ num_key_value_heads: 2, head_dim: 8 });
    expect(parseConfig(reference('llama-tied-mqa'), 'x')).toMatchObject({
      tie_word_embeddings: true,
      rms_norm_eps: 1e-5,
    });
  });

  test('its result is a config that reads back as itself', () => {
    for (const config of [gpt2({ n_inner: 100, tie_word_embeddings: false }), llama({ head_dim: 64 })]) {
      expect(parseConfig(JSON.parse(JSON.stringify(config)), 'x')).toEqual(config);
    }
  });

  test('null means the default', () => {
    expect(llama({ num_key_value_heads: null, head_dim: null, rope_scaling: null })).toEqual(llama());
  });

  test('a head size of its own need not fit the width', () => {
    expect(llama({ hidden_size: 100, num_attention_heads: 3, head_dim: 16 })).toMatchObject({ head_dim: 16 });
  });

  describe('RoPE as Transformers 5 and earlier ones describe it', () => {
    test.each([
      ['in rope_parameters', { rope_parameters: { rope_type: 'default', rope_theta: 5e5 } }, 5e5],
      ['by the older name of its type', { rope_parameters: { type: 'default', rope_theta: 5e5 } }, 5e5],
      ['with theta at the top alone', { rope_theta: 5e5, rope_parameters: { rope_type: 'default' } }, 5e5],
      ['with theta in both: the inner one', { rope_theta: 5e5, rope_parameters: { rope_theta: 2e4 } }, 2e4],
      ['null inside', { rope_theta: 5e5, rope_parameters: { rope_type: null, rope_theta: null, factor: null } }, 5e5],
      ['in rope_scaling', { rope_scaling: { rope_type: 'default', factor: 1 }, rope_theta: 3e4 }, 3e4],
      ['theta in rope_scaling', { rope_scaling: { type: 'default', rope_theta: 3e4 } }, 3e4],
      ['in both', { rope_parameters: {}, rope_scaling: { rope_theta: 3e4 } }, 3e4],
      ['nowhere', {}, 1e4],
    ])('%s', (_, given, rope_theta) => {
      expect(llama(given)).toMatchObject({ rope_theta });
    });

    test.each([
      [
        { rope_parameters: { rope_type: 'yarn' } },
        'rope_parameters.rope_type is "yarn"; supported: "default", "linear", "llama3"',
      ],
      [{ rope_parameters: { rope_type: 'longrope', factor: 8 } }, 'rope_parameters.rope_type is "longrope"'],
      [{ rope_parameters: { rope_type: 'default', type: 'linear' } }, 'rope_parameters.type is "linear"'],
      [{ rope_parameters: { factor: 8 } }, 'rope_parameters.factor is 8; supported: 1, null'],
      [{ rope_parameters: { partial_rotary_factor: 0.5 } }, 'rope_parameters.partial_rotary_factor is 0.5'],
      [{ rope_parameters: { full_attention: { rope_theta: 1 } } }, 'rope_parameters.full_attention is an object'],
      [{ rope_parameters: [] }, 'rope_parameters is a list of 0; it must be an object'],
      [{ rope_scaling: { type: 'linear' } }, 'rope_scaling.factor is missing; it must be a number above 0'],
      [{ rope_scaling: { type: 'linear', factor: 2, attention_factor: 3 } }, 'rope_scaling.attention_factor is 3'],
      [{ rope_scaling: { rope_type: 'llama3', factor: 8 } }, 'rope_scaling.low_freq_factor is missing'],
      [
        { rope_scaling: { rope_type: 'llama3', factor: 8, low_freq_factor: 4, high_freq_factor: 4 } },
        'rope_scaling.high_freq_factor is 4; it must be above low_freq_factor (4)',
      ],
      [
        { rope_scaling: { rope_type: 'llama3', factor: 8, low_freq_factor: 1, high_freq_factor: 4 } },
        'rope_scaling.original_max_position_embeddings is missing',
      ],
      [{ rope_parameters: {}, rope_scaling: { type: 'dynamic' } }, 'rope_scaling.type is "dynamic"'],
      [{ rope_theta: 0 }, 'rope_theta is 0'],
      [{ rope_parameters: { rope_theta: '5e5' } }, 'rope_parameters.rope_theta is "5e5"'],
    ])('refuses %j', (given, message) => {
      expect(() => llama(given)).toThrow(HoldfastError);
      expect(() => llama(given)).toThrow(`config.json: ${message}`);
    });
  });

  describe('a field of other architectures', () => {
    const harmless = {
      sliding_window: 4096,
      use_sliding_window: false,
      layer_types: ['full_attention', 'full_attention'],
      no_rope_layers: [1, 1],
      logits_scaling: 1,
      embedding_multiplier: 1.0,
      residual_multiplier: null,
      attention_multiplier: 0.125,
      query_pre_attn_scalar: 64,
      final_logit_softcapping: null,
      quantization_config: null,
      is_causal: true,
    };

    test('changes nothing where it is neutral', () => {
      expect(llama({ ...harmless, head_dim: 64 })).toEqual(llama({ head_dim: 64 }));
      expect(gpt2(harmless)).toEqual(gpt2());
      expect(llama({ sliding_window: 2048 })).toEqual(llama());
    });

    test.each([
      [{ sliding_window: 2047 }, 'sliding_window is 2047, shorter than the context of 2048'],
      [{ sliding_window: 512, use_sliding_window: true }, 'sliding_window is 512'],
      [{ layer_types: ['full_attention', 'sliding_attention'] }, 'layer_types has "sliding_attention" in it'],
      [{ no_rope_layers: [1, 1, 1, 0] }, 'no_rope_layers has 0 in it; supported: 1'],
      [{ no_rope_layers: 'all' }, 'no_rope_layers is "all"; it must be a list'],
      [{ no_rope_layer_interval: 4 }, 'no_rope_layer_interval is 4'],
      [{ logits_scaling: 8 }, 'logits_scaling is 8; supported: 1, null'],
      [{ logit_scale: 0.0625 }, 'logit_scale is 0.0625'],
      [{ embedding_multiplier: 12 }, 'embedding_multiplier is 12'],
      [{ residual_multiplier: 0.22 }, 'residual_multiplier is 0.22'],
      [{ attention_multiplier: 0.015625 }, 'attention_multiplier is 0.015625; supported: 0.088'],
      [{ query_pre_attn_scalar: 256 }, 'query_pre_attn_scalar is 256; supported: 128, null'],
      [{ scale_emb: 12 }, 'scale_emb is 12'],
      [{ scale_depth: 1.4 }, 'scale_depth is 1.4; supported: null'],
      [{ attn_logit_softcapping: 50 }, 'attn_logit_softcapping is 50; supported: null'],
      [{ final_logit_softcapping: 30 }, 'final_logit_softcapping is 30; supported: null'],
      [{ clip_qkv: 8 }, 'clip_qkv is 8'],
      [{ use_qk_norm: true }, 'use_qk_norm is true; supported: false, null'],
      [{ qk_layernorm: true }, 'qk_layernorm is true'],
      [{ partial_rotary_factor: 0.5 }, 'partial_rotary_factor is 0.5; supported: 1, null'],
      [{ rotary_pct: 0.25 }, 'rotary_pct is 0.25'],
      [{ rope_interleaved: true }, 'rope_interleaved is true'],
      [{ num_local_experts: 8 }, 'num_local_experts is 8'],
      [{ num_experts: 8 }, 'num_experts is 8'],
      [{ use_bidirectional_attention: true }, 'use_bidirectional_attention is true'],
      [{ is_causal: false }, 'is_causal is false; supported: true, null'],
      [{ quantization_config: { bits: 4 } }, 'quantization_config.quant_method is missing; supported: "bitsandbytes"'],
      [
        { quantization_config: { quant_method: 'bitsandbytes', load_in_8bit: true } },
        'quantization_config.load_in_4bit is missing; supported: true',
      ],
    ])('is refused where it is not: %j', (given, message) => {
      expect(() => llama(given)).toThrow(HoldfastError);
      expect(() => llama(given)).toThrow(`config.json: ${message}`);
    });

    test('GPT-2 refuses them too', () => {
      expect(() => gpt2({ sliding_window: 100 })).toThrow('sliding_window is 100, shorter than the context of 1024');
      expect(() => gpt2({ attention_multiplier: 1 })).toThrow('attention_multiplier is 1; supported: 0.125, null');
    });
  });

  test.each([
    [null, 'is null, not an object'],
    [[], 'is a list of 0, not an object'],
    [{}, `model_type is missing; supported: ${FAMILY_NAMES.map((name) => `"${name}"`).join(', ')}`],
    [{ model_type: 'none' }, 'model_type is "none"; supported: "gpt2", '],
    [{ model_type: 'gpt2', activation_function: 'relu' }, 'is "relu"; supported: "gelu_new", "gelu_pytorch_tanh"'],
    [{ model_type: 'gpt2', scale_attn_weights: false }, 'scale_attn_weights is false; supported: true'],
    [{ model_type: 'gpt2', add_cross_attention: true }, 'add_cross_attention is true; supported: false'],
    [{ model_type: 'gpt2', n_embd: 100 }, 'n_embd is 100, not a multiple of n_head (12); 96 would work'],
    [{ model_type: 'gpt2', n_embd: 5 }, '12 would work'],
    [{ model_type: 'gpt2', n_layer: 0 }, 'n_layer is 0; it must be a whole number above 0'],
    [{ model_type: 'gpt2', n_layer: 1.5 }, 'n_layer is 1.5'],
    [{ model_type: 'gpt2', vocab_size: '256' }, 'vocab_size is "256"'],
    [{ model_type: 'gpt2', layer_norm_epsilon: 0 }, 'layer_norm_epsilon is 0; it must be a number above 0'],
    [{ model_type: 'llama', hidden_act: 'gelu' }, 'hidden_act is "gelu"; supported: "silu"'],
    [{ model_type: 'llama', attention_bias: true }, 'attention_bias is true; supported: false'],
    [{ model_type: 'llama', mlp_bias: true }, 'mlp_bias is true; supported: false'],
    [
      { model_type: 'llama', num_key_value_heads: 5 },
      'num_attention_heads is 32, not a multiple of num_key_value_heads',
    ],
    [{ model_type: 'llama', hidden_size: 32 }, 'head_dim is 1 (hidden_size / num_attention_heads)'],
    [{ model_type: 'llama', head_dim: 7 }, 'head_dim is 7; rotary embeddings need an even one, for example 8'],
    [{ model_type: 'llama', tie_word_embeddings: 1 }, 'tie_word_embeddings is 1; supported: true, false'],
  ])('refuses %j', (json, message) => {
    expect(() => parseConfig(json, 'config.json')).toThrow(HoldfastError);
    expect(() => parseConfig(json, 'config.json')).toThrow(`config.json: `);
    expect(() => parseConfig(json, 'config.json')).toThrow(message);
  });
});
