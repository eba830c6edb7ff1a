// Texts as tokens, each token with a mark or without one, one text behind the other: in memory, or where there are many in the
// file of the cache (record-cache.ts) that they were written to. What a mark says of a token is for documents.ts and labelled-texts.ts.
//
// Invariant: of a vocabulary of 32,768 at most a token takes 2 bytes with its mark, else 4.

import { assert, HoldfastError } from '../util/errors.ts';
import type { IdBytes, TokenIds, TokenRange, TokenRun } from './token-run.ts';

/** Where a text ends is kept in 32 bits. */
const MOST_TOKENS = 2 ** 32 - 1;

/** Bytes of a token with its mark. */
export const markedBytes = (vocabulary: number): IdBytes => (vocabulary <= 2 ** 15 ? 2 : 4);

/** The id of a token that is kept with its mark: twice that, and one more where there is a mark. */
export const idOf = (marked: number): number => marked >>> 1;

/** Whether a token has a mark. */
export const isMarked = (marked: number): boolean => (marked & 1) === 1;

/** Many texts, to be read. */
export class MarkedTexts {
  readonly #marked: TokenRun;
  readonly #ends: Uint32Array;

  /** Undefined where a text has no token, or the last does not end where the tokens do. `marked`: see `idOf`. */
  static of(marked: TokenRun, ends: Uint32Array): MarkedTexts | undefined {
    const areEnds = ends.every((end, i) => end > (ends[i - 1] ?? 0));
    return areEnds && (ends.at(-1) ?? 0) === marked.length ? new MarkedTexts(marked, ends) : undefined;
  }

  private constructor(marked: TokenRun, ends: Uint32Array) {
    this.#marked = marked;
    this.#ends = ends;
  }

  /** How many. */
  get count(): number {
    return this.#ends.length;
  }

  /** Of all. */
  get tokens(): number {
    return this.#marked.length;
  }

  /** Where a text begins and ends among the tokens. */
  range(text: number): TokenRange {
    const end = this.#ends[text];
    assert(end !== undefined, `there is no text ${text}`);
    return [this.#ends[text - 1] ?? 0, end];
  }

  /** Tokens with their marks, see `idOf`; not to be changed. Errors: as those of a TokenRun. */
  read(ranges: readonly TokenRange[]): Promise<TokenIds[]> {
    return this.#marked.read(ranges);
  }
}

/** Takes texts in order, as they are kept. */
export class MarkedTextsWriter {
  readonly width: IdBytes;
  readonly #ends: number[] = [];
  /** Those that were not taken away yet. */
  #marked: (Uint16Array<ArrayBuffer> | Uint32Array<ArrayBuffer>)[] = [];

  constructor(vocabulary: number) {
    this.width = markedBytes(vocabulary);
  }

  /** Texts so far. */
  get count(): number {
    return this.#ends.length;
  }

  /** Of all texts so far. */
  get tokens(): number {
    return this.#ends.at(-1) ?? 0;
  }

  /** Appends one, of one token at least. Errors: HoldfastError where there are too many. */
  add(ids: Int32Array, isMarked: (token: number) => boolean): void {
    const end = this.tokens + ids.length;
    if (end > MOST_TOKENS) throw new HoldfastError(`the data has more than ${MOST_TOKENS} tokens; use a part of it`);
    const marked = new (this.width === 2 ? Uint16Array : Uint32Array)(ids.length);
    for (const [i, id] of ids.entries()) marked[i] = 2 * id + Number(isMarked(i));
    this.#marked.push(marked);
    this.#ends.push(end);
  }

  /** The tokens that were added since they were taken last. */
  take(): Uint8Array<ArrayBuffer> {
    const bytes = new Uint8Array(this.#marked.reduce((sum, { byteLength }) => sum + byteLength, 0));
    let at = 0;
    for (const { buffer } of this.#marked) {
      bytes.set(new Uint8Array(buffer), at);
      at += buffer.byteLength;
    }
    this.#marked = [];
    return bytes;
  }

  /** Where all texts end. */
  ends(): Uint32Array<ArrayBuffer> {
    return Uint32Array.from(this.#ends);
  }
}
