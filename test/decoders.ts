// Tiny configurations, one for each switch that tells a decoder from Llama: windows shorter than a sequence, layers that
// differ, rotations that are scaled within it. For tests of gradients, recomputation, generation and placement.

const SIZES = {
  vocab_size: 11,
  max_position_embeddings: 7,
  hidden_size: 6,
  intermediate_size: 7,
  num_hidden_layers: 3,
  num_attention_heads: 4,
  num_key_value_heads: 2,
  head_dim: 4, // not hidden_size / num_attention_heads
};

export const LLAMA = { model_type: 'llama', ...SIZES };

export const DECODERS = {
  // Frequencies 1 and 0.1 make 1.1 and 0.11 turns in 7 positions.
  'llama, rotations scaled by turns': {
    ...LLAMA,
    rope_theta: 100,
    rope_scaling: {
      ...{ rope_type: 'llama3', factor: 8, low_freq_factor: 0.05, high_freq_factor: 1.5 },
      original_max_position_embeddings: 7,
    },
  },
  'llama, rotations scaled': { ...LLAMA, rope_scaling: { rope_type: 'linear', factor: 2.5 } },
  mistral: { model_type: 'mistral', ...SIZES, sliding_window: 3 },
  qwen2: { model_type: 'qwen2', ...SIZES, tie_word_embeddings: true, sliding_window: 2 },
  'qwen2, a window from the second layer on': {
    ...{ model_type: 'qwen2', ...SIZES },
    ...{ use_sliding_window: true, sliding_window: 2, max_window_layers: 1 },
  },
  qwen3: { model_type: 'qwen3', ...SIZES },
  // The second layer sees all, the others have a window and rotations of their own.
  gemma3: {
    ...{ model_type: 'gemma3_text', ...SIZES, query_pre_attn_scalar: 5, final_logit_softcapping: 2.5 },
    ...{ sliding_window: 3, sliding_window_pattern: 2, rope_theta: 100, rope_local_base_freq: 10 },
  },
} as const satisfies Record<string, object>;
