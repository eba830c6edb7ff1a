// A tiny Mistral: its window is shorter than a sequence.

import { SIZES } from '../decoder-sizes.ts';
import type { SmallModel } from '../families.ts';

export const MISTRAL = { model_type: 'mistral', ...SIZES, sliding_window: 3 };

export const decoders = { mistral: MISTRAL };

export const models: Record<string, SmallModel> = {
  'mistral, in rows of several documents': { config: { ...MISTRAL, sliding_window: 2 }, packed: true },
};
