// A tokenizer.json, with what lies beside it, as llama.cpp's vocabulary: byte-level merges (GPT-2's, Llama 3's, Qwen's and those
// trained here), and SentencePiece's merges with single bytes to fall back on (Llama 2's, Gemma's). Nothing is tokenized here.
//
// Invariant: what would give other tokens there is refused by name.

import { HoldfastError, shortened } from '../../../util/errors.ts';
import { isObject, parseJSON, show } from '../../../util/json.ts';
import { tokenIdsOf } from '../../token-ids.ts';
import { effectiveTokenizer } from '../../tokenizer-overrides.ts';
import { preOf, stepsOf } from './pre-tokenizer.ts';
import { ggufSpecials } from './specials.ts';
import { TOKEN, type Vocabulary } from './vocabulary.ts';

type Json = Readonly<Record<string, unknown>>;
type Token = NonNullable<Vocabulary['tokens'][number]>;

/** Files that are read where they are there. */
export const VOCABULARY_FILES = [
  'tokenizer.json',
  'tokenizer_config.json',
  'special_tokens_map.json',
  'added_tokens.json',
  'generation_config.json',
  'config.json',
  'chat_template.jinja',
] as const;

const SPACE = '\u2581';
/** More ids than any tokenizer has: what a damaged file must not make a list of. */
const MOST_TOKENS = 2 ** 22;

/** `contents`: of the files, by their names. `turnEnd`: what the text of a chat template writes behind an answer. Errors: HoldfastError. */
export function huggingFaceVocabulary(
  contents: ReadonlyMap<string, Uint8Array>,
  from: string,
  turnEnd: (chatTemplate: string) => string | undefined = () => undefined,
): Vocabulary {
  const main = `${from}: tokenizer.json`;
  const tokenizer = objectIn(effectiveTokenizer({ path: main, contents }).json, main);
  const model = objectAt(tokenizer, 'model', main);
  const steps = stepsOf(tokenizer['pre_tokenizer']);
  const isByteLevel = steps.at(-1)?.['type'] === 'ByteLevel';
  const kind = model['type'] ?? 'BPE';
  if (kind !== 'BPE' || (!isByteLevel && model['byte_fallback'] !== true)) {
    throw new HoldfastError(
      `${main}: its model is ${shortened(String(kind))}${kind === 'BPE' ? ' without bytes to fall back on' : ''}; GGUF files are written for byte-level BPE, and BPE with byte_fallback`,
    );
  }
  for (const field of ['continuing_subword_prefix', 'end_of_word_suffix', 'dropout']) {
    if (!model[field]) continue;
    throw new HoldfastError(`${main}: model.${field} is ${show(model[field])}; llama.cpp has no such thing`);
  }
  const known = knownTokens(model, main);
  const merges = mergesOf(model, main);
  const added = addedTokens(tokenizer, main);
  const ids = new Map([...known, ...added.map(({ text, id }) => [text, id] as const)]);
  const tokens: (Token | undefined)[] = [];
  for (const [text, id] of known) tokens[id] = { text, kind: isByteLevel ? TOKEN.normal : kindOf(text, model) };
  for (const { text, id, special } of added) {
    if (tokens[id]?.kind === TOKEN.unknown) continue;
    tokens[id] = { text, kind: special ? TOKEN.control : TOKEN.userDefined };
  }
  const config = jsonIn(contents, 'tokenizer_config.json', from);
  const chatTemplate = chatTemplateIn(contents, config);
  const sources = {
    tokenizer,
    chatTemplate,
    turnEnd: chatTemplate === undefined ? undefined : turnEnd(chatTemplate),
    configs: [config, jsonIn(contents, 'special_tokens_map.json', from)],
    ids: {
      generation: jsonIn(contents, 'generation_config.json', from),
      model: tokenIdsOf(jsonIn(contents, 'config.json', from)),
    },
  };
  const specials = ggufSpecials(
    sources,
    (text) => ids.get(text),
    (id) => tokens[id] !== undefined,
  );
  const common = { specials, ...(chatTemplate !== undefined && { chatTemplate }) };
  if (isByteLevel) {
    refuseNormalizer(tokenizer, main);
    const pre = preOf(steps, model['ignore_merges'] === true, main);
    return { model: 'gpt2', pre, tokens, merges: merges.map((pair) => pair.join(' ')), ...common };
  }
  const addSpacePrefix = addsSpacePrefix(tokenizer, steps, main);
  return {
    model: 'llama',
    pre: 'default',
    tokens: withSpaces(tokens),
    scores: scoresOf(tokens, ids, merges),
    addSpacePrefix,
    ...common,
  };
}

