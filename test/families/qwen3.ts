// A tiny Qwen 3.

import { SIZES } from '../decoder-sizes.ts';
import type { SmallModel } from '../families.ts';

export const QWEN3 = { model_type: 'qwen3', ...SIZES };

export const decoders = { qwen3: QWEN3 };

export const models: Record<string, SmallModel> = {
  'qwen3 with lora in front of norms of heads': { config: QWEN3, lora: { rank: 2, targets: ['k_proj', 'o_proj'] } },
};
