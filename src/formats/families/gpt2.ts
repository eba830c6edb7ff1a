// GPT-2 as a record: its configuration by Hugging Face's field names, and the facts that follow from it. Not its forward
// pass (nn/gpt2.ts). Fields that change nothing here are dropped, the dropout rates among them.

import { GPT2_GGUF } from '../gguf/families/gpt2.ts';
import type { Family } from './family.ts';
import type { Fields } from './fields.ts';

/** GPT-2, by the field names of Hugging Face. */
export interface GPT2Config {
  /** The family. */
  model_type: 'gpt2';
  /** Tokens in the vocabulary: V. */
  vocab_size: number;
  /** The longest T. */
  n_positions: number;
  /** C, a multiple of n_head. */
  n_embd: number;
  /** Blocks: L. */
  n_layer: number;
  /** Heads: NH. */
  n_head: number;
  /** Width of the MLP; `null` in a file means 4 * n_embd and is resolved. */
  n_inner: number;
  /** Two names for the tanh approximation of GELU. */
  activation_function: 'gelu_new' | 'gelu_pytorch_tanh';
  /** Added to variances. @default 1e-5 */
  layer_norm_epsilon: number;
  /** Standard deviation of new weights. @default 0.02 */
  initializer_range: number;
  /** Whether the head is the embedding. @default true */
  tie_word_embeddings: boolean;
}

function parseGPT2(fields: Fields): GPT2Config {
  fields.only('scale_attn_weights', [true], true);
  fields.only('scale_attn_by_inverse_layer_idx', [false], false);
  fields.neutral('n_special', [0]);
  const n_embd = fields.count('n_embd', 768);
  const n_head = fields.count('n_head', 12);
  fields.divides('n_head', n_head, 'n_embd', n_embd);
  const sizes = {
    n_positions: fields.count('n_positions', 1024),
    n_embd,
    n_layer: fields.count('n_layer', 12),
    n_head,
  };
  // As other families call them: Transformers takes either name.
  fields.neutral('max_position_embeddings', [sizes.n_positions]);
  fields.neutral('hidden_size', [n_embd]);
  fields.neutral('num_hidden_layers', [sizes.n_layer]);
  fields.neutral('num_attention_heads', [n_head]);
  return {
    model_type: 'gpt2',
    vocab_size: fields.count('vocab_size', 50257),
    ...sizes,
    n_inner: fields.count('n_inner', 4 * n_embd),
    activation_function: fields.only('activation_function', ['gelu_new', 'gelu_pytorch_tanh'], 'gelu_new'),
    layer_norm_epsilon: fields.positive('layer_norm_epsilon', 1e-5),
    initializer_range: fields.positive('initializer_range', 0.02),
    tie_word_embeddings: fields.only('tie_word_embeddings', [true, false], true),
  };
}

export const GPT2: Family<GPT2Config> = {
  label: 'GPT-2',
  architecture: () => 'GPT2LMHeadModel',
  writes: true,
  groupedHeads: false,
  parse: parseGPT2,
  harmless: [
    ...['n_ctx', 'reorder_and_upcast_attn', 'attn_pdrop', 'embd_pdrop', 'resid_pdrop'],
    // Of a first training with tokens of its own, which `n_special` counts.
    'predict_special_tokens',
    // Of a head that sums a sequence up.
    ...['summary_type', 'summary_use_proj', 'summary_activation', 'summary_first_dropout', 'summary_proj_to_labels'],
  ],
  shape: ({ n_layer: layers, n_embd: width, n_head: heads, n_positions: context, vocab_size: vocabulary }) => ({
    ...{ layers, width, vocabulary, context, classes: vocabulary },
    ...{ heads, kvHeads: heads, headSize: width / heads },
  }),
  fromShape: ({ layers, width, heads, context, vocabulary }) => ({
    ...{ vocab_size: vocabulary, n_layer: layers, n_embd: width, n_head: heads, n_positions: context },
  }),
  tensors({ n_embd: C, n_inner: inner, n_positions: S, vocab_size: V, tie_word_embeddings: tied }) {
    return {
      layersField: 'n_layer',
      block: [[C], [C], [C, 3 * C], [3 * C], [C, C], [C], [C], [C], [C, inner], [inner], [inner, C], [C]],
      rest: [[V, C], [S, C], [C], [C], ...(tied ? [] : [[V, C] as const])],
    };
  },
  linears: { 'attn.c_attn': { columns: 3 }, 'attn.c_proj': 'rows', 'mlp.c_fc': 'columns', 'mlp.c_proj': 'rows' },
  stored: {
    prefix: 'transformer.',
    // Causal masks.
    buffers: /^h\.\d+\.attn\.(?:masked_)?bias$/,
    head: 'lm_head.weight',
    embedding: 'wte.weight',
  },
  gguf: GPT2_GGUF,
};
