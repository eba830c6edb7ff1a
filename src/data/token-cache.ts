// The cached ids of a text that was tokenized before, 16 or 32 bits each, by the checksums of the text and the tokenizer, and by
// where what validates begins. What a file of the cache is, and when it counts, is token-files.ts.
//
// Invariant: what is read is what was written.

import type { Host } from '../runtime/host.ts';
import { heldBytes } from '../util/held.ts';
import { number, object, oneOf } from '../util/json.ts';
import { wholeNumber } from '../util/range.ts';
import type { TokenIds } from './batches.ts';
import type { TextIdentity } from './corpus.ts';
import { TokenFile } from './token-files.ts';
import type { Tokenizer } from './tokenizer.ts';

const FORMAT = 'holdfast tokens 2';

interface Figures {
  readonly width: 2 | 4;
  readonly train: number;
  readonly validation: number;
}

const FIGURES = object({
  width: oneOf([2, 4]),
  train: number(wholeNumber(0)),
  validation: number(wholeNumber(0)),
});

/** Ids to train on, and to validate with. */
export interface TokenParts {
  readonly train: TokenIds;
  readonly validation: TokenIds;
}

/** Takes ids in order, those to train on first; what it has taken, `finish` gives back. */
export interface TokenWriter {
  train(ids: Int32Array): Promise<void>;
  validation(ids: Int32Array): Promise<void>;
  finish(): Promise<TokenParts>;
  abort(): Promise<void>;
}

export class TokenCache {
  readonly #file: TokenFile<Figures>;
  readonly #width: 2 | 4;

  /** `border`: how many bytes of the text train. */
  static async at(host: Host, text: TextIdentity, border: number, tokenizer: Tokenizer): Promise<TokenCache> {
    const content = [text, border, { ...tokenizer.identity, path: '' }];
    const file = await TokenFile.at(host, FORMAT, content, FIGURES);
    return new TokenCache(file, tokenizer.vocabulary <= 2 ** 16 ? 2 : 4);
  }

  private constructor(file: TokenFile<Figures>, width: 2 | 4) {
    this.#file = file;
    this.#width = width;
  }

  /** Undefined where there is none, or none that is whole. */
  async read(): Promise<TokenParts | undefined> {
    const found = await this.#file.read();
    if (!found) return undefined;
    const { width, train, validation } = found.figures;
    const isWhole = width === this.#width && (train + validation) * width === found.bytes.length;
    return isWhole ? this.#parts(found.bytes, train) : undefined;
  }

  async writer(): Promise<TokenWriter> {
    const chunks: Uint8Array<ArrayBuffer>[] = [];
    const counts = { train: 0, validation: 0 };
    const out = await this.#file.writer();
    const add = async (part: keyof typeof counts, ids: Int32Array) => {
      if (ids.length === 0) return;
      counts[part] += ids.length;
      const bytes = new Uint8Array(this.#wide(ids).buffer);
      chunks.push(bytes);
      await out.write(bytes);
    };
    return {
      train: (ids) => add('train', ids),
      validation: (ids) => add('validation', ids),
      finish: async () => {
        await out.finish({ width: this.#width, ...counts });
        const all = heldBytes((counts.train + counts.validation) * this.#width, TEXT, 'use a part of it');
        let at = 0;
        // Each is given up as soon as it has been copied.
        for (const [i, chunk] of chunks.entries()) {
          all.set(chunk, at);
          at += chunk.length;
          chunks[i] = NOTHING;
        }
        return this.#parts(all, counts.train);
      },
      abort: () => out.abort(),
    };
  }

  #wide(ids: Int32Array): Uint16Array<ArrayBuffer> | Uint32Array<ArrayBuffer> {
    return this.#width === 2 ? Uint16Array.from(ids) : Uint32Array.from(ids);
  }

  #parts({ buffer }: Uint8Array<ArrayBuffer>, train: number): TokenParts {
    const ids = this.#width === 2 ? new Uint16Array(buffer) : new Uint32Array(buffer);
    return { train: ids.subarray(0, train), validation: ids.subarray(train) };
  }
}

const NOTHING = new Uint8Array();
const TEXT = 'the text, as tokens,';
