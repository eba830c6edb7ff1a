// Llama as a record: its configuration by Hugging Face's field names, and the facts that follow from it. Not its forward
// pass (nn/llama.ts). Fields that change nothing here are dropped, the dropout rates among them.

import type { Family } from './family.ts';
import type { Fields } from './fields.ts';

/** Llama, by the field names of Hugging Face. */
export interface LlamaConfig {
  /** The family. */
  model_type: 'llama';
  /** Tokens in the vocabulary: V. */
  vocab_size: number;
  /** The longest T. */
  max_position_embeddings: number;
  /** Width of the residual stream: C. */
  hidden_size: number;
  /** Width of the MLP. */
  intermediate_size: number;
  /** Blocks: L. */
  num_hidden_layers: number;
  /** NH, a multiple of num_key_value_heads. */
  num_attention_heads: number;
  /** Heads of keys and values: NKV. */
  num_key_value_heads: number;
  /** HS, even; NH * HS may differ from C. */
  head_dim: number;
  /** SwiGLU's. */
  hidden_act: 'silu';
  /** Added to mean squares. @default 1e-6 */
  rms_norm_eps: number;
  /** The base of the rotations' wavelengths. @default 10000 */
  rope_theta: number;
  /** Standard deviation of new weights. @default 0.02 */
  initializer_range: number;
  /** Whether the head is the embedding. @default false */
  tie_word_embeddings: boolean;
}

function parseLlama(fields: Fields): LlamaConfig {
  fields.only('attention_bias', [false], false);
  fields.only('mlp_bias', [false], false);
  const hidden_size = fields.count('hidden_size', 4096);
  const num_attention_heads = fields.count('num_attention_heads', 32);
  const num_key_value_heads = fields.count('num_key_value_heads', num_attention_heads);
  fields.divides('num_key_value_heads', num_key_value_heads, 'num_attention_heads', num_attention_heads);
  if (!fields.has('head_dim')) fields.divides('num_attention_heads', num_attention_heads, 'hidden_size', hidden_size);
  const head_dim = fields.count('head_dim', hidden_size / num_attention_heads);
  if (head_dim % 2 !== 0) {
    const origin = fields.has('head_dim') ? '' : ' (hidden_size / num_attention_heads)';
    fields.refuse(`head_dim is ${head_dim}${origin}; rotary embeddings need an even one, for example ${head_dim + 1}`);
  }
  return {
    model_type: 'llama',
    vocab_size: fields.count('vocab_size', 32000),
    max_position_embeddings: fields.count('max_position_embeddings', 2048),
    hidden_size,
    intermediate_size: fields.count('intermediate_size', 11008),
    num_hidden_layers: fields.count('num_hidden_layers', 32),
    num_attention_heads,
    num_key_value_heads,
    head_dim,
    hidden_act: fields.only('hidden_act', ['silu'], 'silu'),
    rms_norm_eps: fields.positive('rms_norm_eps', 1e-6),
    rope_theta: parseTheta(fields),
    initializer_range: fields.positive('initializer_range', 0.02),
    tie_word_embeddings: fields.only('tie_word_embeddings', [true, false], false),
  };
}

/**
 * Where RoPE is described: Transformers 5 writes `rope_parameters: {rope_type, rope_theta}`, earlier ones `rope_theta` and,
 * for other kinds, `rope_scaling: {type}` or `{rope_type}`; it reads them all, and so do we.
 */
function parseTheta(fields: Fields): number {
  const theta = fields.positive('rope_theta', 10000);
  const described = (['rope_parameters', 'rope_scaling'] as const).filter((name) => fields.has(name));
  return described.reduceRight((outer, name) => {
    const rope = fields.inside(name);
    for (const key of ['rope_type', 'type']) rope.only(key, ['default'], 'default');
    for (const key of ['factor', 'attention_factor', 'partial_rotary_factor']) rope.neutral(key, [1]);
    // One for each kind of layer.
    for (const key of ['full_attention', 'sliding_attention']) rope.neutral(key, []);
    return rope.positive('rope_theta', outer);
  }, theta);
}

export const LLAMA: Family<LlamaConfig> = {
  label: 'Llama',
  architecture: 'LlamaForCausalLM',
  groupedHeads: true,
  parse: parseLlama,
  shape: (config) => ({
    layers: config.num_hidden_layers,
    width: config.hidden_size,
    vocabulary: config.vocab_size,
    context: config.max_position_embeddings,
    heads: config.num_attention_heads,
    kvHeads: config.num_key_value_heads,
    headSize: config.head_dim,
  }),
  fromShape: ({ layers, width, heads, kvHeads, context, vocabulary, tied }) => ({
    vocab_size: vocabulary,
    hidden_size: width,
    // Two thirds of 4 * width, as SwiGLU has three matrices where GELU has two; a multiple of 8.
    intermediate_size: Math.ceil((8 * width) / 3 / 8) * 8,
    num_hidden_layers: layers,
    num_attention_heads: heads,
    num_key_value_heads: kvHeads,
    max_position_embeddings: context,
    rms_norm_eps: 1e-5,
    tie_word_embeddings: tied,
  }),
  tensors(config) {
    const { hidden_size: C, intermediate_size: inner, vocab_size: V, tie_word_embeddings: tied } = config;
    const { num_attention_heads: NH, num_key_value_heads: NKV, head_dim: HS } = config;
    return {
      layersField: 'num_hidden_layers',
      block: [[C], [NH * HS, C], [NKV * HS, C], [NKV * HS, C], [C, NH * HS], [C], [inner, C], [inner, C], [C, inner]],
      rest: [[V, C], [C], ...(tied ? [] : [[V, C] as const])],
    };
  },
  stored: {
    prefix: '',
    // The frequencies of its rotations.
    buffers: /^(?:model\.)?(?:layers\.\d+\.self_attn\.)?rotary_emb\.inv_freq$/,
    head: 'lm_head.weight',
    embedding: 'model.embed_tokens.weight',
  },
};
