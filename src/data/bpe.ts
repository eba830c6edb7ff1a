// Byte-level BPE trained on a text: which pairs of tokens become one, in which order. Words are GPT-2's (its pre-tokenizer),
// each counted once with its number of occurrences; written as the tokenizer.json that Hugging Face's libraries read.
//
// Invariant: the result depends on the text alone. The pair that occurs most often is merged; of equal ones, that with the
// lower left id, then the lower right id, as Hugging Face's trainer has it. Counted are adjacent places: "aaa" has two.

import { BYTE_CHARACTERS } from '../util/byte-characters.ts';
import { HoldfastError } from '../util/errors.ts';
import { BpeHeap } from './bpe-heap.ts';

/** Ends a text, and begins one: GPT-2's name for it. */
export const END_OF_TEXT = '<|endoftext|>';

/** Bytes, and the token that ends a text. */
export const LEAST_VOCABULARY = 257;
/** Merges take time and memory that grow with their number. */
export const MOST_VOCABULARY = 2 ** 18;

/** A merge of two tokens, by their ids; the n-th makes the token 257 + n. */
export type Merge = readonly [left: number, right: number];

/** How often each word occurs, in GPT-2's sense: with the space before it. */
export class WordCounts {
  readonly #counts = new Map<string, number>();
  readonly #most: number;
  #bytes = 0;

  /** `most`: different words. @default as many as a Map holds */
  constructor(most = MOST_WORDS) {
    this.#most = most;
  }

  /** Of a part of the text, which ends where a text may be cut. Errors: HoldfastError for more words than are counted. */
  add(text: string): void {
    for (const part of text.split(END_OF_TEXT)) {
      for (const [word] of part.matchAll(WORD)) {
        const count = this.#counts.get(word) ?? 0;
        if (count === 0 && this.#counts.size >= this.#most) {
          throw new HoldfastError(
            `the text has more than ${this.#most} different words, the most that are counted; use a part of it`,
          );
        }
        this.#counts.set(word, count + 1);
      }
    }
    this.#bytes += text.length;
  }

  get empty(): boolean {
    return this.#bytes === 0;
  }

  /** Longer words come in parts of so many bytes: a text of one endless word must not take endless time. */
  *words(longest = LONGEST_WORD): Generator<readonly [bytes: Uint8Array, count: number]> {
    const encoder = new TextEncoder();
    for (const [word, count] of this.#counts) {
      const bytes = encoder.encode(word);
      for (let at = 0; at < bytes.length; at += longest) yield [bytes.subarray(at, at + longest), count];
    }
  }
}

/** GPT-2's pattern, with white space as Unicode has it. */
const WORD =
  /'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\p{White_Space}\p{L}\p{N}]+|\p{White_Space}+(?!\P{White_Space})|\p{White_Space}+/gu;
const LONGEST_WORD = 1024;
const MOST_WORDS = 2 ** 24;
/** A pair that occurs once is nothing to learn from. */
const LEAST_COUNT = 2;

/** A pair as one number: ids are below 2^18. */
const PAIR = 2 ** 20;
const pairOf = (left: number, right: number): number => left * PAIR + right;

export interface TrainingProgress {
  readonly merges: number;
  readonly wanted: number;
}

/** Id of the first byte: before it is the token that ends a text. */
const FIRST_BYTE = 1;

/**
 * The merges of a vocabulary of so many tokens; fewer, where no pair is left that occurs twice. Pauses now and then, told
 * how far it is. Errors: HoldfastError for a size that is out of range, or no text.
 */
export async function trainMerges(
  counts: WordCounts,
  vocabulary: number,
  pause: (progress: TrainingProgress) => Promise<void> = async () => {},
): Promise<Merge[]> {
  if (!(Number.isSafeInteger(vocabulary) && vocabulary >= LEAST_VOCABULARY && vocabulary <= MOST_VOCABULARY)) {
    throw new HoldfastError(
      `a vocabulary of ${vocabulary} tokens: it may have ${LEAST_VOCABULARY} (the bytes and ${END_OF_TEXT}) to ${MOST_VOCABULARY}`,
    );
  }
  const corpus = new PairIndex(counts);
  const wanted = vocabulary - LEAST_VOCABULARY;
  const merges: Merge[] = [];
  while (merges.length < wanted) {
    const pair = corpus.best();
    if (pair === undefined) break;
    const merge: Merge = [Math.floor(pair / PAIR), pair % PAIR];
    corpus.merge(merge, LEAST_VOCABULARY + merges.length);
    merges.push(merge);
    if (merges.length % 64 === 0) await pause({ merges: merges.length, wanted });
  }
  return merges;
}

/** Words as tokens, and where each pair occurs in them. */
class PairIndex {
  readonly #words: number[][] = [];
  readonly #times: number[] = [];
  readonly #counts = new Map<number, number>();
  /** Words that have, or had, a pair. */
  readonly #places = new Map<number, Set<number>>();
  readonly #heap = new BpeHeap();

