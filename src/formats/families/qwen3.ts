// Qwen 3 as a record: Llama with a norm over each head of q and k, heads of a size of their own, and Qwen 2's windows.
// Not its mixtures of experts (qwen3_moe); and projections with biases (attention_bias true) are refused by name.

import { QWEN3_GGUF } from '../gguf/families/qwen.ts';
import { type DecoderConfig, decoderFamily, newDecoder, parseDecoder, ropeOf } from './decoder.ts';
import { parseQwenWindow, type QwenWindow, qwenWindow } from './qwen2.ts';

/** Qwen 3, by the field names of Hugging Face. */
export interface Qwen3Config extends DecoderConfig, QwenWindow {
  /** The family. */
  model_type: 'qwen3';
  /** SwiGLU's. */
  hidden_act: 'silu';
}

export const QWEN3 = decoderFamily<Qwen3Config>({
  label: 'Qwen 3',
  architecture: () => 'Qwen3ForCausalLM',
  parse(fields) {
    const decoder = parseDecoder(fields, {
      ...{ vocab_size: 151936, max_position_embeddings: 32768, hidden_size: 4096, intermediate_size: 22016 },
      ...{ num_hidden_layers: 32, num_attention_heads: 32, num_key_value_heads: 32, head_dim: 128 },
    });
    return {
      model_type: 'qwen3',
      ...decoder,
      hidden_act: fields.only('hidden_act', ['silu'], 'silu'),
      ...parseQwenWindow(fields, decoder.num_hidden_layers),
    };
  },
  harmless: [],
  design: (config) => ({
    headNorms: true,
    attention: (i) => ({ window: qwenWindow(config, i), rope: ropeOf(config) }),
  }),
  fromShape: (shape) => ({ ...newDecoder(shape), head_dim: shape.width / shape.heads }),
  gguf: QWEN3_GGUF,
});
