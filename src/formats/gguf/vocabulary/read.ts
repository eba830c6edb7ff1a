// The vocabulary of a GGUF file as the files of a tokenizer that Hugging Face's libraries read: what huggingface.ts makes of a
// tokenizer.json, the other way.
//
// Invariant: what would give other tokens than llama.cpp has is refused by name.

import { BYTE_CHARACTERS } from '../../../util/byte-characters.ts';
import { HoldfastError, shortened } from '../../../util/errors.ts';
import { show } from '../../../util/json.ts';
import type { GGUFValue } from '../read-header.ts';
import { ggufPreTokenizer } from './pre-tokenizer.ts';
import { TOKEN } from './vocabulary.ts';

type Metadata = ReadonlyMap<string, GGUFValue>;

const SPACE = '\u2581';

/** Texts by the names of their files; of bytes the chat template alone, if there is one. Errors: HoldfastError naming a key. */
export function tokenizerFilesOf(metadata: Metadata, path: string): (readonly [name: string, text: string])[] {
  const keys = new VocabularyKeys(metadata, path);
  const tokens = keys.texts('tokens');
  const merges = keys.texts('merges', []);
  const chatTemplate = metadata.get('tokenizer.chat_template');
  const template = typeof chatTemplate === 'string' ? [['chat_template.jinja', chatTemplate] as const] : [];
  if (merges.length === 0 && tokens.join('\n') === BYTE_CHARACTERS.join('\n')) return template;
  const kinds = keys.numbers(
    'token_type',
    tokens.map(() => TOKEN.normal),
  );
  if (kinds.length !== tokens.length)
    keys.fail(`token_type has ${kinds.length} items for ${tokens.length} tokens; get the file again`);
  const model = keys.text('model');
  const isByteLevel = model === 'gpt2';
  if (!isByteLevel && model !== 'llama') keys.fail(`model is ${show(model)}; supported: "gpt2", "llama"`);
  const vocab = vocabOf(tokens, kinds, keys);
  const added = tokens.flatMap((content, id) => {
    const special = kinds[id] === TOKEN.control || kinds[id] === TOKEN.unknown;
    if (!special && kinds[id] !== TOKEN.userDefined) return [];
    return [{ id, content, single_word: false, lstrip: false, rstrip: false, normalized: false, special }];
  });
  const { addsBos, ...parts } = isByteLevel
    ? byteLevel(merges, vocab, keys)
    : sentencePiece(tokens, kinds, vocab, keys);
  const tokenizer = { version: '1.0', truncation: null, padding: null, added_tokens: added, ...parts };
  const named = (key: string) => {
    const id = keys.number(`${key}_token_id`);
    return id === undefined ? undefined : tokens[id];
  };
  const ends = [keys.number('eos_token_id'), keys.number('eot_token_id')].filter((id) => id !== undefined);
  const config = {
    ...{ bos_token: named('bos'), eos_token: named('eos'), pad_token: named('padding'), unk_token: named('unknown') },
    add_bos_token: keys.flag('add_bos_token', addsBos),
    add_eos_token: keys.flag('add_eos_token', false),
  };
  return [
    ['tokenizer.json', JSON.stringify(tokenizer)],
    ['tokenizer_config.json', JSON.stringify(config)],
    ['generation_config.json', JSON.stringify({ eos_token_id: [...new Set(ends)] })],
    ...template,
  ];
}

/** Ids by their tokens; what only fills the rows of the embedding has none. */
function vocabOf(tokens: readonly string[], kinds: readonly number[], keys: VocabularyKeys): Map<string, number> {
  const vocab = new Map<string, number>();
  for (const [id, text] of tokens.entries()) {
    if (kinds[id] === TOKEN.unused) continue;
    if (vocab.has(text)) keys.fail(`tokens has ${show(text)} twice, ${vocab.get(text)} and ${id}; get the file again`);
    vocab.set(text, id);
  }
  return vocab;
}

function byteLevel(merges: readonly string[], vocab: ReadonlyMap<string, number>, keys: VocabularyKeys) {
  const { ignoresMerges, addsBos, normalizer, steps } = ggufPreTokenizer(keys.text('pre'), (problem) =>
    keys.fail(problem),
  );
  return {
    addsBos,
    normalizer,
    pre_tokenizer: steps,
    post_processor: null,
    decoder: { type: 'ByteLevel', add_prefix_space: true, trim_offsets: true, use_regex: true },
    model: { ...MODEL, ignore_merges: ignoresMerges, vocab: Object.fromEntries(vocab), merges },
  };
}

