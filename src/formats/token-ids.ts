// The special tokens that a model's files name by their ids: which fields they are, and which file has the word. Spelled tokens,
// and what a tokenizer puts around a text by itself, are not here.
//
// Invariant: generation_config.json comes before config.json, field by field, so that a text ends here where Hugging Face's
// `generate` ends it. What is no id is given as it stands: whether that is refused is the reader's to say.

import { isObject } from '../util/json.ts';

type Json = Readonly<Record<string, unknown>>;

const FIELDS = ['bos_token_id', 'eos_token_id', 'pad_token_id'] as const;

export type TokenIdField = (typeof FIELDS)[number];

/** Fields of a config.json, as they stand there: an id, or a list of ids. */
export type ModelTokenIds = Readonly<Partial<Record<TokenIdField, unknown>>>;

/** What a config.json says; undefined where it names none. */
export function tokenIdsOf(config: unknown): ModelTokenIds | undefined {
  if (!isObject(config)) return undefined;
  const named = FIELDS.filter((field) => (config[field] ?? undefined) !== undefined);
  return named.length === 0 ? undefined : Object.fromEntries(named.map((field) => [field, config[field]]));
}

/** The ids of a field, none where no file has it, and the file that has. */
export function namedIds(
  field: TokenIdField,
  { generation, model = {} }: { readonly generation: Json; readonly model: ModelTokenIds | undefined },
): { readonly ids: readonly unknown[]; readonly file: string } {
  const listed = (value: unknown): readonly unknown[] => (Array.isArray(value) ? value : [value]);
  const first = generation[field] ?? undefined;
  if (first !== undefined) return { ids: listed(first), file: 'generation_config.json' };
  const second = model[field] ?? undefined;
  // -1 stands for none in configurations of old: Llama 1's for filling up.
  return { ids: second === undefined || second === -1 ? [] : listed(second), file: 'config.json' };
}