// ---- Parts of the file ------------------------------------------------------------------------------------------

function jsonIn(contents: ReadonlyMap<string, Uint8Array>, name: string, from: string): Json {
  const bytes = contents.get(name);
  if (!bytes) return {};
  return objectIn(parseJSON(bytes, `${from}: ${name}`, 'get the file again'), `${from}: ${name}`);
}

function objectIn(json: unknown, name: string): Json {
  if (isObject(json)) return json;
  throw new HoldfastError(`${name} is ${show(json)}; it must be an object`);
}

function objectAt(json: Json, field: string, from: string): Json {
  const value = json[field];
  if (isObject(value)) return value;
  throw new HoldfastError(`${from}: ${field} is ${show(value)}; it must be an object`);
}

function isId(value: unknown): value is number {
  return Number.isSafeInteger(value) && (value as number) >= 0 && (value as number) < MOST_TOKENS;
}

function knownTokens(model: Json, from: string): ReadonlyMap<string, number> {
  const known = new Map<string, number>();
  const texts = new Map<number, string>();
  for (const [text, id] of Object.entries(objectAt(model, 'vocab', from))) {
    const other = isId(id) ? texts.get(id) : undefined;
    if (!isId(id) || other !== undefined) {
      throw new HoldfastError(
        `${from}: model.vocab has ${show(text)} as ${show(id)}; it must be ${other === undefined ? `an id below ${MOST_TOKENS}` : `another than that of ${show(other)}`}`,
      );
    }
    known.set(text, id);
    texts.set(id, text);
  }
  return known;
}

/** Pairs, written as "left right" by earlier versions, as lists of two by later ones. */
function mergesOf(model: Json, from: string): (readonly [string, string])[] {
  const { merges } = model;
  if (!Array.isArray(merges)) throw new HoldfastError(`${from}: model.merges is ${show(merges)}; it must be a list`);
  return merges.map((merge: unknown, i) => {
    const parts: unknown[] = typeof merge === 'string' ? merge.split(' ') : Array.isArray(merge) ? merge : [];
    const [left, right] = parts;
    if (parts.length === 2 && isPart(left) && isPart(right)) return [left, right] as const;
    throw new HoldfastError(
      `${from}: model.merges[${i}] is ${show(merge)}; it must be two tokens without spaces in them`,
    );
  });
}

const isPart = (part: unknown): part is string => typeof part === 'string' && part !== '' && !part.includes(' ');

function addedTokens(tokenizer: Json, from: string): { text: string; id: number; special: boolean }[] {
  const added = tokenizer['added_tokens'] ?? [];
  if (!Array.isArray(added)) throw new HoldfastError(`${from}: added_tokens is ${show(added)}; it must be a list`);
  return added.map((token: unknown, i) => {
    const { content, id, special } = isObject(token) ? token : {};
    if (typeof content === 'string' && isId(id)) return { text: content, id, special: special === true };
    throw new HoldfastError(
      `${from}: added_tokens[${i}] is ${show(token)} without a content or an id; get the file again`,
    );
  });
}

/** The template in a file of its own, or the default one of the tokenizer's configuration. */
function chatTemplateIn(contents: ReadonlyMap<string, Uint8Array>, config: Json): string | undefined {
  const file = contents.get('chat_template.jinja');
  if (file) return new TextDecoder().decode(file);
  const { chat_template } = config;
  if (typeof chat_template === 'string') return chat_template;
  if (!Array.isArray(chat_template)) return undefined;
  const named: unknown = chat_template.find((each: unknown) => isObject(each) && each['name'] === 'default');
  return isObject(named) && typeof named['template'] === 'string' ? named['template'] : undefined;
}

