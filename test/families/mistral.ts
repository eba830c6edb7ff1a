// A tiny Mistral: its window is shorter than a sequence.

import { SIZES } from '../decoder-sizes.ts';

export const MISTRAL = { model_type: 'mistral', ...SIZES, sliding_window: 3 };

export const decoders = { mistral: MISTRAL };
