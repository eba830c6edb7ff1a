// Records of Llama and its descendants, as far as they are alike: their configuration by Hugging Face's field names,
// the sizes of their tensors, how these are called in files. What tells one from another is its design: switches, for
// its tensors here and for the one forward pass of all of them (nn/decoder.ts). Fields that change nothing here are
// dropped, the dropout rates among them.

import type { GateActivation } from '../../kernels/gated.ts';
import type { RopeScaling } from '../../kernels/rope.ts';
import type { Family, FamilyShape, TensorShape } from './family.ts';
import type { Fields } from './fields.ts';

/** What the configurations of all decoders of Llama's kind have, by the field names of Hugging Face. */
export interface DecoderConfig {
  /** Tokens in the vocabulary: V. */
  vocab_size: number;
  /** The longest T. */
  max_position_embeddings: number;
  /** Width of the residual stream: C. */
  hidden_size: number;
  /** Width of the MLP. */
  intermediate_size: number;
  /** Blocks: L. */
  num_hidden_layers: number;
  /** NH, a multiple of num_key_value_heads. */
  num_attention_heads: number;
  /** Heads of keys and values: NKV. */
  num_key_value_heads: number;
  /** HS, even; NH * HS may differ from C. */
  head_dim: number;
  /** Added to mean squares. @default 1e-6 */
  rms_norm_eps: number;
  /** The base of the rotations' wavelengths. */
  rope_theta: number;
  /** How the rotations are slowed down, for longer contexts than the first training's. @default they are not */
  rope_scaling?: RopeScalingFields;
  /** Standard deviation of new weights. @default 0.02 */
  initializer_range: number;
  /** Whether the head is the embedding. */
  tie_word_embeddings: boolean;
}

/** `rope_scaling`, of the kinds that are there. */
export type RopeScalingFields =
  | { rope_type: 'linear'; factor: number }
  | {
      rope_type: 'llama3';
      factor: number;
      low_freq_factor: number;
      high_freq_factor: number;
      original_max_position_embeddings: number;
    };

/** Rotations in a configuration. */
type RopeFields = Pick<DecoderConfig, 'rope_theta' | 'rope_scaling'>;

/** What a layer's queries see, in `layer_types`: every token before, or a window of them. */
export type LayerType = 'full_attention' | 'sliding_attention';

export const LAYER_TYPES: readonly LayerType[] = ['full_attention', 'sliding_attention'];

/** How a layer attends. */
export interface LayerAttention {
  /** Tokens that a query sees, its own among them. @default every one before */
  readonly window?: number | undefined;
  readonly rope: { readonly theta: number; readonly scaling?: RopeScaling | undefined };
}

/** What tells a decoder from Llama: of one configuration, since fields switch some of it. */
export interface DecoderDesign {
  /** Biases of the projections to q, k and v. @default false */
  readonly qkvBiases?: boolean;
  /** A norm over each head of q and of k, before the rotation. @default false */
  readonly headNorms?: boolean;
  /** A norm behind attention and behind the MLP as well, before they are added to the residual stream. @default false */
  readonly outputNorms?: boolean;
  /** The gains of norms are stored as differences from 1. @default false */
  readonly gainsFromOne?: boolean;
  /** What the MLP applies to its gate. @default 'silu' */
  readonly activation?: GateActivation;
  /** What embeddings are multiplied by. @default 1 */
  readonly embeddingScale?: number;
  /** What scores are multiplied by. @default 1 / sqrt(HS) */
  readonly attentionScale?: number;
  /** Logits are softcap * tanh(z / softcap). @default they are z */
  readonly softcap?: number | undefined;
  /** How layer `i` attends. */
  attention(i: number): LayerAttention;
}

