// Llama 1 to 3, and what is one by another name (SmolLM2 among them), as a record: the decoder without switches. Llama 3.1
// and later scale their rotations. Not Llama 4, which is another family. A window is refused: files that have one were not
// trained as a Llama.

import { LLAMA_GGUF } from '../gguf/families/llama.ts';
import { type DecoderConfig, decoderFamily, newDecoder, parseDecoder, ropeOf } from './decoder.ts';

/** Llama, by the field names of Hugging Face. */
export interface LlamaConfig extends DecoderConfig {
  /** The family. */
  model_type: 'llama';
  /** SwiGLU's. */
  hidden_act: 'silu';
}

export const LLAMA = decoderFamily<LlamaConfig>({
  label: 'Llama',
  architecture: () => 'LlamaForCausalLM',
  parse(fields) {
    fields.only('mlp_bias', [false], false);
    const decoder = parseDecoder(fields, {
      ...{ vocab_size: 32000, max_position_embeddings: 2048, hidden_size: 4096, intermediate_size: 11008 },
      ...{ num_hidden_layers: 32, num_attention_heads: 32 },
    });
    return { model_type: 'llama', ...decoder, hidden_act: fields.only('hidden_act', ['silu'], 'silu') };
  },
  // `pretraining_tp` cuts products into parts, `max_window_layers` belongs to a window: with one, it is refused. Of the first
  // Llamas, `max_sequence_length` is what a training's rows had.
  harmless: ['pretraining_tp', 'is_llama_config', 'max_window_layers', 'max_sequence_length'],
  design: (config) => ({ attention: () => ({ rope: ropeOf(config) }) }),
  fromShape: (shape) => ({ ...newDecoder(shape), rms_norm_eps: 1e-5 }),
  gguf: LLAMA_GGUF,
});
