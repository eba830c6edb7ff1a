// Hugging Face config.json for GPT-2 and Llama: field names and defaults are theirs.
//
// Not a model: shapes only. Fields that change nothing here are dropped (architectures, torch_dtype, token
// ids, and the dropout rates: Holdfast trains without dropout, whatever a file says).
// Invariant: a config that parseConfig() returns is complete, consistent, and one that we can compute. A field that would
// make the model compute something else is never dropped: it is refused by name (NEUTRAL, and where it is read).

import { HoldfastError } from '../util/errors.ts';

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

/** Llama, by the field names of Hugging Face. */
export interface LlamaConfig {
  /** The family. */
  model_type: 'llama';
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
  /** SwiGLU's. */
  hidden_act: 'silu';
  /** Added to mean squares. @default 1e-6 */
  rms_norm_eps: number;
  /** The base of the rotations' wavelengths. @default 10000 */
  rope_theta: number;
  /** Standard deviation of new weights. @default 0.02 */
  initializer_range: number;
  /** Whether the head is the embedding. @default false */
  tie_word_embeddings: boolean;
}

/** The configuration of a model: what its `model_type` says. */
export type ModelConfig = GPT2Config | LlamaConfig;

/** A parsed config.json with defaults filled in. `name` is for messages. Errors: HoldfastError per field. */
export function parseConfig(json: unknown, name: string): ModelConfig {
  if (typeof json !== 'object' || json === null || Array.isArray(json)) {
    throw new HoldfastError(`${name}: is ${show(json)}, not an object; expected a Hugging Face config.json`);
  }
  const fields = new Fields(json as Record<string, unknown>, name);
  const type = fields.only('model_type', ['gpt2', 'llama'] as const);
  return type === 'gpt2' ? parseGPT2(fields) : parseLlama(fields);
}

function parseGPT2(fields: Fields): GPT2Config {
  fields.only('scale_attn_weights', [true], true);
  fields.only('scale_attn_by_inverse_layer_idx', [false], false);
  fields.only('add_cross_attention', [false], false);
  const n_embd = fields.count('n_embd', 768);
  const n_head = fields.count('n_head', 12);
  fields.divides('n_head', n_head, 'n_embd', n_embd);
  const n_positions = fields.count('n_positions', 1024);
  refuseOthers(fields, n_positions, n_embd / n_head);
  return {
    model_type: 'gpt2',
    vocab_size: fields.count('vocab_size', 50257),
    n_positions,
    n_embd,
    n_layer: fields.count('n_layer', 12),
    n_head,
    n_inner: fields.count('n_inner', 4 * n_embd),
    activation_function: fields.only('activation_function', ['gelu_new', 'gelu_pytorch_tanh'], 'gelu_new'),
    layer_norm_epsilon: fields.positive('layer_norm_epsilon', 1e-5),
    initializer_range: fields.positive('initializer_range', 0.02),
    tie_word_embeddings: fields.only('tie_word_embeddings', [true, false], true),
  };
}

function parseLlama(fields: Fields): LlamaConfig {
  fields.only('attention_bias', [false], false);
  fields.only('mlp_bias', [false], false);
  const hidden_size = fields.count('hidden_size', 4096);
  const num_attention_heads = fields.count('num_attention_heads', 32);
  const num_key_value_heads = fields.count('num_key_value_heads', num_attention_heads);
  fields.divides('num_key_value_heads', num_key_value_heads, 'num_attention_heads', num_attention_heads);
  if (!fields.has('head_dim')) fields.divides('num_attention_heads', num_attention_heads, 'hidden_size', hidden_size);
  const head_dim = fields.count('head_dim', hidden_size / num_attention_heads);
  if (head_dim % 2 !== 0) {
    const origin = fields.has('head_dim') ? '' : ' (hidden_size / num_attention_heads)';
    fields.refuse(`head_dim is ${head_dim}${origin}; rotary embeddings need an even one, for example ${head_dim + 1}`);
  }
  const max_position_embeddings = fields.count('max_position_embeddings', 2048);
  refuseOthers(fields, max_position_embeddings, head_dim);
  return {
    model_type: 'llama',
    vocab_size: fields.count('vocab_size', 32000),
    max_position_embeddings,
    hidden_size,
    intermediate_size: fields.count('intermediate_size', 11008),
    num_hidden_layers: fields.count('num_hidden_layers', 32),
    num_attention_heads,
    num_key_value_heads,
    head_dim,
    hidden_act: fields.only('hidden_act', ['silu'], 'silu'),
    rms_norm_eps: fields.positive('rms_norm_eps', 1e-6),
    rope_theta: parseTheta(fields),
    initializer_range: fields.positive('initializer_range', 0.02),
    tie_word_embeddings: fields.only('tie_word_embeddings', [true, false], false),
  };
}

/**
 * Fields of other architectures that files of these two are seen with, and the values at which they change nothing.
 * Transformers ignores them in these two; but where one is active, the weights were most likely trained with it.
 */
const NEUTRAL: Readonly<Record<string, readonly unknown[]>> = {
  is_causal: [true],
  use_bidirectional_attention: [false],
  // Granite, Cohere, MiniCPM.
  embedding_multiplier: [1],
  residual_multiplier: [1],
  logits_scaling: [1],
  logit_scale: [1],
  scale_emb: [1],
  scale_depth: [],
  // Gemma, Grok.
  attn_logit_softcapping: [],
  final_logit_softcapping: [],
  // OLMo, Phi, GPT-NeoX.
  clip_qkv: [],
  qk_layernorm: [false],
  use_qk_norm: [false],
  partial_rotary_factor: [1],
  rotary_pct: [1],
  rope_interleaved: [false],
  // SmolLM3, Llama 4.
  no_rope_layer_interval: [0],
  // Mixtral, Qwen.
  num_local_experts: [0, 1],
  num_experts: [0, 1],
  // Weights of other types, or packed.
  quantization_config: [],
};

