// Tiny Qwens 2: without a window, and with one from the second layer on.

import { SIZES } from '../decoder-sizes.ts';
import type { SmallModel } from '../families.ts';

export const QWEN2 = { model_type: 'qwen2', ...SIZES, tie_word_embeddings: true, sliding_window: 2 };

export const decoders = {
  qwen2: QWEN2,
  'qwen2, a window from the second layer on': {
    ...{ model_type: 'qwen2', ...SIZES },
    ...{ use_sliding_window: true, sliding_window: 2, max_window_layers: 1 },
  },
};

export const models: Record<string, SmallModel> = {
  'qwen2 with lora, in rows of several documents': {
    ...{ config: QWEN2, lora: { rank: 2, targets: ['q_proj', 'v_proj'] }, packed: true },
  },
  'qwen2 with lora, its biases frozen': { config: QWEN2, lora: { rank: 2, alpha: 3 } },
};
