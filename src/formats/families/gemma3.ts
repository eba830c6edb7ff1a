// Gemma 3, of text alone, as a record: the decoder with most switches on. Layers of a window, with rotations of their own,
// and every sixth one that sees all. In Gemma's files `rope_scaling` is of the latter.

import { GEMMA3_GGUF } from '../gguf/families/gemma3.ts';
import {
  type DecoderConfig,
  decoderFamily,
  LAYER_TYPES,
  type LayerType,
  newDecoder,
  parseDecoder,
  parseRope,
  parseScaling,
  ropeOf,
} from './decoder.ts';
import type { Fields } from './fields.ts';

/** Gemma 3 without images, by the field names of Hugging Face. */
export interface Gemma3Config extends DecoderConfig {
  /** The family. */
  model_type: 'gemma3_text';
  /** GeGLU's, in the tanh form. */
  hidden_activation: 'gelu_pytorch_tanh';
  /** Scores are divided by its root. @default 256 */
  query_pre_attn_scalar: number;
  /** Tokens that a query sees in layers that have a window, its own among them. @default 4096 */
  sliding_window: number;
  /** Layers have a window, but for those whose number, from 1, is a multiple of this. @default 6 */
  sliding_window_pattern: number;
  /** Which layers have one. @default those of sliding_window_pattern */
  layer_types?: readonly LayerType[];
  /** The base of the rotations in layers that have one. @default 10000 */
  rope_local_base_freq: number;
  /** Logits are squashed into this and its negative by tanh. @default null: they are not */
  final_logit_softcapping: number | null;
}

type Ropes = Pick<Gemma3Config, 'rope_theta' | 'rope_scaling' | 'rope_local_base_freq'>;

/** Transformers 5 describes the rotations of each kind of layers by themselves, earlier ones those of windows by one base. */
function parseRopes(fields: Fields): Ropes {
  const both = fields.has('rope_parameters') ? fields.inside('rope_parameters') : undefined;
  if (!both?.has('full_attention') || !both.has('sliding_attention'))
    return { ...parseRope(fields, 1e6), rope_local_base_freq: fields.positive('rope_local_base_freq', 1e4) };
  const [full, sliding] = [both.inside('full_attention'), both.inside('sliding_attention')];
  sliding.only('rope_type', ['default'], 'default');
  const rope_scaling = parseScaling(full);
  return {
    rope_theta: full.positive('rope_theta', 1e6),
    ...(rope_scaling && { rope_scaling }),
    rope_local_base_freq: sliding.positive('rope_theta', 1e4),
  };
}

export const GEMMA3 = decoderFamily<Gemma3Config>({
  label: 'Gemma 3',
  architecture: () => 'Gemma3ForCausalLM',
  parse(fields) {
    const { rope_local_base_freq, ...rope } = parseRopes(fields);
    const decoder = parseDecoder(fields, {
      ...{ vocab_size: 262208, max_position_embeddings: 131072, hidden_size: 2304, intermediate_size: 9216 },
      ...{ num_hidden_layers: 26, num_attention_heads: 8, num_key_value_heads: 4, head_dim: 256 },
      ...{ tie_word_embeddings: true, rope },
    });
    const layer_types = fields.items('layer_types', LAYER_TYPES, decoder.num_hidden_layers);
    const softcap = fields.has('final_logit_softcapping') ? fields.positive('final_logit_softcapping') : null;
    return {
      model_type: 'gemma3_text',
      ...decoder,
      hidden_activation: fields.only('hidden_activation', ['gelu_pytorch_tanh'], 'gelu_pytorch_tanh'),
      query_pre_attn_scalar: fields.positive('query_pre_attn_scalar', 256),
      sliding_window: fields.count('sliding_window', 4096),
      sliding_window_pattern: fields.count('sliding_window_pattern', fields.count('_sliding_window_pattern', 6)),
      ...(layer_types && { layer_types }),
      rope_local_base_freq,
      final_logit_softcapping: softcap,
    };
  },
  harmless: [],
  design(config) {
    const { sliding_window: window, sliding_window_pattern: pattern, layer_types } = config;
    const isFull = (i: number) => (layer_types ? layer_types[i] === 'full_attention' : (i + 1) % pattern === 0);
    return {
      ...{ headNorms: true, outputNorms: true, gainsFromOne: true, activation: 'gelu' },
      embeddingScale: Math.sqrt(config.hidden_size),
      attentionScale: config.query_pre_attn_scalar ** -0.5,
      softcap: config.final_logit_softcapping ?? undefined,
      attention: (i) =>
        isFull(i) ? { rope: ropeOf(config) } : { window, rope: { theta: config.rope_local_base_freq } },
    };
  },
  fromShape(shape) {
    const head_dim = shape.width / shape.heads;
    return { ...newDecoder(shape), head_dim, query_pre_attn_scalar: head_dim };
  },
  gguf: GEMMA3_GGUF,
});
