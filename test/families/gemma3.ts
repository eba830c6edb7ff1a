// A tiny Gemma 3: the second layer sees all, the others have a window and rotations of their own.

import { SIZES } from '../decoder-sizes.ts';
import type { SmallModel } from '../families.ts';

export const GEMMA3 = {
  ...{ model_type: 'gemma3_text', ...SIZES, query_pre_attn_scalar: 5, final_logit_softcapping: 2.5 },
  ...{ sliding_window: 3, sliding_window_pattern: 2, rope_theta: 100, rope_local_base_freq: 10 },
};

export const decoders = { gemma3: GEMMA3 };

export const models: Record<string, SmallModel> = {
  'gemma3 with lora': { config: GEMMA3, lora: { rank: 2, alpha: 1 } },
  'gemma3, in rows of several documents': { config: { ...GEMMA3, sliding_window: 2 }, packed: true },
};
