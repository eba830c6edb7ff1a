// Records of BERT and ViT, as far as they are alike: the configuration of the original Transformer's encoder, by
// Hugging Face's field names, and how ranks share its blocks.

import type { LinearLayout } from './family.ts';
import type { Fields } from './fields.ts';

/** An encoder's blocks, by the field names of Hugging Face. */
export interface EncoderConfig {
  /** Width of the residual stream: C, a multiple of num_attention_heads. */
  hidden_size: number;
  /** Width of the MLP. */
  intermediate_size: number;
  /** Blocks: L. */
  num_hidden_layers: number;
  /** NH. */
  num_attention_heads: number;
  /** GELU by erf. */
  hidden_act: 'gelu';
  /** Added to variances. @default 1e-12 */
  layer_norm_eps: number;
  /** Standard deviation of new weights. @default 0.02 */
  initializer_range: number;
}

/** Of the linears of a block. */
export const ENCODER_LINEARS: LinearLayout = {
  ...{ query: 'columns', key: 'columns', value: 'columns', 'attention.output.dense': 'rows' },
  ...{ 'intermediate.dense': 'columns', 'output.dense': 'rows' },
};

/** Errors: HoldfastError for a field that is wrong or not supported. */
export function parseEncoder(fields: Fields): EncoderConfig {
  const hidden_size = fields.count('hidden_size', 768);
  const num_attention_heads = fields.count('num_attention_heads', 12);
  fields.divides('num_attention_heads', num_attention_heads, 'hidden_size', hidden_size);
  return {
    hidden_size,
    intermediate_size: fields.count('intermediate_size', 3072),
    num_hidden_layers: fields.count('num_hidden_layers', 12),
    num_attention_heads,
    hidden_act: fields.only('hidden_act', ['gelu'], 'gelu'),
    layer_norm_eps: fields.positive('layer_norm_eps', 1e-12),
    initializer_range: fields.positive('initializer_range', 0.02),
  };
}
