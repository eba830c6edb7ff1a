// Mistral as a record: Llama, and in every layer a query sees the last `sliding_window` tokens alone. Null is a value of
// that field, of models without a window; where the field is absent, Transformers takes 4096, and so do we. Not Mixtral.

import { MISTRAL_GGUF } from '../gguf/families/llama.ts';
import { type DecoderConfig, decoderFamily, newDecoder, parseDecoder, ropeOf } from './decoder.ts';

/** Mistral, by the field names of Hugging Face. */
export interface MistralConfig extends DecoderConfig {
  /** The family. */
  model_type: 'mistral';
  /** SwiGLU's. */
  hidden_act: 'silu';
  /** Tokens that a query sees, its own among them; null: every one before. @default 4096 */
  sliding_window: number | null;
}

export const MISTRAL = decoderFamily<MistralConfig>({
  label: 'Mistral',
  architecture: () => 'MistralForCausalLM',
  parse(fields) {
    // No switch of Mistral's: its window is there or null.
    fields.neutral('use_sliding_window', [true]);
    const decoder = parseDecoder(fields, {
      ...{ vocab_size: 32000, max_position_embeddings: 131072, hidden_size: 4096, intermediate_size: 14336 },
      ...{ num_hidden_layers: 32, num_attention_heads: 32, num_key_value_heads: 8 },
    });
    return {
      model_type: 'mistral',
      ...decoder,
      hidden_act: fields.only('hidden_act', ['silu'], 'silu'),
      sliding_window: fields.countOrNull('sliding_window', 4096),
    };
  },
  harmless: ['pretraining_tp'],
  design: (config) => ({
    attention: () => ({ window: config.sliding_window ?? undefined, rope: ropeOf(config) }),
  }),
  fromShape: (shape) => ({ ...newDecoder(shape), rms_norm_eps: 1e-5 }),
  gguf: MISTRAL_GGUF,
});
