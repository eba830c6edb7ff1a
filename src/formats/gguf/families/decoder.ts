// Llama and its descendants in GGUF: what their records share. They differ in the names of norms, in the order of the rows of q
// and k, and in what llama.cpp supports of windows.

import { HoldfastError } from '../../../util/errors.ts';
import { show } from '../../../util/json.ts';
import type { DecoderConfig, RopeScalingFields } from '../../families/decoder.ts';
import { f32, type MetadataValue, string, u32 } from '../header.ts';
import type { GGUFFamily, Keys, TensorRule } from './family.ts';

/** The fields of Hugging Face's configurations that are read here. */
export type DecoderFields = Readonly<DecoderConfig> & { readonly model_type: string };

/** What a family has of its own. */
interface Own<C> {
  readonly architecture: string;
  /** Hugging Face's, of what is read. */
  readonly type: string;
  /** Its own fields. */
  readonly fields?: (keys: Keys) => Readonly<Record<string, unknown>>;
  /** Keys beside those of all, or instead of them. */
  readonly metadata?: (config: C, from: string) => Readonly<Record<string, MetadataValue>>;
  /** Rules beside those of all, or instead of them. */
  readonly inBlock?: (config: C) => Readonly<Record<string, string | TensorRule>>;
  readonly outside?: Readonly<Record<string, string | TensorRule>>;
}

export const ggufDecoder = <C extends DecoderFields>(own: Own<C>): GGUFFamily<C> => ({
  architecture: own.architecture,
  metadata: (config, from) => ({
    vocab_size: u32(config.vocab_size),
    context_length: u32(config.max_position_embeddings),
    embedding_length: u32(config.hidden_size),
    block_count: u32(config.num_hidden_layers),
    feed_forward_length: u32(config.intermediate_size),
    'attention.head_count': u32(config.num_attention_heads),
    'attention.head_count_kv': u32(config.num_key_value_heads),
    'attention.key_length': u32(config.head_dim),
    'attention.value_length': u32(config.head_dim),
    'attention.layer_norm_rms_epsilon': f32(config.rms_norm_eps),
    'rope.dimension_count': u32(config.head_dim),
    'rope.freq_base': f32(config.rope_theta),
    ...(config.rope_scaling?.rope_type === 'linear' && {
      'rope.scaling.type': string('linear'),
      'rope.scaling.factor': f32(config.rope_scaling.factor),
    }),
    ...own.metadata?.(config, from),
  }),
  outside: {
    'model.embed_tokens.weight': 'token_embd.weight',
    'model.norm.weight': 'output_norm.weight',
    'lm_head.weight': 'output.weight',
    ...own.outside,
  },
  blocks: 'model.layers.',
  inBlock: (config) => ({
    'input_layernorm.weight': 'attn_norm.weight',
    'self_attn.q_proj.weight': 'attn_q.weight',
    'self_attn.k_proj.weight': 'attn_k.weight',
    'self_attn.v_proj.weight': 'attn_v.weight',
    'self_attn.o_proj.weight': 'attn_output.weight',
    'post_attention_layernorm.weight': 'ffn_norm.weight',
    'mlp.gate_proj.weight': 'ffn_gate.weight',
    'mlp.up_proj.weight': 'ffn_up.weight',
    'mlp.down_proj.weight': 'ffn_down.weight',
    ...own.inBlock?.(config),
  }),
  made: (config) => ropeFactors(config),
  config: (keys) => ({ ...fieldsOf(keys), model_type: own.type, ...own.fields?.(keys) }),
});

/** The fields that all have, as the keys say. */
function fieldsOf(keys: Keys): Readonly<Record<string, unknown>> {
  const [hidden_size, heads] = [keys.number('embedding_length'), keys.number('attention.head_count')];
  const head_dim = keys.number('attention.key_length', hidden_size / heads);
  const values = keys.number('attention.value_length', head_dim);
  if (values !== head_dim)
    keys.refuse(`attention.value_length is ${values}; it must be attention.key_length, ${head_dim}`);
  const rotated = keys.number('rope.dimension_count', head_dim);
  if (rotated !== head_dim)
    keys.refuse(`rope.dimension_count is ${rotated}; whole heads, of ${head_dim}, are rotated here`);
  const rope_theta = keys.real('rope.freq_base', 10000);
  const vocab_size = keys.shape('token_embd.weight')?.[0] ?? keys.number('vocab_size');
  if (keys.number('vocab_size', vocab_size) !== vocab_size)
    keys.refuse(`vocab_size is ${keys.number('vocab_size')}; token_embd.weight has ${vocab_size} rows`);
  return {
    vocab_size,
    max_position_embeddings: keys.number('context_length'),
    hidden_size,
    num_hidden_layers: keys.number('block_count'),
    intermediate_size: keys.number('feed_forward_length'),
    num_attention_heads: heads,
    num_key_value_heads: keys.number('attention.head_count_kv', heads),
    head_dim,
    rms_norm_eps: keys.real('attention.layer_norm_rms_epsilon'),
    rope_theta,
    ...scalingOf(keys, rope_theta, head_dim),
    tie_word_embeddings: keys.shape('output.weight') === undefined,
  };
}

