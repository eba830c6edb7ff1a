// The settings beside a tokenizer.json that outweigh it: Hugging Face's fast tokenizers are made of the file, and then of what
// tokenizer_config.json says of capitals, accents, a space before the text and added tokens. They are put into the file's JSON here.
//
// Invariant: what is put in is what each version of Transformers from 4.46 on makes of the same files; where that depends on the
// version or the class, the files are refused by name.

import { join } from '../runtime/host.ts';
import { HoldfastError, shortened } from '../util/errors.ts';
import { isObject, parseJSON, show } from '../util/json.ts';

type Json = Readonly<Record<string, unknown>>;
/** A tokenizer's files, and what they are called. */
interface Given {
  readonly path: string;
  readonly contents: ReadonlyMap<string, Uint8Array>;
}

const MAIN = 'tokenizer.json';
const CONFIG = 'tokenizer_config.json';
const MAP = 'special_tokens_map.json';
const ADDED = 'added_tokens.json';

/** The tokenizer.json itself, where its folder or zip is named, too. */
export const mainPath = ({ path }: Pick<Given, 'path'>): string => (path.endsWith('.json') ? path : join(path, MAIN));

/** A tokenizer.json as it is used. */
export interface EffectiveTokenizer {
  readonly json: unknown;
  /** What the files beside it changed, as one text; absent: nothing. */
  readonly overrides?: string;
}

/** `alone`: the file as it is, whatever lies beside it. Errors: HoldfastError naming the file, the field, and what is allowed. */
export function effectiveTokenizer(files: Given, alone = false): EffectiveTokenizer {
  const bytes = files.contents.get(MAIN) ?? new Uint8Array();
  const json = parseJSON(bytes, shortened(mainPath(files)), 'get the file again');
  const beside = [CONFIG, MAP, ADDED].some((name) => files.contents.has(name));
  if (alone || !beside || !isObject(json)) return { json };
  const changes: string[] = [];
  const config = jsonBeside(files, CONFIG);
  const refuse = (problem: string): never => {
    throw new HoldfastError(`${shortened(files.path)}: ${CONFIG}: ${problem}`);
  };
  if (config['split_special_tokens'] === true)
    refuse('split_special_tokens is true; special tokens are found in texts here, leave the field out');
  const normalizer = normalizerBy(json['normalizer'], config, changes, refuse);
  const pre_tokenizer = preTokenizerBy(json, config, files.contents.has(CONFIG), changes, refuse);
  const added_tokens = addedTokensBy(json, files, config, changes, refuse);
  if (changes.length === 0) return { json };
  return { json: { ...json, normalizer, pre_tokenizer, added_tokens }, overrides: changes.join('; ') };
}

/** One of the files beside a tokenizer; without fields where it is not there. Errors: HoldfastError for one that is no JSON object. */
export function jsonBeside(files: Given, name: string): Json {
  const bytes = files.contents.get(name);
  if (!bytes) return {};
  const json = parseJSON(bytes, `${shortened(files.path)}: ${name}`, 'get the file again, or leave it away');
  if (isObject(json)) return json;
  throw new HoldfastError(`${shortened(files.path)}: ${name} is ${show(json)}; it must be an object`);
}

type Refuse = (problem: string) => never;

/** A setting that may be absent, or null. */
function flagIn(config: Json, name: string, refuse: Refuse): boolean | undefined {
  const value = config[name] ?? undefined;
  return value === undefined || typeof value === 'boolean'
    ? value
    : refuse(`${name} is ${show(value)}; it must be true or false`);
}

// ---- Capitals and accents -------------------------------------------------------------------------------------------

/** Classes that leave the normalizer as it is. */
const PLAIN_CLASS = /^(?:PreTrainedTokenizer(?:Fast)?|TokenizersBackend)$/;
/** Fields of a BertNormalizer, what settings call them, and what BERT's classes take where they are not said. */
const BERT_FIELDS = [
  ['lowercase', 'do_lower_case', true],
  ['strip_accents', 'strip_accents', undefined],
  ['handle_chinese_chars', 'tokenize_chinese_chars', true],
] as const;

