// Tiny ViTs: two patches of 3 x 1 in an image, and the class token.

import type { SmallModel } from '../families.ts';

const VIT = {
  ...{ model_type: 'vit', image_size: [3, 2], patch_size: [3, 1], num_channels: 2, hidden_size: 6, num_labels: 5 },
  ...{ num_attention_heads: 2, num_hidden_layers: 2, intermediate_size: 10 },
};

export const models: Record<string, SmallModel> = {
  vit: { config: VIT },
  'vit without biases of projections, with lora': {
    config: { ...VIT, qkv_bias: false },
    lora: { rank: 2, alpha: 3 },
  },
};
