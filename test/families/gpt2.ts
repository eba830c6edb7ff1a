// Tiny GPT-2s.

import type { SmallModel } from '../families.ts';

const GPT2 = { model_type: 'gpt2', vocab_size: 11, n_positions: 7, n_embd: 6, n_head: 2, n_layer: 2, n_inner: 10 };

export const models: Record<string, SmallModel> = {
  'gpt2, tied': { config: GPT2 },
  'gpt2, untied, one layer': { config: { ...GPT2, tie_word_embeddings: false, n_layer: 1 } },
  'gpt2 with lora': { config: GPT2, lora: { rank: 2, alpha: 3 } },
  'gpt2 with lora on one linear, untied': {
    config: { ...GPT2, tie_word_embeddings: false },
    lora: { rank: 3, alpha: 1.5, targets: ['c_fc'] },
  },
  'gpt2 with lora behind GELU': { config: GPT2, lora: { rank: 2, alpha: 3, targets: ['mlp.c_proj'] } },
  'gpt2, in rows of several documents': { config: GPT2, packed: true },
};
