// Texts with their classes, as rows of tokens: [CLS] text [SEP], and where there are two, the other one and [SEP] behind it,
// as tokens of another kind. What is longer than a row loses its end. Where records come from is records/labelled.ts.
//
// Invariant: a row has its marks whatever was cut off, and what fills it up is seen by no token.

import type { Labels } from '../formats/families/labels.ts';
import type { Host } from '../runtime/host.ts';
import { HoldfastError, shortened } from '../util/errors.ts';
import type { Batch } from './batches.ts';
import { classOf } from './classes.ts';
import { filesOf } from './corpus.ts';
import type { Dataset } from './dataset.ts';
import { type ExampleOptions, exampleDataset } from './examples.ts';
import { labelledRecords } from './records/labelled.ts';
import { PART, pauseBetween, type TextIdentity, type TokenizingOptions } from './tokenized-text.ts';
import type { Tokenizer } from './tokenizer.ts';

/** Tokens that stand for no text. */
interface Marks {
  /** In front of all, where the class is predicted. */
  readonly begin: number;
  /** Behind each text. */
  readonly end: number;
  /** Behind those. */
  readonly fill: number;
}

const SPELLED = [
  ['[CLS]', '[SEP]', '[PAD]'],
  ['<s>', '</s>', '<pad>'],
] as const;

/** Of bytes it is NUL, which text does not have. Errors: HoldfastError for a tokenizer without such tokens. */
function marksOf(tokenizer: Pick<Tokenizer, 'identity' | 'encode'>): Marks {
  const { identity } = tokenizer;
  if (identity.kind === 'byte') return { begin: 0, end: 0, fill: 0 };
  for (const spelled of SPELLED) {
    const [begin, end, fill = 0] = spelled.map((text) => {
      const [id, ...rest] = tokenizer.encode(text);
      return rest.length === 0 ? id : undefined;
    });
    if (begin !== undefined && end !== undefined) return { begin, end, fill };
  }
  throw new HoldfastError(
    `${identity.path}: has no tokens [CLS] and [SEP], nor <s> and </s>, between which a classifier reads a text; use the tokenizer of one`,
  );
}

/** Three marks, and a token between them. */
const LEAST_SEQ = 4;
/** 4 GiB of them. */
const MOST_TOKENS = 2 ** 30;

/** Rows in one growing run of memory. */
export class LabelledTexts {
  /** Of all files, joined. */
  readonly identity: TextIdentity;
  readonly names: readonly string[];
  readonly seq: number;
  /** Those that lost their end. */
  readonly longer: number;
  /** Tokens of the longest, before it lost any. */
  readonly longest: number;
  readonly #ids: Int32Array;
  readonly #ends: readonly number[];
  /** Where tokens of the second kind begin. */
  readonly #seconds: readonly number[];
  readonly #classes: readonly number[];
  readonly #fill: number;

