// Typed access to the fields of a Hugging Face config.json, with their defaults and the values that are supported. Not for
// our own files, which have schemas (util/json.ts).
//
// Invariant: a field that is absent or null has its default, as in Transformers; any other that is not supported is
// refused by name. Of the fields that nothing has asked for, `refuseUnread` lets pass what is known to change no result
// (HARMLESS, and what a family adds): no field is ignored silently.

import { HoldfastError, shortened } from '../../util/errors.ts';
import { isObject, show } from '../../util/json.ts';

/**
 * What Transformers writes into the configuration of any model, and what changes neither the loss nor the weights: where
 * the model comes from, how text is written with it, ids of tokens, what its methods return, rates of dropout (Holdfast
 * trains without).
 */
const HARMLESS: readonly string[] = [
  ...['_name_or_path', '_commit_hash', 'architectures', 'transformers_version', 'transformers.js_config'],
  ...['unsloth_fixed', 'unsloth_version', 'finetuning_task', 'task_specific_params', 'tokenizer_class', 'prefix'],
  // The type that it was saved in: the file's own header says it of every tensor.
  ...['torch_dtype', 'dtype', 'use_bfloat16'],
  ...['_attn_implementation', '_attn_implementation_autoset', 'attn_implementation', '_flash_attn_2_enabled'],
  ...['use_cache', 'return_dict', 'use_return_dict', 'output_attentions', 'output_hidden_states', 'output_past'],
  ...['torchscript', 'tf_legacy_loss', 'gradient_checkpointing', 'chunk_size_feed_forward', 'xla_device'],
  ...['bos_token_id', 'eos_token_id', 'eos_token_ids', 'pad_token_id', 'sep_token_id', 'decoder_start_token_id'],
  // Classes of a head for classification, which a family with one reads.
  ...['id2label', 'label2id', 'num_labels', '_num_labels', 'problem_type', 'classifier_dropout'],
  ...['attention_dropout', 'hidden_dropout'],
  // How text is written: generation_config.json has it now.
  ...['max_length', 'min_length', 'do_sample', 'early_stopping', 'num_beams', 'num_beam_groups', 'diversity_penalty'],
  ...['temperature', 'top_k', 'top_p', 'typical_p', 'repetition_penalty', 'length_penalty', 'no_repeat_ngram_size'],
  ...['encoder_no_repeat_ngram_size', 'bad_words_ids', 'num_return_sequences', 'return_dict_in_generate'],
  ...['output_scores', 'forced_bos_token_id', 'forced_eos_token_id', 'remove_invalid_values', 'suppress_tokens'],
  ...['begin_suppress_tokens', 'exponential_decay_length_penalty', 'cache_implementation'],
];

export class Fields {
  readonly #json: Readonly<Record<string, unknown>>;
  readonly #name: string;
  readonly #prefix: string;
  /** Fields that were asked for, and of those that are objects, the fields inside. */
  readonly #read = new Map<string, Fields | undefined>();

  /** `name` is for messages, and so is `prefix`, of an object inside another. */
  constructor(json: Readonly<Record<string, unknown>>, name: string, prefix = '') {
    this.#json = json;
    this.#name = name;
    this.#prefix = prefix;
  }

  /** Undefined where it is absent or null. */
  #take(field: string): unknown {
    if (!this.#read.has(field)) this.#read.set(field, undefined);
    return this.#json[field] ?? undefined;
  }

  has(field: string): boolean {
    return this.#take(field) !== undefined;
  }