const MODEL = {
  ...{ type: 'BPE', dropout: null, unk_token: null, continuing_subword_prefix: null, end_of_word_suffix: null },
  ...{ fuse_unk: false, byte_fallback: false, ignore_merges: false },
};

/** Of each token every pair that comes to it, the token of the highest score first. */
function sentencePiece(
  tokens: readonly string[],
  kinds: readonly number[],
  vocab: ReadonlyMap<string, number>,
  keys: VocabularyKeys,
) {
  const scores = keys.numbers('scores');
  if (scores.length !== tokens.length)
    keys.fail(`scores has ${scores.length} items for ${tokens.length} tokens; get the file again`);
  const pairs: {
    readonly merge: readonly [string, string];
    readonly score: number;
    readonly ids: readonly [number, number];
  }[] = [];
  const isPart = (id: number | undefined): id is number => id !== undefined && kinds[id] === TOKEN.normal;
  for (const [id, text] of tokens.entries()) {
    if (kinds[id] !== TOKEN.normal) continue;
    const letters = [...text];
    for (let cut = 1, left = letters[0] ?? ''; cut < letters.length; left += letters[cut++] ?? '') {
      const right = text.slice(left.length);
      const ids = [vocab.get(left), vocab.get(right)] as const;
      if (isPart(ids[0]) && isPart(ids[1]))
        pairs.push({ merge: [left, right], score: scores[id] ?? 0, ids: [ids[0], ids[1]] });
    }
  }
  pairs.sort((a, b) => b.score - a.score || a.ids[0] - b.ids[0] || a.ids[1] - b.ids[1]);
  const prefix = keys.flag('add_space_prefix', true);
  const unknown = kinds.indexOf(TOKEN.unknown);
  const replace = (pattern: string, content: string) => ({ type: 'Replace', pattern: { String: pattern }, content });
  return {
    addsBos: true,
    normalizer: {
      type: 'Sequence',
      normalizers: [...(prefix ? [{ type: 'Prepend', prepend: SPACE }] : []), replace(' ', SPACE)],
    },
    pre_tokenizer: null,
    post_processor: null,
    decoder: {
      type: 'Sequence',
      decoders: [
        replace(SPACE, ' '),
        { type: 'ByteFallback' },
        { type: 'Fuse' },
        ...(prefix ? [{ type: 'Strip', content: ' ', start: 1, stop: 0 }] : []),
      ],
    },
    model: {
      ...MODEL,
      ...{ unk_token: tokens[unknown] ?? null, fuse_unk: true, byte_fallback: true },
      ...{ vocab: Object.fromEntries(vocab), merges: pairs.map(({ merge }) => merge) },
    },
  };
}

/** The keys of tokenizer.ggml. Errors: HoldfastError naming one. */
class VocabularyKeys {
  readonly #metadata: Metadata;
  readonly #path: string;

  constructor(metadata: Metadata, path: string) {
    this.#metadata = metadata;
    this.#path = path;
  }

  text(key: string): string {
    const value = this.#value(key);
    return typeof value === 'string' ? value : this.fail(`${key} is ${show(value)}; it must be a text`);
  }

  /** A whole number, 0 or above; undefined where it is absent. */
  number(key: string): number | undefined {
    const value = this.#value(key);
    if (value === undefined || (Number.isSafeInteger(value) && (value as number) >= 0))
      return value as number | undefined;
    return this.fail(`${key} is ${show(value)}; it must be an id`);
  }

  flag(key: string, fallback: boolean): boolean {
    const value = this.#value(key) ?? fallback;
    return typeof value === 'boolean' ? value : this.fail(`${key} is ${show(value)}; it must be true or false`);
  }

  texts(key: string, fallback?: readonly string[]): readonly string[] {
    return this.#list(key, 'string', fallback);
  }

  numbers(key: string, fallback?: readonly number[]): readonly number[] {
    return this.#list(key, 'number', fallback);
  }

  fail(problem: string): never {
    throw new HoldfastError(`${this.#path}: tokenizer.ggml.${shortened(problem)}`);
  }

  #value(key: string): GGUFValue | undefined {
    return this.#metadata.get(`tokenizer.ggml.${key}`);
  }

  #list<T extends string | number>(key: string, type: 'string' | 'number', fallback?: readonly T[]): readonly T[] {
    const value = this.#value(key) ?? fallback;
    if (Array.isArray(value) && value.every((item) => typeof item === type)) return value as readonly T[];
    return this.fail(`${key} is ${show(value)}; it must be a list of ${type}s`);
  }
}
