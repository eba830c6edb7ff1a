// The shape of a model as flags give it, turned into a configuration by Hugging Face's field names.

import { type ModelConfig, parseConfig } from '../formats/config.ts';
import { HoldfastError } from '../util/errors.ts';

export interface ModelFlags {
  model: 'gpt2' | 'llama';
  layers: number;
  width: number;
  heads: number;
  /** Llama only. @default heads */
  kvHeads?: number;
  context: number;
  vocabSize: number;
  /** Whether llama's head is its embedding; gpt2's always is. */
  tied: boolean;
}

/** Errors: HoldfastError naming the flag and what would work. */
export function configFromFlags(flags: ModelFlags): ModelConfig {
  const { model, layers, width, heads, kvHeads = heads, context, vocabSize, tied } = flags;
  if (width % heads !== 0) {
    throw new HoldfastError(
      `--width ${width} is not divisible by --heads ${heads}; ${Math.max(1, Math.round(width / heads)) * heads} would work`,
    );
  }
  if (model === 'gpt2') {
    if (kvHeads !== heads) {
      throw new HoldfastError('--kv-heads: gpt2 has as many as heads; use --model llama for grouped heads');
    }
    const shape = { n_layer: layers, n_embd: width, n_head: heads, n_positions: context };
    return parseConfig({ model_type: 'gpt2', vocab_size: vocabSize, ...shape }, 'the flags');
  }
  return parseConfig(
    {
      model_type: 'llama',
      vocab_size: vocabSize,
      hidden_size: width,
      // Two thirds of 4 * width, as SwiGLU has three matrices where GELU has two; a multiple of 8.
      intermediate_size: Math.ceil((8 * width) / 3 / 8) * 8,
      num_hidden_layers: layers,
      num_attention_heads: heads,
      num_key_value_heads: kvHeads,
      max_position_embeddings: context,
      rms_norm_eps: 1e-5,
      tie_word_embeddings: tied,
    },
    'the flags',
  );
}
