// Texts with their classes, as rows of tokens: [CLS] text [SEP], and where there are two, the other one and [SEP] behind it,
// as tokens of another kind. What is longer than a row loses its end. Where records come from is records/labelled.ts; what was
// read once is kept in the host's cache (record-cache.ts).
//
// Invariant: a row has its marks whatever was cut off, and what fills it up is seen by no token.

import type { Labels } from '../formats/families/labels.ts';
import type { Host } from '../runtime/host.ts';
import { counted } from '../util/counted.ts';
import { HoldfastError, shortened } from '../util/errors.ts';
import { number, object } from '../util/json.ts';
import { wholeNumber } from '../util/range.ts';
import type { Batch } from './batches.ts';
import { Bundles } from './bundles.ts';
import { classOf, countsOf, describeCounts } from './classes.ts';
import type { TextIdentity } from './corpus.ts';
import type { Dataset } from './dataset.ts';
import { EncodingQueue, type EncodingTokenizer } from './encoding-threads.ts';
import { type ExampleOptions, exampleDataset } from './examples.ts';
import { idOf, isMarked, type MarkedTexts } from './marked-texts.ts';
import { PART_SIZES, type ReadRecords, type RecordEncoding, readRecords } from './record-cache.ts';
import { labelledRecords } from './records/labelled.ts';
import type { TokenizingOptions } from './tokenized-text.ts';
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

/** What labelled texts are encoded with, and known by. */
export type LabelledTokenizer = EncodingTokenizer & Pick<Tokenizer, 'identity' | 'vocabulary'>;

/**
 * The marks that a tokenizer has around a text: of bytes they are NUL, which text does not have. Errors: HoldfastError
 * for a tokenizer without such tokens.
 */
