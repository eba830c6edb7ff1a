// The model of a tokenizer.json, BPE or WordPiece: a piece of text to ids. The merging is @huggingface/tokenizers'; here is
// what it would take on trust: that ids are ids, that merges are of tokens, that no text can be lost.
//
// Invariant: of BPE every text has ids, and they spell it.

import { BPE, WordPiece } from '@huggingface/tokenizers';
import { BYTE_CHARACTERS } from '../../util/byte-characters.ts';
import { show } from '../../util/json.ts';
import type { Part } from './part.ts';

export interface TokenModel {
  readonly type: 'BPE' | 'WordPiece';
  /** Ids by token. */
  readonly vocabulary: ReadonlyMap<string, number>;
  encode(piece: string): readonly number[];
}

/** The largest vocabularies have 262,144 tokens. */
const MOST_IDS = 2 ** 22;
/** Bytes that occur in UTF-8. */
const UTF8_BYTES = Array.from({ length: 0xf5 }, (_, byte) => byte).filter((byte) => byte !== 0xc0 && byte !== 0xc1);

/** `byteLevel`: pieces come as the characters of their bytes. */
export function tokenModelOf(part: Part, byteLevel: boolean): TokenModel {
  const type = part.type ?? (part.value('merges') === undefined ? undefined : 'BPE');
  if (type === 'BPE') return bpe(part, byteLevel);
  if (type === 'WordPiece') return wordPiece(part);
  return part.refuseType(['BPE', 'WordPiece']);
}

function vocabularyIn(part: Part): Map<string, number> {
  const found = new Map<string, number>();
  const tokens = new Map<number, string>();
  for (const [token, id] of Object.entries(part.object('vocab'))) {
    const name = `vocab[${show(token)}]`;
    if (!Number.isSafeInteger(id) || (id as number) < 0 || (id as number) >= MOST_IDS)
      return part.refuse(name, id, `a whole number below ${MOST_IDS}`);
    const other = tokens.get(id as number);
    if (other !== undefined) return part.refuse(name, id, `another id, since it is that of ${show(other)}`);
    found.set(token, id as number);
    tokens.set(id as number, token);
  }
  if (found.size === 0) return part.fail('has no tokens in its vocab');
  return found;
}

function bpe(part: Part, byteLevel: boolean): TokenModel {
  const vocabulary = vocabularyIn(part);
  const merges = part.list('merges').map((merge, i) => mergeOf(part, vocabulary, merge, i));
  part.neutral('dropout', 0);
  part.neutral('continuing_subword_prefix', '');
  part.neutral('end_of_word_suffix', '');
  const fallback = part.flag('byte_fallback', false);
  const whole = part.flag('ignore_merges', false);
  // Of what has no token, and all has.
  part.value('unk_token');
  part.value('fuse_unk');
  part.done();
  const byteToken = byteLevel
    ? (byte: number) => BYTE_CHARACTERS[byte] ?? ''
    : (byte: number) => `<0x${byte.toString(16).toUpperCase().padStart(2, '0')}>`;
  const missing = byteLevel || fallback ? UTF8_BYTES.find((byte) => !vocabulary.has(byteToken(byte))) : undefined;
  if (missing !== undefined)
    return part.fail(`has no token ${byteToken(missing)} for the byte ${missing}: text would be lost`);
  if (!byteLevel && !fallback)
    return part.fail('has neither bytes for its tokens (ByteLevel) nor byte_fallback: text would be lost');
  const model = new BPE({
    type: 'BPE',
    vocab: Object.fromEntries(vocabulary),
    merges,
    byte_fallback: !byteLevel && fallback,
    ignore_merges: whole,
  } as ConstructorParameters<typeof BPE>[0]);
  return { type: 'BPE', vocabulary, encode: (piece) => idsOf(model.encode([piece]), vocabulary) };
}

function mergeOf(part: Part, vocabulary: ReadonlyMap<string, number>, merge: unknown, i: number): [string, string] {
  const pair: unknown[] = typeof merge === 'string' ? merge.split(' ') : Array.isArray(merge) ? merge : [];
  const [left, right] = pair;
  if (pair.length !== 2 || typeof left !== 'string' || typeof right !== 'string')
    return part.refuse(`merges[${i}]`, merge, 'two tokens');
  const stranger = [left, right, left + right].find((token) => !vocabulary.has(token));
  if (stranger !== undefined)
    return part.refuse(`merges[${i}]`, `${left} ${right}`, `of tokens, and ${show(stranger)} is not in vocab`);
  return [left, right];
}

function wordPiece(part: Part): TokenModel {
  const vocabulary = vocabularyIn(part);
  const unknown = part.text('unk_token', '[UNK]');
  if (!vocabulary.has(unknown)) part.refuse('unk_token', unknown, 'in vocab');
  const prefix = part.text('continuing_subword_prefix', '##');
  const most = part.count('max_input_chars_per_word', 100);
  part.done();
  const model = new WordPiece({
    type: 'WordPiece',
    vocab: Object.fromEntries(vocabulary),
    unk_token: unknown,
    continuing_subword_prefix: prefix,
    max_input_chars_per_word: most,
  });
  return { type: 'WordPiece', vocabulary, encode: (piece) => idsOf(model.encode([piece]), vocabulary) };
}

function idsOf(tokens: readonly string[], vocabulary: ReadonlyMap<string, number>): number[] {
  const ids: number[] = [];
  for (const token of tokens) {
    const id = vocabulary.get(token);
    if (id !== undefined) ids.push(id);
  }
  return ids;
}
