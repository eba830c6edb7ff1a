// A model's shape in a few words, turned into a configuration by Hugging Face's field names. Not a parser: what a file
// or a form says is checked by parseConfig, as any other configuration.

import { type ModelConfig, parseConfig } from './config.ts';

/** A model that is trained from the start: all that its family leaves open. */
export interface ShapeOptions {
  /** `gpt2`: learned positions, GELU, biases. `llama`: RoPE, SwiGLU, RMS norm, grouped-query attention. @default 'gpt2' */
  family?: 'gpt2' | 'llama';
  /** Blocks. @default 2 */
  layers?: number;
  /** Width of the embedding and of the residual stream, a multiple of `heads`. @default 64 */
  width?: number;
  /** Heads of attention. @default 4 */
  heads?: number;
  /** Heads of keys and values, a divisor of `heads`: llama only, gpt2 has as many as heads. @default heads */
  kvHeads?: number;
  /** The longest sequence, in tokens. @default 64 */
  context?: number;
  /** Tokens that there are; text is read as bytes, which are the first 256 of them. @default 256 */
  vocabulary?: number;
  /** Whether llama's head is its embedding; gpt2's always is. @default true */
  tied?: boolean;
}

/** What a shape is without further words: the model of `npm start`, which learns within minutes on two CPU cores. */
export const DEFAULT_SHAPE = {
  family: 'gpt2',
  layers: 2,
  width: 64,
  heads: 4,
  context: 64,
  vocabulary: 256,
  tied: true,
} as const satisfies ShapeOptions;

/** The configuration of a new model. `name` is for messages. Errors: HoldfastError for a shape that makes no model. */
export function configOfShape(shape: ShapeOptions = {}, name = 'this shape'): ModelConfig {
  const { family, layers, width, heads, kvHeads, context, vocabulary, tied } = {
    ...DEFAULT_SHAPE,
    kvHeads: undefined,
    ...shape,
  };
  if (family === 'gpt2') {
    const sizes = { n_layer: layers, n_embd: width, n_head: heads, n_positions: context };
    return parseConfig({ model_type: family, vocab_size: vocabulary, ...sizes }, name);
  }
  return parseConfig(
    {
      model_type: family,
      vocab_size: vocabulary,
      hidden_size: width,
      // Two thirds of 4 * width, as SwiGLU has three matrices where GELU has two; a multiple of 8.
      intermediate_size: Math.ceil((8 * width) / 3 / 8) * 8,
      num_hidden_layers: layers,
      num_attention_heads: heads,
      num_key_value_heads: kvHeads ?? heads,
      max_position_embeddings: context,
      rms_norm_eps: 1e-5,
      tie_word_embeddings: tied,
    },
    name,
  );
}
