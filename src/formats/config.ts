// Hugging Face config.json for GPT-2 and Llama: field names and defaults are theirs.
//
// Not a model: shapes only. Fields that change nothing here are dropped (architectures, torch_dtype, token
// ids, and the dropout rates: Holdfast trains without dropout, whatever a file says).
// Invariant: a config that parseConfig() returns is complete, consistent, and one that we can compute.

import { HoldfastError } from '../util/errors.ts';

export interface GPT2Config {
  model_type: 'gpt2';
  /** V */
  vocab_size: number;
  /** The longest T. */
  n_positions: number;
  /** C, a multiple of n_head. */
  n_embd: number;
  /** L */
  n_layer: number;
  /** NH */
  n_head: number;
  /** Width of the MLP; `null` in a file means 4 * n_embd and is resolved. */
  n_inner: number;
  /** Two names for the tanh approximation of GELU. */
  activation_function: 'gelu_new' | 'gelu_pytorch_tanh';
  layer_norm_epsilon: number;
  initializer_range: number;
  tie_word_embeddings: boolean;
}

export interface LlamaConfig {
  model_type: 'llama';
  /** V */
  vocab_size: number;
  /** The longest T. */
  max_position_embeddings: number;
  /** C */
  hidden_size: number;
  /** Width of the MLP. */
  intermediate_size: number;
  /** L */
  num_hidden_layers: number;
  /** NH, a multiple of num_key_value_heads. */
  num_attention_heads: number;
  /** NKV */
  num_key_value_heads: number;
  /** HS, even; NH * HS may differ from C. */
  head_dim: number;
  hidden_act: 'silu';
  rms_norm_eps: number;
  rope_theta: number;
  initializer_range: number;
  tie_word_embeddings: boolean;
}

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
  return {
    model_type: 'gpt2',
    vocab_size: fields.count('vocab_size', 50257),
    n_positions: fields.count('n_positions', 1024),
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
  fields.only('rope_scaling', [null], null);
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
  return {
    model_type: 'llama',
    vocab_size: fields.count('vocab_size', 32000),
    max_position_embeddings: fields.count('max_position_embeddings', 2048),
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

/** Transformers 5 writes `rope_parameters: {rope_type, rope_theta}` where earlier ones wrote `rope_theta`. */
function parseTheta(fields: Fields): number {
  if (!fields.has('rope_parameters')) return fields.positive('rope_theta', 10000);
  const rope = fields.inside('rope_parameters');
  rope.only('rope_type', ['default'], 'default');
  return rope.positive('rope_theta', 10000);
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
