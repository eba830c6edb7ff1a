// Tiny Llamas: rotations that are scaled within a sequence.

import { SIZES } from '../decoder-sizes.ts';
import type { SmallModel } from '../families.ts';

export const LLAMA = { model_type: 'llama', ...SIZES };

export const decoders = {
  llama: LLAMA,
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
};

export const models: Record<string, SmallModel> = {
  'llama with lora': { config: LLAMA, lora: { rank: 2, alpha: 3, rslora: true } },
  'llama with lora on a part of a packed projection': {
    config: LLAMA,
    lora: { rank: 2, targets: ['q_proj', 'v_proj'] },
  },
  'llama, in rows of several documents': { config: LLAMA, packed: true },
  'llama, tied, one kv head': { config: { ...LLAMA, tie_word_embeddings: true, num_key_value_heads: 1 } },
  'llama, as many kv heads as heads': { config: { ...LLAMA, num_key_value_heads: 4, head_dim: 2 } },
};
