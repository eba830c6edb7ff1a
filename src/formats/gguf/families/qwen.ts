// Qwen 2, 2.5 and 3 in GGUF: the rows of q and k lie as in Hugging Face's files, and there are no windows.

import { type DecoderFields, ggufDecoder, withinWindow } from './decoder.ts';

export interface QwenFields extends DecoderFields {
  /** Of layers from `max_window_layers` on, or of those that `layer_types` names. */
  readonly sliding_window: number | null;
  readonly max_window_layers: number;
  readonly layer_types?: readonly string[];
}

const metadata = (config: QwenFields) => {
  const { sliding_window, max_window_layers, layer_types, num_hidden_layers } = config;
  const isWindowed = layer_types?.includes('sliding_attention') ?? max_window_layers < num_hidden_layers;
  return withinWindow(config.max_position_embeddings, isWindowed ? sliding_window : null);
};

export const QWEN2_GGUF = ggufDecoder<QwenFields>({
  architecture: 'qwen2',
  type: 'qwen2',
  metadata,
  inBlock: () => ({
    'self_attn.q_proj.bias': 'attn_q.bias',
    'self_attn.k_proj.bias': 'attn_k.bias',
    'self_attn.v_proj.bias': 'attn_v.bias',
  }),
});

export const QWEN3_GGUF = ggufDecoder<QwenFields>({
  architecture: 'qwen3',
  type: 'qwen3',
  metadata,
  inBlock: () => ({
    'self_attn.q_norm.weight': 'attn_q_norm.weight',
    'self_attn.k_norm.weight': 'attn_k_norm.weight',
  }),
});
