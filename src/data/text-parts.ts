// Parts of a text that comes in bytes: encoded as soon as there is a place to cut, some of them at once, or taken as they are where
// bytes are tokens.
//
// Invariant: what is taken, joined, are the ids of the whole.

import { at } from '../util/at.ts';
import { HoldfastError } from '../util/errors.ts';
import { type Encoder, EncodingQueue } from './encoding-threads.ts';
import type { TokenIds } from './token-run.ts';
import type { Tokenizer } from './tokenizer.ts';

/** Characters that are encoded between two pauses: some hundredths of a second. */
export const PART = 2 ** 15;
/** A text with no place to cut is held until its end. */
export const MOST_UNCUT = 2 ** 28;

/** Gets ids, in order. */
export type Take = (ids: TokenIds) => Promise<void>;
/** Is told how many bytes of the text are encoded, and lets others work. */
export type Pause = (done: number) => Promise<void>;

/** The parts of a text whose tokens are its bytes. */
export class ByteParts {
  readonly #take: Take;
  readonly #pause: Pause;
  empty = true;

  constructor(take: Take, pause: Pause) {
    this.#take = take;
    this.#pause = pause;
  }

  /** `first`: the bytes of the text before these. */
  async add(bytes: Uint8Array, first: number): Promise<void> {
    if (bytes.length === 0) return;
    this.empty = false;
    await this.#take(bytes);
    await this.#pause(first + bytes.length);
  }

  /** Nothing is left. */
  async end(): Promise<void> {}
}

/** How a text is encoded, and where its ids go. */
export interface PartEncoding {
  readonly tokenizer: Pick<Tokenizer, 'nextCut'>;
  readonly encoder: Encoder;
  readonly take: Take;
  readonly pause: Pause;
}

/** The parts of a text in a tokenizer's tokens. */
export class EncodedParts {
  readonly #tokenizer: PartEncoding['tokenizer'];
  /** With each part, about so many bytes of the text are before the next. */
  readonly #queue: EncodingQueue<number>;
  readonly #decoder = new TextDecoder('utf-8', { ignoreBOM: true });
  #text = '';
  /** Up to here there is no place to cut behind the first part. */
  #searched = 0;
  /** Where what was added ends. */
  #end = 0;
  #ended = false;
  empty = true;

  constructor({ tokenizer, encoder, take, pause }: PartEncoding) {
    this.#tokenizer = tokenizer;
    this.#queue = new EncodingQueue<number>(encoder, async ({ ids }, done) => {
      await take(at(ids, 0));
      await pause(done);
    });
  }

  /** `first`: the bytes of the text before these. Errors: HoldfastError for a text that cannot be cut. */
  async add(bytes: Uint8Array, first: number): Promise<void> {
    if (bytes.length === 0) return;
    this.empty = false;
    this.#end = first + bytes.length;
    this.#text += this.#decoder.decode(bytes, { stream: true });
    let begin = 0;
    while (this.#text.length - begin > PART) {
      const cut = this.#tokenizer.nextCut?.(this.#text, Math.max(begin + PART, this.#searched));
      if (!cut) break;
      const part = this.#text.slice(begin, cut.end);
      begin = cut.begin;
      const share = begin / this.#text.length;
      await this.#queue.add({ texts: [part] }, first + Math.floor(share * bytes.length));
    }
    this.#text = this.#text.slice(begin);
    // What a place is, is seen from the character before it to two behind it.
    this.#searched = Math.max(0, this.#text.length - 4);
    if (this.#text.length > MOST_UNCUT) {
      throw new HoldfastError(
        `the text has ${this.#text.length} characters in which it cannot be cut for this tokenizer; split it into files of less than ${MOST_UNCUT}, with spaces or lines`,
      );
    }
  }

  /** What is left of it. */
  async end(): Promise<void> {
    if (this.#ended || this.empty) return;
    this.#ended = true;
    await this.#queue.add({ texts: [this.#text + this.#decoder.decode()] }, this.#end);
    this.#text = '';
    await this.#queue.end();
  }
}