/** The defaults of a family's fields, where they are not those of all. */
export interface DecoderDefaults {
  vocab_size: number;
  max_position_embeddings: number;
  hidden_size: number;
  intermediate_size: number;
  num_hidden_layers: number;
  num_attention_heads: number;
  /** @default as many as heads */
  num_key_value_heads?: number;
  /** @default hidden_size / num_attention_heads */
  head_dim?: number;
  /** @default what `rope_theta` and `rope_scaling` say, or `rope_parameters` */
  rope?: RopeFields;
  /** @default false */
  tie_word_embeddings?: boolean;
}

/** The fields that all have. Errors: HoldfastError naming one. */
export function parseDecoder(fields: Fields, defaults: DecoderDefaults): DecoderConfig {
  fields.only('attention_bias', [false], false);
  const hidden_size = fields.count('hidden_size', defaults.hidden_size);
  const num_attention_heads = fields.count('num_attention_heads', defaults.num_attention_heads);
  const num_key_value_heads = fields.count('num_key_value_heads', defaults.num_key_value_heads ?? num_attention_heads);
  fields.divides('num_key_value_heads', num_key_value_heads, 'num_attention_heads', num_attention_heads);
  const isDerived = !fields.has('head_dim') && defaults.head_dim === undefined;
  if (isDerived) fields.divides('num_attention_heads', num_attention_heads, 'hidden_size', hidden_size);
  const head_dim = fields.count('head_dim', defaults.head_dim ?? hidden_size / num_attention_heads);
  if (head_dim % 2 !== 0) {
    const origin = isDerived ? ' (hidden_size / num_attention_heads)' : '';
    fields.refuse(`head_dim is ${head_dim}${origin}; rotary embeddings need an even one, for example ${head_dim + 1}`);
  }
  return {
    vocab_size: fields.count('vocab_size', defaults.vocab_size),
    max_position_embeddings: fields.count('max_position_embeddings', defaults.max_position_embeddings),
    hidden_size,
    intermediate_size: fields.count('intermediate_size', defaults.intermediate_size),
    num_hidden_layers: fields.count('num_hidden_layers', defaults.num_hidden_layers),
    num_attention_heads,
    num_key_value_heads,
    head_dim,
    rms_norm_eps: fields.positive('rms_norm_eps', 1e-6),
    ...(defaults.rope ?? parseRope(fields, 10000)),
    initializer_range: fields.positive('initializer_range', 0.02),
    tie_word_embeddings: fields.only('tie_word_embeddings', [true, false], defaults.tie_word_embeddings ?? false),
  };
}

/**
 * Where RoPE is described: Transformers 5 writes `rope_parameters: {rope_type, rope_theta}`, earlier ones `rope_theta` and,
 * for other kinds, `rope_scaling: {type}` or `{rope_type}`; it reads them all, and so do we.
 */
export function parseRope(fields: Fields, fallback: number): RopeFields {
  const described = (['rope_parameters', 'rope_scaling'] as const).filter((name) => fields.has(name));
  const outer = { rope_theta: fields.positive('rope_theta', fallback) };
  return described.reduceRight<RopeFields>((rope, name) => {
    const inside = fields.inside(name);
    // One for each kind of layer.
    for (const key of ['full_attention', 'sliding_attention']) inside.neutral(key, []);
    const rope_scaling = parseScaling(inside) ?? rope.rope_scaling;
    return { rope_theta: inside.positive('rope_theta', rope.rope_theta), ...(rope_scaling && { rope_scaling }) };
  }, outer);
}

const ROPE_TYPES = ['default', 'linear', 'llama3'] as const;

/** Undefined for rotations as they are. */
export function parseScaling(rope: Fields): RopeScalingFields | undefined {
  const older = rope.only('type', ROPE_TYPES, 'default');
  const rope_type = rope.only('rope_type', ROPE_TYPES, older);
  if (rope.has('type')) rope.only('type', [rope_type]);
  for (const key of ['attention_factor', 'partial_rotary_factor']) rope.neutral(key, [1]);
  if (rope_type === 'default') {
    rope.neutral('factor', [1]);
    return undefined;
  }
  const factor = rope.positive('factor');
  if (rope_type === 'linear') return { rope_type, factor };
  const low_freq_factor = rope.positive('low_freq_factor');
  const high_freq_factor = rope.positive('high_freq_factor');
  if (high_freq_factor <= low_freq_factor)
    rope.refuse(`high_freq_factor is ${high_freq_factor}; it must be above low_freq_factor (${low_freq_factor})`);
  const original_max_position_embeddings = rope.count('original_max_position_embeddings');
  return { rope_type, factor, low_freq_factor, high_freq_factor, original_max_position_embeddings };
}

