// Texts as tokens, each token with a mark or without one, in one growing run of memory: as they lie in a file of the cache
// (record-cache.ts), too. What a mark says of a token is for documents.ts and labelled-texts.ts.
//
// Invariant: of a vocabulary of 32,768 at most a token takes 2 bytes with its mark, else 4.

import { assert, HoldfastError } from '../util/errors.ts';
import { heldBytes } from '../util/held.ts';

/** 4 GiB of them. */
const MOST_TOKENS = 2 ** 30;

/** Twice the id, and one more where there is a mark. */
type MarkedIds = Uint16Array<ArrayBuffer> | Uint32Array<ArrayBuffer>;

/** Many texts, one behind the other. */
export class MarkedTexts {
  #marked: MarkedIds;
  readonly #ends: number[] = [];

  constructor(vocabulary = Number.POSITIVE_INFINITY) {
    this.#marked = vocabulary <= 2 ** 15 ? new Uint16Array(1024) : new Uint32Array(1024);
  }

  /**
   * Those whose tokens and ends these are: `tokenBytes` and `endBytes` of one with the same vocabulary. Undefined where they
   * cannot be.
   */
  static from(vocabulary: number, tokens: Uint8Array<ArrayBuffer>, ends: Uint32Array): MarkedTexts | undefined {
    const texts = new MarkedTexts(vocabulary);
    const { BYTES_PER_ELEMENT: width } = texts.#marked;
    const count = tokens.length / width;
    const areEnds = ends.every((end, i) => end > (ends[i - 1] ?? 0));
    if (!areEnds || (ends.at(-1) ?? 0) !== count) return undefined;
    const { buffer, byteOffset } = tokens;
    texts.#marked = new (width === 2 ? Uint16Array : Uint32Array)(buffer, byteOffset, count);
    for (const end of ends) texts.#ends.push(end);
    return texts;
  }

  /** How many. */
  get count(): number {
    return this.#ends.length;
  }

  /** Of all. */
  get tokens(): number {
    return this.#ends.at(-1) ?? 0;
  }

  /** Where a text begins and ends among the tokens. */
  range(text: number): readonly [begin: number, end: number] {
    const end = this.#ends[text];
    assert(end !== undefined, `there is no text ${text}`);
    return [this.#ends[text - 1] ?? 0, end];
  }

  /** A token's id. */
  id(token: number): number {
    return (this.#marked[token] ?? 0) >>> 1;
  }

  /** Whether a token has a mark. */
  isMarked(token: number): boolean {
    return ((this.#marked[token] ?? 0) & 1) === 1;
  }

  /** Tokens from one on, as they are kept; not to be changed. */
  tokenBytes(from: number): Uint8Array<ArrayBuffer> {
    const { buffer, byteOffset, BYTES_PER_ELEMENT: width } = this.#marked;
    return new Uint8Array(buffer, byteOffset + from * width, (this.tokens - from) * width);
  }

  /** Where all texts end, as they are kept. */
  endBytes(): Uint8Array<ArrayBuffer> {
    return new Uint8Array(Uint32Array.from(this.#ends).buffer);
  }

  /** Appends one, of one token at least. Errors: HoldfastError where there are too many. */
  add(ids: Int32Array, isMarked: (token: number) => boolean): void {
    const begin = this.tokens;
    const end = begin + ids.length;
    if (end > MOST_TOKENS) {
      throw new HoldfastError(
        `the data has more than ${MOST_TOKENS} tokens, which are held in memory; use a part of it`,
      );
    }
    if (end > this.#marked.length) {
      const length = Math.min(MOST_TOKENS, Math.max(end, 2 * this.#marked.length));
      const { buffer } = heldBytes(length * this.#marked.BYTES_PER_ELEMENT, 'the data, as tokens,', 'use a part of it');
      const grown = new (this.#marked instanceof Uint16Array ? Uint16Array : Uint32Array)(buffer);
      grown.set(this.#marked.subarray(0, begin));
      this.#marked = grown;
    }
    for (const [i, id] of ids.entries()) this.#marked[begin + i] = 2 * id + Number(isMarked(i));
    this.#ends.push(end);
  }
}