  private constructor(
    rows: Rows,
    facts: Pick<LabelledTexts, 'identity' | 'names' | 'seq' | 'longer' | 'longest'>,
    fill: number,
  ) {
    ({ identity: this.identity, names: this.names, seq: this.seq } = facts);
    ({ longer: this.longer, longest: this.longest } = facts);
    [this.#ids, this.#ends, this.#seconds, this.#classes] = [rows.ids, rows.ends, rows.seconds, rows.classes];
    this.#fill = fill;
  }

  /**
   * Reads all records of the sources, in rows of `seq` tokens at most. Errors: HoldfastError naming the file, the line and
   * the field of what cannot be used, and where it is ended.
   */
  static async read(
    host: Host,
    sources: readonly string[],
    tokenizer: Pick<Tokenizer, 'identity' | 'encode'>,
    { labels, seq }: { readonly labels: Labels; readonly seq: number },
    options: TokenizingOptions = {},
  ): Promise<LabelledTexts> {
    if (seq < LEAST_SEQ)
      throw new HoldfastError(`rows of ${seq} tokens: with its marks, a text needs ${LEAST_SEQ} at least`);
    const marks = marksOf(tokenizer);
    const hash = await host.files.sha256();
    const names: string[] = [];
    let total = 0;
    for await (const { path, bytes } of filesOf(host.files, sources)) {
      names.push(path);
      total += bytes;
    }
    const rows = new Rows();
    let [bytes, longer, longest, encoded] = [0, 0, 0, 0];
    const onBytes = (piece: Uint8Array) => {
      hash.update(piece);
      bytes += piece.length;
    };
    for await (const { at, first, second, label } of labelledRecords(host, sources, { onBytes })) {
      const texts = [first, second].flatMap((text) => (text === undefined ? [] : [tokenizer.encode(text)]));
      const own = texts.reduce((sum, { length }) => sum + length + 1, 1);
      if (own > seq) longer++;
      longest = Math.max(longest, own);
      rows.add(cut(texts, seq - 1 - texts.length), marks, classOf(labels, label, at));
      encoded += first.length + (second?.length ?? 0);
      if (encoded < PART) continue;
      encoded = 0;
      await pauseBetween(bytes, total, options);
    }
    const identity = { bytes, sha256: hash.hex() };
    return new LabelledTexts(rows, { identity, names, seq, longer, longest }, marks.fill);
  }

  /** How many. */
  get count(): number {
    return this.#ends.length;
  }

  /** Some of them, and their classes (batch) as `targets`. */
  batch(chosen: readonly number[]): Batch {
    const { seq } = this;
    const size = chosen.length * seq;
    const [tokenTypes, attentionMask] = [new Int32Array(size), new Int32Array(size)];
    const ids = new Int32Array(size).fill(this.#fill);
    const targets = new Int32Array(chosen.length);
    chosen.forEach((text, row) => {
      const [begin, end] = [this.#ends[text - 1] ?? 0, this.#ends[text] ?? 0];
      const at = row * seq;
      ids.set(this.#ids.subarray(begin, end), at);
      attentionMask.fill(1, at, at + end - begin);
      tokenTypes.fill(1, at + (this.#seconds[text] ?? end) - begin, at + end - begin);
      targets[row] = this.#classes[text] ?? 0;
    });
    return { ids, tokenTypes, attentionMask, targets, batch: chosen.length, seq };
  }

  /** What became of them. */
  get note(): string {
    const { count, names, seq, longer, longest } = this;
    const number = (value: number) => value.toLocaleString('en');
    const files = names.length === 1 ? shortened(names[0] ?? '') : `${number(names.length)} files`;
    const cutOff = longer > 0 ? `, ${number(longer)} longer than ${number(seq)} and cut off` : '';
    return `${number(count)} texts with labels in ${files}, of ${number(longest)} tokens at most${cutOff}`;
  }
}

/** Texts of so many tokens together at most: of two, the longer one loses tokens until they are alike. */
function cut(texts: readonly Int32Array[], most: number): Int32Array[] {
  const [first, second] = texts;
  if (!first) return [];
  if (!second) return [first.subarray(0, most)];
  const half = most >> 1;
  const firstKept = Math.min(first.length, Math.max(most - half, most - second.length));
  return [first.subarray(0, firstKept), second.subarray(0, most - firstKept)];
}

class Rows {
  ids = new Int32Array(1024);
  readonly ends: number[] = [];
  readonly seconds: number[] = [];
  readonly classes: number[] = [];

  add(texts: readonly Int32Array[], { begin, end }: Marks, label: number): void {
    const [first = new Int32Array(), second] = texts;
    const from = this.ends.at(-1) ?? 0;
    const size = 2 + first.length + (second ? second.length + 1 : 0);
    if (from + size > MOST_TOKENS)
      throw new HoldfastError(
        `the data has more than ${MOST_TOKENS} tokens, which are held in memory; use a part of it`,
      );
    if (from + size > this.ids.length) {
      const grown = new Int32Array(Math.min(MOST_TOKENS, Math.max(from + size, 2 * this.ids.length)));
      grown.set(this.ids);
      this.ids = grown;
    }
    this.ids.set([begin], from);
    this.ids.set(first, from + 1);
    this.ids.set([end], from + 1 + first.length);
    const behind = from + 2 + first.length;
    if (second) {
      this.ids.set(second, behind);
      this.ids.set([end], behind + second.length);
    }
    this.ends.push(from + size);
    this.seconds.push(behind);
    this.classes.push(label);
  }
}

/** Epochs of texts. */
export function labelledDataset(
  { train, validation }: { readonly train: LabelledTexts; readonly validation: LabelledTexts | undefined },
  options: ExampleOptions,
): Dataset {
  const { identity } = train;
  const number = (value: number) => value.toLocaleString('en');
  const note = (trained: number, validated: number, unseen: number) =>
    `${train.note}; ${number(trained)} to train on, ${number(validated)} of ${number(unseen)} others to validate on`;
  return exampleDataset({ identity, word: 'text', train, test: validation, note }, options);
}
