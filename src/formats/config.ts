// Hugging Face's config.json: parsed by its family's record, field names and defaults are theirs.
//
// Not a model: shapes only. Fields that change nothing here are dropped (architectures, torch_dtype, token
// ids, and the dropout rates: Holdfast trains without dropout, whatever a file says; dropoutIn tells of them).
// Invariant: a config that parseConfig() returns is complete, consistent, and one that we can compute. A field that would
// make the model compute something else is never dropped: it is refused by name (NEUTRAL, and where it is read), and so is
// one that no family has (families/fields.ts).

import { HoldfastError, shortened } from '../util/errors.ts';
import { isObject, show } from '../util/json.ts';
import type { StoredElement } from '../values/stored-elements.ts';
import type { ModelShape } from './families/family.ts';
import { Fields } from './families/fields.ts';
import { FAMILIES, FAMILY_NAMES, type ModelConfig, shapeOf } from './families/index.ts';

export type { ModelConfig } from './families/index.ts';

/** A parsed config.json with defaults filled in. `name` is for messages. Errors: HoldfastError per field. */
export function parseConfig(json: unknown, name: string): ModelConfig {
  if (!isObject(json)) {
    throw new HoldfastError(`${name}: is ${show(json)}, not an object; expected a Hugging Face config.json`);
  }
  const fields = new Fields(json, name);
  const family = FAMILIES[fields.only('model_type', FAMILY_NAMES)];
  const config = family.parse(fields);
  refuseOthers(fields, shapeOf(config), family.writes);
  refusePackings(fields);
  fields.refuseUnread([...family.harmless, ...OF_BITSANDBYTES]);
  return config;
}

/** A field that two configurations do not have alike, and how each has it, for a message. */
export interface ConfigDifference {
  readonly name: string;
  readonly one: string;
  readonly other: string;
}

/**
 * The first field in which two configurations from parseConfig() differ, be it that only one of them has it. Undefined where
 * both are of one model.
 */
export function differenceOf(one: ModelConfig, other: ModelConfig): ConfigDifference | undefined {
  // Lists and objects among the values are plain JSON, in the order in which parseConfig() makes them.
  const shown = (config: ModelConfig, name: string) =>
    JSON.stringify((config as unknown as Record<string, unknown>)[name]) ?? 'missing';
  for (const name of new Set([...Object.keys(one), ...Object.keys(other)])) {
    const [mine, theirs] = [shown(one, name), shown(other, name)];
    if (mine !== theirs) return { name, one: shortened(mine), other: shortened(theirs) };
  }
  return undefined;
}

/** Of all families. */
const DROPOUT_RATES: readonly string[] = [
  ...['attn_pdrop', 'embd_pdrop', 'resid_pdrop', 'attention_dropout', 'hidden_dropout'],
  ...['hidden_dropout_prob', 'attention_probs_dropout_prob', 'classifier_dropout'],
];

/** Rates of dropout above 0 in a config.json, as "attn_pdrop 0.1": what training elsewhere would do, and here does not. */
export function dropoutIn(json: unknown): readonly string[] {
  if (!isObject(json)) return [];
  return DROPOUT_RATES.flatMap((field) => {
    const rate = json[field];
    return typeof rate === 'number' && rate > 0 ? [`${field} ${rate}`] : [];
  });
}

const WIDTHS: Readonly<Record<string, StoredElement>> = { float32: 'f32', bfloat16: 'bf16', float16: 'f16' };

/** What a config.json says that the weights beside it are stored as; undefined where it does not, or in blocks. */
export function storedAsIn(json: unknown): StoredElement | undefined {
  if (!isObject(json) || 'quantization_config' in json) return undefined;
  const name = json['dtype'] ?? json['torch_dtype'];
  return typeof name === 'string' && Object.hasOwn(WIDTHS, name) ? WIDTHS[name] : undefined;
}

/**
 * Fields of other architectures that files of these are seen with, and the values at which they change nothing; a family
 * that reads one gives it its meaning. Transformers ignores them in the others; but where one is active, the weights
 * were most likely trained with it.
 */
const NEUTRAL: Readonly<Record<string, readonly unknown[]>> = {
  is_encoder_decoder: [false],
  add_cross_attention: [false],
  tie_encoder_decoder: [false],
  cross_attention_hidden_size: [],
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
  use_mrope: [false],
  partial_rotary_factor: [1],
  rotary_pct: [1],
  rope_interleaved: [false],
  // SmolLM3, Llama 4.
  no_rope_layer_interval: [0],
  // Mixtral, Qwen.
  num_local_experts: [0, 1],
  num_experts: [0, 1],
};

/** Of weights in four bits, as bitsandbytes writes them: how it computes with them, which Holdfast does in float32. */
const OF_BITSANDBYTES = [
  ...['_load_in_4bit', '_load_in_8bit', 'bnb_4bit_compute_dtype', 'bnb_4bit_use_double_quant'],
  ...['llm_int8_enable_fp32_cpu_offload', 'llm_int8_has_fp16_weight', 'llm_int8_skip_modules', 'llm_int8_threshold'],
].map((field) => `quantization_config.${field}`);

/** Errors: HoldfastError for weights in a packing that is not read. */
function refusePackings(fields: Fields): void {
  if (!fields.has('quantization_config')) return;
  const how = fields.inside('quantization_config');
  how.only('quant_method', ['bitsandbytes']);
  how.only('load_in_4bit', [true]);
  how.neutral('load_in_8bit', [false]);
  how.only('bnb_4bit_quant_type', ['nf4']);
  how.neutral('bnb_4bit_quant_storage', ['uint8']);
}

/** Errors: HoldfastError for a field that would make attention or anything else compute what it does not here. */
function refuseOthers(fields: Fields, { context: positions, headSize }: ModelShape, writes: boolean): void {
  const neutral = {
    ...NEUTRAL,
    is_causal: [writes],
    // Of a model that writes text, it says that the model may read another's states as well, which others do.
    is_decoder: writes ? [false, true] : [false],
    attention_multiplier: [headSize ** -0.5],
    query_pre_attn_scalar: [headSize],
  };
  for (const [field, values] of Object.entries(neutral)) if (!fields.wasRead(field)) fields.neutral(field, values);
  if (!fields.wasRead('layer_types')) fields.items('layer_types', ['full_attention']);
  fields.items('no_rope_layers', [1]);
  // Transformers writes an empty one; heads that were cut off have no weights.
  if (fields.has('pruned_heads')) fields.inside('pruned_heads').refuseUnread();
  if (fields.wasRead('sliding_window')) return;
  // A window as long as the context, or one that is switched off, hides nothing.
  const window = fields.count('sliding_window', positions);
  const isUsed = fields.only('use_sliding_window', [true, false], true);
  if (window < positions && isUsed) {
    fields.refuse(
      `sliding_window is ${window}, shorter than the context of ${positions}; supported: none, or with use_sliding_window false`,
    );
  }
}