function marksOf(tokenizer: Pick<Tokenizer, 'encode' | 'identity'>): Marks {
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
/** The number goes up where the same records become other rows than before. */
const FORMAT = 'holdfast labelled 1';

/** Figures of all rows. */
interface Figures {
  /** Those that lost their end. */
  readonly longer: number;
  /** Tokens of the longest, before it lost any. */
  readonly longest: number;
}

const FIGURES = object({ ...PART_SIZES, longer: number(wholeNumber(0)), longest: number(wholeNumber(0)) });

/** What texts become rows for: a model's classes, and its tokens in a row. */
interface Wanted {
  readonly labels: Labels;
  readonly seq: number;
}

/** Rows without what fills them up, and the class of each. */
export class LabelledTexts {
  /** Of all files, joined. */
  readonly identity: TextIdentity;
  readonly names: readonly string[];
  readonly seq: number;
  readonly #figures: Figures;
  /** Marked where tokens are of the second kind. */
  readonly #texts: MarkedTexts;
  readonly #classes: ReadRecords<Figures>['numbers'];
  readonly #fill: number;
  readonly #labels: Labels;

  private constructor(
    { texts, numbers, figures, identity, names }: ReadRecords<Figures>,
    { labels, seq }: Wanted,
    fill: number,
  ) {
    [this.identity, this.names, this.seq, this.#labels] = [identity, names, seq, labels];
    [this.#texts, this.#classes, this.#figures, this.#fill] = [texts, numbers, figures, fill];
  }

  /**
   * Reads all records of the sources, in rows of `seq` tokens at most. Errors: HoldfastError naming the file, the line and
   * the field of what cannot be used, and where it is ended.
   */
  static async read(
    host: Host,
    sources: readonly string[],
    tokenizer: LabelledTokenizer,
    wanted: Wanted,
    options: TokenizingOptions = {},
  ): Promise<LabelledTexts> {
    const { labels, seq } = wanted;
    checkRow(seq);
    const { identity } = tokenizer;
    const marks = marksOf(tokenizer);
    const deciders = [{ ...identity, path: '' }, marks, labels, seq];
    const encode = encoderOf(host, sources, { marks, ...wanted });
    const encoding = { sources, format: FORMAT, deciders, figures: FIGURES, tokenizer, encode };
    return new LabelledTexts(await readRecords<Figures>(host, encoding, options), wanted, marks.fill);
  }

  /** How many. */
  get count(): number {
    return this.#texts.count;
  }

  /** Some of them, and their classes (batch) as `targets`. Errors: as those of a TokenRun. */
  async batch(chosen: readonly number[]): Promise<Batch> {
    const { seq } = this;
    const size = chosen.length * seq;
    const [tokenTypes, attentionMask] = [new Int32Array(size), new Int32Array(size)];
    const ids = new Int32Array(size).fill(this.#fill);
    const targets = Int32Array.from(chosen, (text) => this.#classes[text] ?? 0);
    const rows = await this.#texts.read(chosen.map((text) => this.#texts.range(text)));
    for (const [row, marked] of rows.entries()) {
      const begin = row * seq;
      for (let token = 0; token < marked.length; token++) {
        const one = marked[token] ?? 0;
        ids[begin + token] = idOf(one);
        attentionMask[begin + token] = 1;
        tokenTypes[begin + token] = Number(isMarked(one));
      }
    }
    return { ids, tokenTypes, attentionMask, targets, batch: chosen.length, seq };
  }

  /** What became of them. */
  get note(): string {
    const { count, names, seq } = this;
    const { longer, longest } = this.#figures;
    const number = (value: number) => value.toLocaleString('en');
    const files = names.length === 1 ? shortened(names[0] ?? '') : `${number(names.length)} files`;
    const cutOff = longer > 0 ? `, ${number(longer)} longer than ${number(seq)} and cut off` : '';
    const classes = describeCounts(this.#labels, countsOf(this.#labels, Array.from(this.#classes)));
    return `${counted(count, 'text', number(count))} with labels in ${files} (${classes}), of ${counted(longest, 'token', number(longest))} at most${cutOff}`;
  }
}

const encoderOf =
  (
    host: Host,
    sources: readonly string[],
    { marks, labels, seq }: Wanted & { readonly marks: Marks },
  ): RecordEncoding<Figures>['encode'] =>
  async (_, rows, { encoder, onBytes, onEncoded }) => {
    const classes: number[] = [];
    let [longer, longest] = [0, 0];
    const add = (texts: readonly Int32Array[]) => {
      const own = texts.reduce((sum, { length }) => sum + length + 1, 1);
      if (own > seq) longer++;
      longest = Math.max(longest, own);
      const { row, second } = rowOf(marks, texts, seq);
      rows.add(row, (token) => token >= second);
    };
    const queue = new EncodingQueue<Bundle>(encoder, async ({ ids }, { items, characters }) => {
      let next = 0;
      for (const { length } of items) {
        add(ids.slice(next, next + length));
        next += length;
      }
      await onEncoded(characters);
    });
    const bundles = new Bundles<readonly string[]>((items, characters) =>
      queue.add({ texts: items.flat() }, { items, characters }),
    );
    for await (const { at, first, second, label } of labelledRecords(host, sources, { onBytes })) {
      classes.push(classOf(labels, label, at));
      await bundles.add(second === undefined ? [first] : [first, second], first.length + (second?.length ?? 0));
    }
    await bundles.end();
    await queue.end();
    return { numbers: classes, figures: { longer, longest } };
  };

function checkRow(seq: number): void {
  if (seq >= LEAST_SEQ) return;
  throw new HoldfastError(`rows of ${seq} tokens: with its marks, a text needs ${LEAST_SEQ} at least`);
}

/** What `texts` are to a classifier, and where the second one begins. */
function rowOf({ begin, end }: Marks, texts: readonly Int32Array[], seq: number): { row: Int32Array; second: number } {
  const [begun = [], other] = cut(texts, seq - 1 - texts.length);
  const row = Int32Array.from([begin, ...begun, end, ...(other ? [...other, end] : [])]);
  return { row, second: begun.length + 2 };
}

/** One text, or two, as the only row of a batch, of `seq` tokens. Errors: HoldfastError for a tokenizer without marks. */
export function textExample(
  tokenizer: Pick<Tokenizer, 'encode' | 'identity'>,
  texts: readonly string[],
  seq: number,
): Batch {
  checkRow(seq);
  const marks = marksOf(tokenizer);
  const encoded = texts.map((text) => tokenizer.encode(text));
  const { row, second } = rowOf(marks, encoded, seq);
  const ids = new Int32Array(seq).fill(marks.fill);
  ids.set(row);
  const attentionMask = new Int32Array(seq).fill(1, 0, row.length);
  const tokenTypes = new Int32Array(seq).fill(1, second, row.length);
  return { ids, tokenTypes, attentionMask, batch: 1, seq };
}

/** The texts of some records, one or two of each. */
interface Bundle {
  readonly items: readonly (readonly string[])[];
  readonly characters: number;
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

/** Epochs of texts. Errors: as `exampleDataset`. */
export async function labelledDataset(
  { train, validation }: { readonly train: LabelledTexts; readonly validation: LabelledTexts | undefined },
  options: ExampleOptions,
): Promise<Dataset> {
  const { identity } = train;
  const number = (value: number) => value.toLocaleString('en');
  const note = (trained: number, validated: number, unseen: number) =>
    `${train.note}; ${number(trained)} to train on, ${number(validated)} of ${number(unseen)} others to validate on`;
  return exampleDataset({ identity, word: 'text', train, test: validation, note }, options);
}