function normalizerBy(normalizer: unknown, config: Json, changes: string[], refuse: Refuse): unknown {
  const named = config['tokenizer_class'] ?? undefined;
  const isPlain = typeof named === 'string' && PLAIN_CLASS.test(named);
  if (!isObject(normalizer) || normalizer['type'] !== 'BertNormalizer' || isPlain) return normalizer;
  const found: Record<string, unknown> = { ...normalizer };
  for (const [field, name, ofClass] of BERT_FIELDS) {
    const own = normalizer[field] ?? (field === 'strip_accents' ? undefined : true);
    const said = flagIn(config, name, refuse);
    if (said === own) continue;
    if (said !== undefined) {
      found[field] = said;
      changes.push(`${field} ${said}`);
    } else if (named !== undefined && own !== ofClass)
      refuse(
        `says no ${name}, by which some versions of ${show(named)} take ${show(ofClass ?? null)}, and in tokenizer.json ${field} is ${show(own)}; say it there`,
      );
  }
  return found;
}

// ---- The space before a text ----------------------------------------------------------------------------------------

const PREFIX = 'add_prefix_space';

function preTokenizerBy(json: Json, config: Json, isThere: boolean, changes: string[], refuse: Refuse): unknown {
  const pre = json['pre_tokenizer'];
  const said = flagIn(config, PREFIX, refuse);
  if (!isObject(pre) || pre['type'] !== 'ByteLevel') {
    const own = putsSpace(pre) ?? putsSpace(json['normalizer']);
    if (said !== undefined && own !== undefined && own !== said)
      refuse(
        `${PREFIX} is ${said}, and by tokenizer.json a text begins with ${own ? 'one' : 'none'}; versions of Transformers differ there, make the two say one thing`,
      );
    return pre;
  }
  const own = pre[PREFIX] ?? true;
  if (said === own || (said === undefined && (own === false || !isThere))) return pre;
  if (said === undefined)
    return refuse(
      `says no ${PREFIX}, by which some versions of Transformers put none, and in tokenizer.json it is true; say it there`,
    );
  changes.push(`${PREFIX} ${said}`);
  return { ...pre, [PREFIX]: said };
}

/** Whether a normalizer or pre-tokenizer puts a space before a text; undefined where it says nothing of spaces. */
function putsSpace(part: unknown): boolean | undefined {
  if (!isObject(part)) return undefined;
  const { type, prepend_scheme: scheme } = part;
  if (type === 'Sequence') {
    const parts = part['normalizers'] ?? part['pretokenizers'];
    const found = (Array.isArray(parts) ? parts : []).map(putsSpace);
    return found.includes(true) || (found.includes(false) ? false : undefined);
  }
  if (type === 'ByteLevel') return part[PREFIX] !== false;
  if (type === 'Metaspace') return scheme === undefined ? part[PREFIX] !== false : scheme !== 'never';
  if (type === 'Prepend') return true;
  return type === 'Replace' && part['content'] === '\u2581' ? false : undefined;
}

// ---- Added tokens ---------------------------------------------------------------------------------------------------

/** An added token as files name it. */
interface NamedToken {
  readonly content: string;
  readonly lstrip: boolean;
  readonly rstrip: boolean;
  readonly single_word: boolean;
  readonly special: boolean;
  readonly normalized: boolean;
  /** The id that it is said to have. */
  readonly id?: number;
  /** Whether one that is there already gets these flags. */
  readonly replaces: boolean;
}

const ROLES = ['bos', 'eos', 'unk', 'sep', 'pad', 'cls', 'mask'].map((role) => `${role}_token`);
const MORE_ROLES = ['additional_special_tokens', 'extra_special_tokens'];

