// GPT-2 in GGUF. Its projections are stored as [in, out], and are transposed.

import { f32, u32 } from '../header.ts';
import type { GGUFFamily, TensorRule } from './family.ts';

/** The fields of Hugging Face's configuration that are read here. */
export interface GPT2Fields {
  readonly n_positions: number;
  readonly n_embd: number;
  readonly n_layer: number;
  readonly n_inner: number;
  readonly n_head: number;
  readonly layer_norm_epsilon: number;
}

const projection = (name: string): TensorRule => ({ name, arrangement: { kind: 'transposed' } });

export const GPT2_GGUF: GGUFFamily<GPT2Fields> = {
  architecture: 'gpt2',
  metadata: (config) => ({
    context_length: u32(config.n_positions),
    embedding_length: u32(config.n_embd),
    block_count: u32(config.n_layer),
    feed_forward_length: u32(config.n_inner),
    'attention.head_count': u32(config.n_head),
    'attention.layer_norm_epsilon': f32(config.layer_norm_epsilon),
  }),
  outside: {
    'wte.weight': 'token_embd.weight',
    'wpe.weight': 'position_embd.weight',
    'ln_f.weight': 'output_norm.weight',
    'ln_f.bias': 'output_norm.bias',
    'lm_head.weight': 'output.weight',
  },
  blocks: 'h.',
  inBlock: () => ({
    'ln_1.weight': 'attn_norm.weight',
    'ln_1.bias': 'attn_norm.bias',
    'attn.c_attn.weight': projection('attn_qkv.weight'),
    'attn.c_attn.bias': 'attn_qkv.bias',
    'attn.c_proj.weight': projection('attn_output.weight'),
    'attn.c_proj.bias': 'attn_output.bias',
    'ln_2.weight': 'ffn_norm.weight',
    'ln_2.bias': 'ffn_norm.bias',
    'mlp.c_fc.weight': projection('ffn_up.weight'),
    'mlp.c_fc.bias': 'ffn_up.bias',
    'mlp.c_proj.weight': projection('ffn_down.weight'),
    'mlp.c_proj.bias': 'ffn_down.bias',
  }),
  made: () => [],
  config: (keys) => ({
    model_type: 'gpt2',
    vocab_size: keys.shape('token_embd.weight')?.[0],
    n_positions: keys.number('context_length'),
    n_embd: keys.number('embedding_length'),
    n_layer: keys.number('block_count'),
    n_inner: keys.number('feed_forward_length'),
    n_head: keys.number('attention.head_count'),
    layer_norm_epsilon: keys.real('attention.layer_norm_epsilon'),
    tie_word_embeddings: keys.shape('output.weight') === undefined,
  }),
};
