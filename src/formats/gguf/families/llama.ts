// Llama 1 to 3 and Mistral in GGUF, one architecture there: the rows of q and k are in pairs, and there are no windows.

import { type DecoderFields, ggufDecoder, withinWindow } from './decoder.ts';
import type { TensorRule } from './family.ts';

const paired = (name: string, heads: number): TensorRule => ({ name, arrangement: { kind: 'paired', heads } });

const inBlock = (config: DecoderFields) => ({
  'self_attn.q_proj.weight': paired('attn_q.weight', config.num_attention_heads),
  'self_attn.k_proj.weight': paired('attn_k.weight', config.num_key_value_heads),
});

export const LLAMA_GGUF = ggufDecoder<DecoderFields>({ architecture: 'llama', type: 'llama', inBlock });

export interface MistralFields extends DecoderFields {
  readonly sliding_window: number | null;
}

export const MISTRAL_GGUF = ggufDecoder<MistralFields>({
  architecture: 'llama',
  // What the file says is a Llama.
  type: 'llama',
  inBlock,
  metadata: (config) => withinWindow(config.max_position_embeddings, config.sliding_window),
});