/** Errors: HoldfastError for a field that would make attention or anything else compute what it does not here. */
function refuseOthers(fields: Fields, positions: number, headSize: number): void {
  for (const [field, values] of Object.entries(NEUTRAL)) fields.neutral(field, values);
  // A window as long as the context, or one that is switched off, hides nothing.
  const window = fields.count('sliding_window', positions);
  if (window < positions && fields.only('use_sliding_window', [true, false], true)) {
    fields.refuse(
      `sliding_window is ${window}, shorter than the context of ${positions}; supported: none, or with use_sliding_window false`,
    );
  }
  fields.every('layer_types', ['full_attention']);
  fields.every('no_rope_layers', [1]);
  fields.neutral('attention_multiplier', [headSize ** -0.5]);
  fields.neutral('query_pre_attn_scalar', [headSize]);
}

/**
 * Where RoPE is described: Transformers 5 writes `rope_parameters: {rope_type, rope_theta}`, earlier ones `rope_theta` and,
 * for other kinds, `rope_scaling: {type}` or `{rope_type}`; it reads them all, and so do we.
 */
function parseTheta(fields: Fields): number {
  const theta = fields.positive('rope_theta', 10000);
  const described = (['rope_parameters', 'rope_scaling'] as const).filter((name) => fields.has(name));
  return described.reduceRight((outer, name) => {
    const rope = fields.inside(name);
    for (const key of ['rope_type', 'type']) rope.only(key, ['default'], 'default');
    for (const key of ['factor', 'attention_factor', 'partial_rotary_factor']) rope.neutral(key, [1]);
    // One for each kind of layer.
    for (const key of ['full_attention', 'sliding_attention']) rope.neutral(key, []);
    return rope.positive('rope_theta', outer);
  }, theta);
}

/** Typed access to one JSON object. A field that is absent or null has its default, as in Transformers. */
class Fields {
  readonly #json: Readonly<Record<string, unknown>>;
  readonly #name: string;
  readonly #prefix: string;

  constructor(json: Readonly<Record<string, unknown>>, name: string, prefix = '') {
    this.#json = json;
    this.#name = name;
    this.#prefix = prefix;
  }

  has(field: string): boolean {
    return (this.#json[field] ?? undefined) !== undefined;
  }

  /** A whole number above 0. */
  count(field: string, fallback: number): number {
    const value = this.#json[field] ?? fallback;
    if (Number.isSafeInteger(value) && (value as number) > 0) return value as number;
    return this.refuse(`${this.#prefix}${field} is ${show(value)}; it must be a whole number above 0`);
  }

  /** A finite number above 0. */
  positive(field: string, fallback: number): number {
    const value = this.#json[field] ?? fallback;
    if (Number.isFinite(value) && (value as number) > 0) return value as number;
    return this.refuse(`${this.#prefix}${field} is ${show(value)}; it must be a number above 0`);
  }

  /** One of the supported values. */
  only<T>(field: string, supported: readonly T[], fallback?: T): T {
    const value = this.#json[field] ?? fallback;
    const found = supported.find((item) => item === value);
    if (found !== undefined) return found;
    return this.refuse(`${this.#prefix}${field} is ${show(value)}; supported: ${supported.map(show).join(', ')}`);
  }

  /** Checks that a field which is not supported is absent, null, or has a value that changes nothing. */
  neutral(field: string, values: readonly unknown[]): void {
    const value = this.#json[field] ?? undefined;
    const isNear = (item: unknown) =>
      item === value || (typeof item === 'number' && typeof value === 'number' && Math.abs(value / item - 1) < 1e-6);
    if (value === undefined || values.some(isNear)) return;
    this.refuse(`${this.#prefix}${field} is ${show(value)}; supported: ${[...values, null].map(show).join(', ')}`);
  }

  /** Checks that such a field, a list with an item for each layer, has none but these. */
  every(field: string, supported: readonly unknown[]): void {
    const value = this.#json[field] ?? [];
    if (!Array.isArray(value)) this.refuse(`${this.#prefix}${field} is ${show(value)}; it must be a list`);
    const other = (value as unknown[]).find((item) => !supported.includes(item));
    if (other === undefined) return;
    this.refuse(`${this.#prefix}${field} has ${show(other)} in it; supported: ${supported.map(show).join(', ')}`);
  }

  /** Checks that one field's value divides another's. */
  divides(small: string, divisor: number, large: string, value: number): void {
    if (value % divisor === 0) return;
    const works = Math.max(1, Math.round(value / divisor)) * divisor;
    this.refuse(`${large} is ${value}, not a multiple of ${small} (${divisor}); ${works} would work`);
  }

  inside(field: string): Fields {
    const value = this.#json[field];
    if (typeof value === 'object' && value !== null && !Array.isArray(value)) {
      return new Fields(value as Record<string, unknown>, this.#name, `${field}.`);
    }
    return this.refuse(`${field} is ${show(value)}; it must be an object`);
  }

  refuse(problem: string): never {
    throw new HoldfastError(`${this.#name}: ${problem}`);
  }
}

/** A JSON value in a message: short, on one line. */
function show(value: unknown): string {
  if (value === undefined) return 'missing';
  if (Array.isArray(value)) return 'a list';
  if (typeof value === 'object' && value !== null) return 'an object';
  const text = JSON.stringify(value);
  return text.length <= 60 ? text : `${text.slice(0, 60)}...`;
}
