// Models to begin with, from one that learns while you watch to GPT-2 itself, and the settings of a run as the form
// has them. What is not in a preset is a setting of its own with one default.

import { type ModelConfig, parseConfig, type RunSettings } from '../src/browser/index.ts';

/** The fields of the form. */
export interface Shape {
  family: 'gpt2' | 'llama';
  layers: number;
  width: number;
  heads: number;
  /** Llama's heads of keys and values; GPT-2 has as many as heads. */
  kvHeads: number;
  /** Tokens in a sequence. */
  context: number;
  vocabulary: number;
  batch: number;
  accumulate: number;
  steps: number;
  lr: number;
  warmup: number;
  schedule: RunSettings['schedule'];
  clip: number;
  weightDecay: number;
  seed: number;
  evalEvery: number;
  evalWindows: number;
  sampleEvery: number;
  saveEvery: number;
}

export type PresetName = 'tiny' | 'small' | 'medium' | 'large' | 'gpt2' | 'llama';

/** The defaults of `holdfast train`. */
const TINY: Shape = {
  family: 'gpt2',
  layers: 2,
  width: 64,
  heads: 4,
  kvHeads: 4,
  context: 64,
  vocabulary: 256,
  batch: 8,
  accumulate: 1,
  steps: 1700,
  lr: 0.006,
  warmup: 100,
  schedule: 'cosine',
  clip: 1,
  weightDecay: 0.1,
  seed: 1,
  evalEvery: 100,
  evalWindows: 64,
  sampleEvery: 100,
  saveEvery: 100,
};

const SMALL = { layers: 4, width: 128, context: 128, batch: 16, steps: 3000, lr: 0.002 };

export const PRESETS: Readonly<Record<PresetName, Shape>> = {
  tiny: TINY,
  small: { ...TINY, ...SMALL, kvHeads: 4 },
  llama: { ...TINY, ...SMALL, family: 'llama', heads: 8, kvHeads: 2 },
  medium: { ...TINY, ...SMALL, layers: 6, width: 192, heads: 6, kvHeads: 6, steps: 5000, lr: 0.001 },
  large: {
    ...TINY,
    ...{ layers: 6, width: 384, heads: 6, kvHeads: 6, context: 256, batch: 16, steps: 5000, lr: 0.001 },
    ...{ evalEvery: 250, evalWindows: 32, sampleEvery: 250, saveEvery: 250 },
  },
  // Its own vocabulary, so that it is all of GPT-2; text is read as bytes, the first 256 of its tokens.
  gpt2: {
    ...TINY,
    ...{ layers: 12, width: 768, heads: 12, kvHeads: 12, context: 128, vocabulary: 50257, batch: 1, steps: 1000 },
    ...{ lr: 0.0003, evalEvery: 100, evalWindows: 8, sampleEvery: 100, saveEvery: 200 },
  },
};

/** GPT-2 has 1024 positions, however few of them a sequence uses. */
const GPT2_POSITIONS = 1024;
const SAMPLE_TOKENS = 160;

/** Errors: HoldfastError for a shape that makes no model. */
export function settingsOf(shape: Shape): RunSettings {
  const { batch, context, accumulate, steps, lr, schedule, warmup, clip, weightDecay, seed } = shape;
  const { evalEvery, evalWindows, sampleEvery, saveEvery } = shape;
  return {
    config: configOf(shape),
    data: [],
    ...{ batch, seq: context, accumulate, steps, lr, minLr: lr / 10, schedule, warmup, clip, weightDecay, seed },
    ...{ evalEvery, evalWindows, sampleEvery, sampleTokens: SAMPLE_TOKENS, saveEvery },
  };
}

function configOf({ family, layers, width, heads, kvHeads, context, vocabulary }: Shape): ModelConfig {
  const name = 'these settings';
  if (family === 'gpt2') {
    const positions = vocabulary > 256 ? Math.max(context, GPT2_POSITIONS) : context;
    const shape = { n_layer: layers, n_embd: width, n_head: heads, n_positions: positions };
    return parseConfig({ model_type: 'gpt2', vocab_size: vocabulary, ...shape }, name);
  }
  return parseConfig(
    {
      model_type: 'llama',
      vocab_size: vocabulary,
      hidden_size: width,
      // Two thirds of 4 * width, as SwiGLU has three matrices where GELU has two; a multiple of 8.
      intermediate_size: Math.ceil((8 * width) / 3 / 8) * 8,
      num_hidden_layers: layers,
      num_attention_heads: heads,
      num_key_value_heads: kvHeads,
      max_position_embeddings: context,
      rms_norm_eps: 1e-5,
      tie_word_embeddings: true,
    },
    name,
  );
}