// ---- Byte-level -------------------------------------------------------------------------------------------------

/** llama.cpp takes a text as it is, which is in NFC nearly always. */
function refuseNormalizer({ normalizer }: Json, from: string): void {
  if (normalizer === undefined || normalizer === null) return;
  const parts =
    isObject(normalizer) && Array.isArray(normalizer['normalizers']) ? normalizer['normalizers'] : [normalizer];
  const types: unknown[] = parts.map((part: unknown) => (isObject(part) ? part['type'] : part));
  const other = types.find((type) => type !== 'NFC');
  if (other !== undefined) {
    throw new HoldfastError(
      `${from}: normalizer is ${shortened(String(other))}; llama.cpp has none for byte-level tokens`,
    );
  }
}

// ---- SentencePiece's --------------------------------------------------------------------------------------------

function kindOf(text: string, model: Json): number {
  if (text === model['unk_token']) return TOKEN.unknown;
  return /^<0x[0-9A-F]{2}>$/.test(text) ? TOKEN.byte : TOKEN.normal;
}

/**
 * llama.cpp merges what comes to the token of the highest score, Hugging Face's libraries the pair that is listed first: a token is the
 * better the earlier its first pair. What no pair comes to is worse than all that one does.
 */
function scoresOf(
  tokens: readonly (Token | undefined)[],
  ids: ReadonlyMap<string, number>,
  merges: readonly (readonly [string, string])[],
): number[] {
  const scores = Array.from(tokens, () => -(merges.length + 1));
  for (const [i, [left, right]] of [...merges.entries()].reverse()) {
    const id = ids.get(left + right);
    if (id !== undefined) scores[id] = -(i + 1);
  }
  return scores;
}

/** llama.cpp looks for these in the text itself. */
function withSpaces(tokens: readonly (Token | undefined)[]): (Token | undefined)[] {
  const texts = new Set(tokens.map((token) => token?.text));
  return Array.from(tokens, (token) => {
    if (token?.kind !== TOKEN.userDefined) return token;
    const text = token.text.replaceAll(SPACE, ' ');
    return texts.has(text) ? token : { ...token, text };
  });
}

/** Whether a text is begun with a space. Errors: HoldfastError for what turns a text into other pieces than llama.cpp does. */
function addsSpacePrefix({ normalizer }: Json, steps: readonly Json[], from: string): boolean {
  const refuse = (field: string, part: Json): never => {
    throw new HoldfastError(
      `${from}: ${field} has ${shortened(String(part['type']))} as llama.cpp does not; it takes spaces as ${SPACE} and cuts nothing`,
    );
  };
  const isSpace = (pattern: unknown): boolean => isObject(pattern) && pattern['String'] === ' ';
  let prefix = false;
  const normalizers = isObject(normalizer)
    ? normalizer['type'] === 'Sequence' && Array.isArray(normalizer['normalizers'])
      ? normalizer['normalizers'].filter(isObject)
      : [normalizer]
    : [];
  for (const part of normalizers) {
    if (part['type'] === 'Prepend' && part['prepend'] === SPACE) prefix = true;
    else if (part['type'] !== 'Replace' || !isSpace(part['pattern']) || part['content'] !== SPACE)
      refuse('normalizer', part);
  }
  for (const step of steps) {
    if (step['type'] === 'Metaspace' && step['split'] === false) {
      prefix = step['prepend_scheme'] !== 'never' && step['add_prefix_space'] !== false;
    } else if (step['type'] !== 'Split' || !isSpace(step['pattern']) || step['behavior'] !== 'MergedWithPrevious') {
      // Gemma's finds nothing: there is no space left.
      refuse('pre_tokenizer', step);
    }
  }
  return prefix;
}
