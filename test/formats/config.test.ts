import { readFileSync } from 'node:fs';
import { describe, expect, test } from 'vitest';
import { parseConfig } from '../../src/formats/config.ts';
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

  test('reads the rope_parameters of Transformers 5', () => {
    expect(llama({ rope_parameters: { rope_type: 'default', rope_theta: 5e5 } })).toMatchObject({ rope_theta: 5e5 });
    expect(() => llama({ rope_parameters: { rope_type: 'yarn' } })).toThrow('rope_parameters.rope_type is "yarn"');
  });

  test.each([
    [null, 'is null, not an object'],
    [[], 'is a list, not an object'],
    [{}, 'model_type is missing; supported: "gpt2", "llama"'],
    [{ model_type: 'bert' }, 'model_type is "bert"; supported: "gpt2", "llama"'],
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
    [{ model_type: 'llama', rope_scaling: { type: 'linear' } }, 'rope_scaling is an object; supported: null'],
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