/** The rotations that a configuration describes. */
export function ropeOf({ rope_theta: theta, rope_scaling: fields }: DecoderConfig): LayerAttention['rope'] {
  if (!fields) return { theta };
  const { factor } = fields;
  if (fields.rope_type === 'linear') return { theta, scaling: { kind: 'linear', factor } };
  const { low_freq_factor: low, high_freq_factor: high, original_max_position_embeddings: positions } = fields;
  return { theta, scaling: { kind: 'llama3', factor, low, high, positions } };
}

/** The fields of a new model: the others have their defaults. */
export const newDecoder = ({ layers, width, heads, kvHeads, context, vocabulary, tied }: FamilyShape) => ({
  vocab_size: vocabulary,
  hidden_size: width,
  // Two thirds of 4 * width, as a gated MLP has three matrices where GPT-2's has two; a multiple of 8.
  intermediate_size: Math.ceil((8 * width) / 3 / 8) * 8,
  num_hidden_layers: layers,
  num_attention_heads: heads,
  num_key_value_heads: kvHeads,
  max_position_embeddings: context,
  tie_word_embeddings: tied,
});

/** A family of decoders: its record, and its design. */
export interface DecoderFamily<C extends DecoderConfig> extends Family<C> {
  design(config: C): DecoderDesign;
}

type Own<C extends DecoderConfig> = Pick<
  DecoderFamily<C>,
  'label' | 'architecture' | 'parse' | 'harmless' | 'design' | 'fromShape' | 'gguf'
>;

/** The record of a family: what all have beside its own. */
export const decoderFamily = <C extends DecoderConfig>(own: Own<C>): DecoderFamily<C> => ({
  ...own,
  writes: true,
  groupedHeads: true,
  shape: (config) => ({
    layers: config.num_hidden_layers,
    width: config.hidden_size,
    vocabulary: config.vocab_size,
    classes: config.vocab_size,
    context: config.max_position_embeddings,
    heads: config.num_attention_heads,
    kvHeads: config.num_key_value_heads,
    headSize: config.head_dim,
  }),
  tensors(config) {
    const { hidden_size: C, intermediate_size: inner, vocab_size: V, tie_word_embeddings: tied, head_dim: HS } = config;
    const { qkvBiases, headNorms, outputNorms } = own.design(config);
    const q = config.num_attention_heads * HS;
    const kv = config.num_key_value_heads * HS;
    const switched: TensorShape[] = [];
    if (qkvBiases) switched.push([q], [kv], [kv]);
    if (headNorms) switched.push([HS], [HS]);
    if (outputNorms) switched.push([C], [C]);
    return {
      layersField: 'num_hidden_layers',
      block: [[C], [q, C], [kv, C], [kv, C], [C, q], [C], [inner, C], [inner, C], [C, inner], ...switched],
      rest: [[V, C], [C], ...(tied ? [] : [[V, C] as const])],
    };
  },
  linears: {
    ...{ q_proj: 'columns', k_proj: 'columns', v_proj: 'columns', o_proj: 'rows' },
    ...{ gate_proj: 'columns', up_proj: 'columns', down_proj: 'rows' },
  },
  stored: {
    prefix: '',
    // The frequencies of rotations.
    buffers: /^(?:model\.)?(?:layers\.\d+\.self_attn\.)?rotary_emb\.inv_freq$/,
    head: 'lm_head.weight',
    embedding: 'model.embed_tokens.weight',
  },
});