  constructor(counts: WordCounts) {
    // Parts of long words may be words that there are.
    for (const [bytes, times] of counts.words()) {
      const word = Array.from(bytes, (byte) => FIRST_BYTE + (RANK_OF_BYTE[byte] ?? 0));
      this.#words.push(word);
      this.#times.push(times);
      this.#count(this.#words.length - 1, word, times);
    }
    for (const [pair, count] of this.#counts) this.#heap.push(count, pair);
  }

  /** The next pair to merge; undefined when none occurs twice. */
  best(): number | undefined {
    for (let top = this.#heap.pop(); top; top = this.#heap.pop()) {
      const count = this.#counts.get(top.pair) ?? 0;
      if (count === top.count) return count >= LEAST_COUNT ? top.pair : undefined;
      // It has become rarer since.
      if (count > 0 && count < top.count) this.#heap.push(count, top.pair);
    }
    return undefined;
  }

  merge([left, right]: Merge, id: number): void {
    const pair = pairOf(left, right);
    const before = new Map<number, number>();
    for (const at of this.#places.get(pair) ?? []) {
      const word = this.#words[at] ?? [];
      const times = this.#times[at] ?? 0;
      const merged = mergedIn(word, left, right, id);
      if (merged.length === word.length) continue;
      this.#count(at, word, -times, before);
      this.#count(at, merged, times, before);
      this.#words[at] = merged;
    }
    this.#places.delete(pair);
    // Those that have become rarer are put right when they come up.
    for (const [other, was] of before) {
      const count = this.#counts.get(other) ?? 0;
      if (count > was) this.#heap.push(count, other);
      else if (count === 0) this.#forget(other);
    }
    this.#forget(pair);
  }

  #forget(pair: number): void {
    this.#counts.delete(pair);
    this.#places.delete(pair);
  }

  /** `before` gets what the count was. */
  #count(at: number, word: readonly number[], times: number, before?: Map<number, number>): void {
    let left: number | undefined;
    for (const right of word) {
      if (left !== undefined) {
        const pair = pairOf(left, right);
        const count = this.#counts.get(pair) ?? 0;
        if (before && !before.has(pair)) before.set(pair, count);
        this.#counts.set(pair, count + times);
        if (times > 0) {
          const places = this.#places.get(pair);
          if (places) places.add(at);
          else this.#places.set(pair, new Set([at]));
        }
      }
      left = right;
    }
  }
}

/** From the left: of "aaa", the first two. */
function mergedIn(word: readonly number[], left: number, right: number, id: number): number[] {
  const merged: number[] = [];
  for (let i = 0; i < word.length; i++) {
    const found = word[i] === left && word[i + 1] === right;
    merged.push(found ? id : (word[i] ?? 0));
    if (found) i++;
  }
  return merged;
}

/** Bytes in the order of the characters that stand for them, as Hugging Face's trainer numbers them. */
const BYTES_BY_CHARACTER = BYTE_CHARACTERS.map((character, byte) => ({ character, byte })).sort((a, b) =>
  a.character < b.character ? -1 : 1,
);
const RANK_OF_BYTE = new Uint16Array(256);
BYTES_BY_CHARACTER.forEach(({ byte }, rank) => {
  RANK_OF_BYTE[byte] = rank;
});

/** The files of a tokenizer with these merges, by name: as Hugging Face's libraries load them. */
export function bpeTokenizerFiles(merges: readonly Merge[]): Record<string, string> {
  const tokens = [END_OF_TEXT, ...BYTES_BY_CHARACTER.map(({ character }) => character)];
  const written: string[] = [];
  for (const [left, right] of merges) {
    const [a = '', b = ''] = [tokens[left], tokens[right]];
    tokens.push(a + b);
    written.push(`${a} ${b}`);
  }
  const byteLevel = { type: 'ByteLevel', add_prefix_space: false, trim_offsets: true, use_regex: true };
  const added = { single_word: false, lstrip: false, rstrip: false, normalized: false, special: true };
  const tokenizer = {
    version: '1.0',
    truncation: null,
    padding: null,
    added_tokens: [{ id: 0, content: END_OF_TEXT, ...added }],
    normalizer: null,
    pre_tokenizer: byteLevel,
    post_processor: null,
    decoder: byteLevel,
    model: {
      ...{ type: 'BPE', dropout: null, unk_token: null, continuing_subword_prefix: null, end_of_word_suffix: null },
      ...{ fuse_unk: false, byte_fallback: false, ignore_merges: false },
      vocab: Object.fromEntries(tokens.map((token, id) => [token, id])),
      merges: written,
    },
  };
  const special = { bos_token: END_OF_TEXT, eos_token: END_OF_TEXT, unk_token: END_OF_TEXT };
  const config = {
    ...{ add_prefix_space: false, ...special, clean_up_tokenization_spaces: false },
    tokenizer_class: 'PreTrainedTokenizerFast',
  };
  const text = (json: unknown) => `${JSON.stringify(json, undefined, 2)}\n`;
  return {
    'tokenizer.json': text(tokenizer),
    'tokenizer_config.json': text(config),
    'special_tokens_map.json': text(special),
    'generation_config.json': text({ bos_token_id: 0, eos_token_id: 0 }),
  };
}