  /** Errors: HoldfastError for a field that is there, was not asked for, and is not known to change nothing. */
  refuseUnread(harmless: readonly string[] = []): void {
    for (const [field, value] of Object.entries(this.#json)) {
      if (value === null || HARMLESS.includes(field) || harmless.includes(this.#prefix + field)) continue;
      if (this.#read.has(field)) this.#read.get(field)?.refuseUnread(harmless);
      else {
        this.refuse(
          `${shortened(field)} is ${show(value)}; this field is not known here and may change what the model computes: remove it if it does not (a model from elsewhere: download its folder, remove it there and give that folder)`,
        );
      }
    }
  }

  /** Whether it was asked for its value: what its family reads is not refused for being there. */
  wasRead(field: string): boolean {
    return this.#read.has(field);
  }

  /** A whole number above 0. Without a fallback it has to be there. */
  count(field: string, fallback?: number): number {
    const value = this.#take(field) ?? fallback;
    if (Number.isSafeInteger(value) && (value as number) > 0) return value as number;
    return this.refuse(`${field} is ${show(value)}; it must be a whole number above 0`);
  }

  /** A whole number above 0, or null: of the fields where null is a value, and not the default. */
  countOrNull(field: string, fallback: number): number | null {
    const value = this.count(field, fallback);
    return this.#json[field] === null ? null : value;
  }

  /** A whole number above 0, or a list of two. */
  countOrTwo(field: string, fallback: number): number | [number, number] {
    const value = this.#take(field);
    if (!Array.isArray(value)) return this.count(field, fallback);
    const [first, second] = value as unknown[];
    const isCount = (number: unknown): number is number => Number.isSafeInteger(number) && (number as number) > 0;
    if (value.length === 2 && isCount(first) && isCount(second)) return [first, second];
    return this.refuse(`${field} is ${show(value)}; it must be a whole number above 0, or two of them`);
  }

  /** A whole number, 0 or above. */
  countFrom0(field: string, fallback: number): number {
    const value = this.#take(field) ?? fallback;
    if (Number.isSafeInteger(value) && (value as number) >= 0) return value as number;
    return this.refuse(`${field} is ${show(value)}; it must be a whole number, 0 or above`);
  }

  /** A finite number above 0. Without a fallback it has to be there. */
  positive(field: string, fallback?: number): number {
    const value = this.#take(field) ?? fallback;
    if (Number.isFinite(value) && (value as number) > 0) return value as number;
    return this.refuse(`${field} is ${show(value)}; it must be a number above 0`);
  }

  /** The value of a field, which must be one of `supported`. */
  only<T>(field: string, supported: readonly T[], fallback?: T): T {
    const value = this.#take(field) ?? fallback;
    const found = supported.find((item) => item === value);
    if (found !== undefined) return found;
    return this.refuse(`${field} is ${show(value)}; supported: ${supported.map(show).join(', ')}`);
  }

  /** Checks that a field which is not supported is absent, null, or has a value that changes nothing. */
  neutral(field: string, values: readonly unknown[]): void {
    const value = this.#take(field);
    const isNear = (item: unknown) =>
      item === value || (typeof item === 'number' && typeof value === 'number' && Math.abs(value / item - 1) < 1e-6);
    if (value === undefined || values.some(isNear)) return;
    this.refuse(`${field} is ${show(value)}; supported: ${[...values, null].map(show).join(', ')}`);
  }

  /** A list of supported values, one for each layer where it is said how many these are; undefined where it is absent. */
  items<T>(field: string, supported: readonly T[], layers?: number): readonly T[] | undefined {
    const value = this.#take(field);
    if (value === undefined) return undefined;
    if (!Array.isArray(value)) return this.refuse(`${field} is ${show(value)}; it must be a list`);
    const other = value.find((item) => !supported.includes(item));
    if (other !== undefined)
      this.refuse(`${field} has ${show(other)} in it; supported: ${supported.map(show).join(', ')}`);
    if (layers !== undefined && value.length !== layers)
      this.refuse(`${field} has ${value.length} items; it must have ${layers}, one for each layer`);
    return value;
  }

  /** Checks that one field's value divides another's. */
  divides(small: string, divisor: number, large: string, value: number): void {
    if (value % divisor === 0) return;
    const works = Math.max(1, Math.round(value / divisor)) * divisor;
    this.refuse(`${large} is ${value}, not a multiple of ${small} (${divisor}); ${works} would work`);
  }

  /** An object whose fields are data; undefined where it is absent. */
  object(field: string): Readonly<Record<string, unknown>> | undefined {
    const value = this.#take(field);
    if (value === undefined || isObject(value)) return value;
    return this.refuse(`${field} is ${show(value)}; it must be an object`);
  }

  inside(field: string): Fields {
    const value = this.#take(field);
    if (isObject(value)) {
      const inside = this.#read.get(field) ?? new Fields(value, this.#name, `${this.#prefix}${field}.`);
      this.#read.set(field, inside);
      return inside;
    }
    return this.refuse(`${field} is ${show(value)}; it must be an object`);
  }

  /** `problem` begins with a field's name. */
  refuse(problem: string): never {
    throw new HoldfastError(`${this.#name}: ${this.#prefix}${problem}`);
  }
}
