// Gemma 3, of text, in GGUF: gains are counted from 0 there, windows have their own rotations. llama.cpp scales scores by the
// size of a head (in the model of 62 layers by the width of all), whatever the configuration says.

import { HoldfastError } from '../../../util/errors.ts';
import { f32, type MetadataValue, u32 } from '../header.ts';
import { type DecoderFields, ggufDecoder, windowPeriod } from './decoder.ts';
import type { TensorRule } from './family.ts';

export interface Gemma3Fields extends DecoderFields {
  readonly query_pre_attn_scalar: number;
  readonly sliding_window: number;
  readonly sliding_window_pattern: number;
  readonly layer_types?: readonly string[];
  readonly rope_local_base_freq: number;
  readonly final_logit_softcapping: number | null;
}

/** Those of Gemma 3 27B, for which llama.cpp has a scale of its own. */
const LAYERS_27B = 62;

const gain = (name: string): TensorRule => ({ name, arrangement: { kind: 'plus one' } });

export const GEMMA3_GGUF = ggufDecoder<Gemma3Fields>({
  architecture: 'gemma3',
  type: 'gemma3_text',
  fields(keys) {
    const [layers, heads] = [keys.number('block_count'), keys.number('attention.head_count')];
    const width = keys.number('embedding_length');
    const softcap = keys.real('final_logit_softcapping', 0);
    return {
      query_pre_attn_scalar: layers === LAYERS_27B ? width / heads : keys.number('attention.key_length', width / heads),
      sliding_window: keys.number('attention.sliding_window'),
      sliding_window_pattern: keys.number('attention.sliding_window_pattern', 6),
      rope_local_base_freq: keys.real('rope.freq_base_swa', 10000),
      ...(softcap !== 0 && { final_logit_softcapping: softcap }),
    };
  },
  metadata(config, from): Readonly<Record<string, MetadataValue>> {
    const { num_hidden_layers: layers, sliding_window_pattern: pattern, layer_types } = config;
    const scalar = layers === LAYERS_27B ? config.hidden_size / config.num_attention_heads : config.head_dim;
    if (config.query_pre_attn_scalar !== scalar) {
      throw new HoldfastError(
        `${from}: query_pre_attn_scalar is ${config.query_pre_attn_scalar}; a GGUF file cannot say it, llama.cpp takes ${scalar}`,
      );
    }
    const isFull = Array.from({ length: layers }, (_, i) =>
      layer_types ? layer_types[i] === 'full_attention' : (i + 1) % pattern === 0,
    );
    return {
      'attention.sliding_window': u32(config.sliding_window),
      'attention.sliding_window_pattern': u32(windowPeriod(isFull, from)),
      'rope.freq_base_swa': f32(config.rope_local_base_freq),
      ...(config.final_logit_softcapping !== null && {
        final_logit_softcapping: f32(config.final_logit_softcapping),
      }),
    };
  },
  outside: { 'model.norm.weight': gain('output_norm.weight') },
  inBlock: () => ({
    'input_layernorm.weight': gain('attn_norm.weight'),
    'self_attn.q_norm.weight': gain('attn_q_norm.weight'),
    'self_attn.k_norm.weight': gain('attn_k_norm.weight'),
    'post_attention_layernorm.weight': gain('post_attention_norm.weight'),
    'pre_feedforward_layernorm.weight': gain('ffn_norm.weight'),
    'post_feedforward_layernorm.weight': gain('post_ffw_norm.weight'),
  }),
});