function addedTokensBy(json: Json, files: Given, config: Json, changes: string[], refuse: Refuse): unknown {
  const vocabulary = isObject(json['model']) ? json['model']['vocab'] : undefined;
  const own = json['added_tokens'] ?? [];
  // What is no list or no token is refused where it is read.
  if (!isObject(vocabulary) || !Array.isArray(own) || !own.every(isToken)) return json['added_tokens'];
  const list = [...own];
  const places = new Map(list.map(({ content }, i) => [content, i]));
  const size = Object.keys(vocabulary).length;
  let next = list.reduce((most, { id }) => Math.max(most, id + 1), size);
  for (const token of namedTokens(files, config, refuse)) {
    const { content, special, normalized, lstrip, rstrip, single_word } = token;
    const place = places.get(content);
    const there = place === undefined ? undefined : list[place];
    if (place !== undefined && there) {
      if (!token.replaces) continue;
      // In which text a token is found stays as tokenizer.json says, of special ones.
      if (json['normalizer'] && !there['special'] && (there['normalized'] ?? true) !== normalized)
        refuse(
          `${show(content)} is ${normalized ? '' : 'not '}normalized, and in tokenizer.json it is otherwise; make the two say one thing`,
        );
      const flags = { lstrip, rstrip, single_word };
      const now = { ...there, ...flags };
      const changed = Object.entries(flags).filter(([name, value]) => (there[name] ?? false) !== value);
      if (changed.length === 0) continue;
      changes.push(`${show(content)} ${changed.map(([name, value]) => `${name} ${value}`).join(', ')}`);
      list[place] = now;
      continue;
    }
    const known = Object.hasOwn(vocabulary, content) ? vocabulary[content] : undefined;
    // One that has no id in either file is in no text that its model was made for.
    if (known === undefined && token.id === undefined) continue;
    const id = typeof known === 'number' ? known : next;
    if (token.id !== undefined && token.id !== id)
      refuse(
        `${show(content)} is token ${token.id}, and by tokenizer.json it would be ${id}; make the two say one thing`,
      );
    changes.push(`added ${id} ${show(content)}`);
    places.set(content, list.length);
    list.push({ id, content, special, normalized, lstrip, rstrip, single_word });
    next = Math.max(next, id + 1);
  }
  return list;
}

const isToken = (value: unknown): value is Json & { content: string; id: number } =>
  isObject(value) && typeof value['content'] === 'string' && Number.isSafeInteger(value['id']);

/** Added tokens that the files name, in the order in which they are added: those with ids first. */
function namedTokens(files: Given, config: Json, refuse: Refuse): NamedToken[] {
  const decoder = config['added_tokens_decoder'] ?? undefined;
  const roles = rolesIn({ ...(decoder === undefined && jsonBeside(files, MAP)), ...present(config) });
  const names = new Set(roles.map(contentOf));
  const found: NamedToken[] = [];
  if (decoder !== undefined && !isObject(decoder))
    refuse(`added_tokens_decoder is ${show(decoder)}; it must be an object`);
  for (const [key, value] of inOrder(decoder ?? {})) {
    const what = `added_tokens_decoder.${shortened(key)}`;
    if (!/^\d{1,9}$/.test(key)) refuse(`${what} must be named by an id`);
    if (!isObject(value) || !value['content'] || typeof value['content'] !== 'string')
      return refuse(`${what} is ${show(value)}; it must be an object with a content`);
    found.push({ ...tokenOf(value, names.has(value['content'])), id: Number(key), replaces: true });
  }
  if (decoder === undefined)
    for (const [content, id] of Object.entries(jsonBeside(files, ADDED))) {
      if (!Number.isSafeInteger(id)) refuse(`${ADDED}: ${show(content)} is ${show(id)}; it must be an id`);
      found.push({ ...tokenOf({ content }, names.has(content)), id: id as number, replaces: false });
    }
  for (const role of roles)
    found.push({ ...tokenOf(isObject(role) ? role : { content: role }, true), replaces: isObject(role) });
  return found;
}

const present = (config: Json): Json =>
  Object.fromEntries(Object.entries(config).filter(([, value]) => value !== null));

const inOrder = (decoder: Json): [string, unknown][] =>
  Object.entries(decoder).sort(([a], [b]) => Number(a) - Number(b));

/** What plays a role, as its text or as an object with it. */
function rolesIn(json: Json): (string | Json)[] {
  const more = MORE_ROLES.flatMap((name) => {
    const value = json[name];
    return isObject(value) ? Object.values(value) : Array.isArray(value) ? value : [];
  });
  return [...ROLES.map((name) => json[name]), ...more].filter(
    (role): role is string | Json => typeof contentOf(role) === 'string' && contentOf(role) !== '',
  );
}

const contentOf = (role: unknown): unknown => (isObject(role) ? role['content'] : role);

function tokenOf(json: Json, plays: boolean): Omit<NamedToken, 'id' | 'replaces'> {
  const special = json['special'] === true || plays;
  return {
    content: json['content'] as string,
    ...{ lstrip: json['lstrip'] === true, rstrip: json['rstrip'] === true, single_word: json['single_word'] === true },
    special,
    normalized: typeof json['normalized'] === 'boolean' ? json['normalized'] : !special,
  };
}