/** Llama 3's own: the file has what comes of them alone. */
const LLAMA3_SCALING = { rope_type: 'llama3', low_freq_factor: 1, high_freq_factor: 4 } as const;
/** Positions of a first training: Llama 3's, and other powers of two. */
const FIRST_POSITIONS = [8192, ...Array.from({ length: 16 }, (_, i) => 2 ** (i + 5))];

function scalingOf(keys: Keys, rope_theta: number, head_dim: number): { rope_scaling?: RopeScalingFields } {
  const type = keys.text('rope.scaling.type', 'none');
  if (type !== 'none' && type !== 'linear')
    keys.refuse(`rope.scaling.type is ${show(type)}; supported: "none", "linear"`);
  const factor = keys.real('rope.scaling.factor', 1);
  if (type === 'linear' && factor !== 1) return { rope_scaling: { rope_type: 'linear', factor } };
  const factors = keys.values('rope_freqs.weight');
  if (!factors) return {};
  const most = factors.reduce((largest, each) => Math.max(largest, each), 1);
  const scalings = FIRST_POSITIONS.map((original_max_position_embeddings) => ({
    ...LLAMA3_SCALING,
    factor: most,
    original_max_position_embeddings,
  }));
  const rope_scaling = scalings.find((rope_scaling) => {
    const [expected] = ropeFactors({ rope_scaling, rope_theta, head_dim });
    return expected?.values.every((each, i) => Math.abs(each / (factors[i] ?? 0) - 1) < 1e-5);
  });
  if (!rope_scaling || factors.length !== head_dim / 2)
    return keys.refuse(
      'rope_freqs.weight has other factors than those of Llama 3, of a power of two of positions first; none else are read',
    );
  return { rope_scaling };
}

/**
 * Llama 3.1's slower rotations, as what llama.cpp divides each frequency by: 1 for those of more turns in the first training's context
 * than `high_freq_factor`, `factor` for those of fewer than `low_freq_factor`, in between what the shares of both come to.
 */
function ropeFactors({
  rope_scaling: scaling,
  rope_theta,
  head_dim,
}: Pick<DecoderFields, 'rope_scaling' | 'rope_theta' | 'head_dim'>) {
  if (scaling?.rope_type !== 'llama3') return [];
  const { factor, low_freq_factor: low, high_freq_factor: high, original_max_position_embeddings: positions } = scaling;
  const values = Float32Array.from({ length: head_dim / 2 }, (_, i) => {
    const turns = (positions * rope_theta ** ((-2 * i) / head_dim)) / (2 * Math.PI);
    const stays = Math.min(1, Math.max(0, (turns - low) / (high - low)));
    return 1 / ((1 - stays) / factor + stays);
  });
  return [{ name: 'rope_freqs.weight', values }];
}

/** For an architecture without windows: as far as a window reaches, all there is to see lies in it. */
export function withinWindow(
  context: number,
  window: number | null | undefined,
): Readonly<Record<string, MetadataValue>> {
  return { context_length: u32(Math.min(context, window ?? context)) };
}

/** The window's period: layer i has none where (i + 1) is a multiple. Errors: HoldfastError where layers are in no such order. */
export function windowPeriod(isFull: readonly boolean[], from: string): number {
  const periods = Array.from({ length: isFull.length + 1 }, (_, i) => i + 1);
  const found = periods.find((period) => isFull.every((full, i) => full === ((i + 1) % period === 0)));
  if (found !== undefined) return found;
  throw new HoldfastError(
    `${from}: layer_types has layers without a window in no regular distance; a GGUF file can only say every how many layers there is one`,
  );
}
