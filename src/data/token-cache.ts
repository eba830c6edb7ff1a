// `TokenCache`: the cached ids of a text that was tokenized before, 8, 16 or 32 bits each, by the checksums of the text
// and the tokenizer, and by where what validates begins. What a file of the cache is, when it counts, and when its bytes are
// held in memory, is token-files.ts.
//
// Invariant: what is read is what was written.

import type { Host } from '../runtime/host.ts';
import { assert } from '../util/errors.ts';
import { number, object, oneOf } from '../util/json.ts';
import { wholeNumber } from '../util/range.ts';
import type { TextIdentity } from './corpus.ts';
import { type CachedBytes, TokenFile } from './token-files.ts';
import { cachedRun, type IdBytes, type TokenIds, type TokenRun } from './token-run.ts';
import type { Tokenizer } from './tokenizer.ts';

const FORMAT = 'holdfast tokens 2';

interface Figures {
  readonly width: IdBytes;
  readonly train: number;
  readonly validation: number;
}

const FIGURES = object({
  width: oneOf([1, 2, 4]),
  train: number(wholeNumber(0)),
  validation: number(wholeNumber(0)),
});

/** Ids to train on, and to validate with. */
export interface TokenParts {
  readonly train: TokenRun;
  readonly validation: TokenRun;
}

/** Takes ids in order, those to train on first; what it has taken, `finish` gives back. Errors: NotKept. */
export interface TokenWriter {
  train(ids: TokenIds): Promise<void>;
  validation(ids: TokenIds): Promise<void>;
  finish(): Promise<TokenParts>;
  abort(): Promise<void>;
}

export class TokenCache {
  readonly #file: TokenFile<Figures>;
  readonly #width: IdBytes;
  readonly #mostHeld: number | undefined;

  /** `border`: how many bytes of the text train. `mostHeld`: more bytes of ids are not held in memory. */
  static async at(
    host: Host,
    text: TextIdentity,
    border: number,
    { identity, vocabulary }: Pick<Tokenizer, 'identity' | 'vocabulary'>,
    mostHeld?: number,
  ): Promise<TokenCache> {
    const content = [text, border, { ...identity, path: '' }];
    const file = await TokenFile.at(host, FORMAT, content, FIGURES);
    return new TokenCache(file, widthOf(vocabulary), mostHeld);
  }

  private constructor(file: TokenFile<Figures>, width: IdBytes, mostHeld: number | undefined) {
    this.#file = file;
    this.#width = width;
    this.#mostHeld = mostHeld;
  }

  /** Undefined where there is none, or none that is whole. */
  async read(): Promise<TokenParts | undefined> {
    const found = await this.#file.read(this.#mostHeld);
    return found && this.#partsOf(found);
  }

  async writer(): Promise<TokenWriter> {
    const counts = { train: 0, validation: 0 };
    const out = await this.#file.writer(this.#mostHeld);
    const wide = this.#width === 1 ? Uint8Array : this.#width === 2 ? Uint16Array : Uint32Array;
    const add = async (part: keyof typeof counts, ids: TokenIds) => {
      if (ids.length === 0) return;
      counts[part] += ids.length;
      await out.write(new Uint8Array(wide.from(ids).buffer));
    };
    return {
      train: (ids) => add('train', ids),
      validation: (ids) => add('validation', ids),
      finish: async () => {
        const parts = this.#partsOf(await out.finish({ width: this.#width, ...counts }));
        assert(parts, 'what was written has the width and the counts that it says');
        return parts;
      },
      abort: () => out.abort(),
    };
  }

  /** Undefined where they cannot be a text's of this width. */
  #partsOf(cached: CachedBytes<Figures>): TokenParts | undefined {
    const { width, train, validation } = cached.figures;
    if (width !== this.#width || (train + validation) * width !== cached.size) return undefined;
    const run = (first: number, length: number) => cachedRun(cached, width, first, length);
    return { train: run(0, train), validation: run(train, validation) };
  }
}

const widthOf = (vocabulary: number): IdBytes => (vocabulary <= 2 ** 8 ? 1 : vocabulary <= 2 ** 16 ? 2 : 4);
