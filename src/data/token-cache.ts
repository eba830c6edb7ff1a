// `TokenCache`: the cached ids of a text that was tokenized before, 8, 16 or 32 bits each, by the checksums of the text
// and the tokenizer, and by where what validates begins. Few of them are in memory, more than MOST_HELD stay in their
// file and are read from there. What a file of the cache is, and when it counts, is token-files.ts.
//
// Invariant: what is read is what was written.

import type { Files, Host, OpenFile } from '../runtime/host.ts';
import { HoldfastError, messageOf } from '../util/errors.ts';
import { heldBytes } from '../util/held.ts';
import { number, object, oneOf } from '../util/json.ts';
import { wholeNumber } from '../util/range.ts';
import type { TextIdentity } from './corpus.ts';
import { TokenFile, type TokenFileWriter } from './token-files.ts';
import { heldRun, type TokenIds, type TokenRange, type TokenRun } from './token-run.ts';
import type { Tokenizer } from './tokenizer.ts';

const FORMAT = 'holdfast tokens 2';
/** Bytes of ids. */
export const MOST_HELD = 2 ** 26;

type Width = 1 | 2 | 4;

interface Figures {
  readonly width: Width;
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

/** The error of ids that are too many to be held, and that could not be written. */
export class NotKept extends Error {}

export class TokenCache {
  readonly #files: Files;
  readonly #file: TokenFile<Figures>;
  readonly #width: Width;
  readonly #mostHeld: number;

  /** `border`: how many bytes of the text train. `mostHeld`: more bytes of ids are not held in memory. */
  static async at(
    host: Host,
    text: TextIdentity,
    border: number,
    { identity, vocabulary }: Pick<Tokenizer, 'identity' | 'vocabulary'>,
    mostHeld = MOST_HELD,
  ): Promise<TokenCache> {
    const content = [text, border, { ...identity, path: '' }];
    const file = await TokenFile.at(host, FORMAT, content, FIGURES);
    return new TokenCache(host.files, file, widthOf(vocabulary), mostHeld);
  }

  private constructor(files: Files, file: TokenFile<Figures>, width: Width, mostHeld: number) {
    this.#files = files;
    this.#file = file;
    this.#width = width;
    this.#mostHeld = mostHeld;
  }

  /** Undefined where there is none, or none that is whole. */
  async read(): Promise<TokenParts | undefined> {
    const found = await this.#file.read(this.#mostHeld);
    if (!found) return undefined;
    const { path, size, bytes, figures } = found;
    const { width, train, validation } = figures;
    if (width !== this.#width || (train + validation) * width !== size) return undefined;
    if (bytes) return heldParts(idsIn(bytes, width), train);
    const run = (first: number, length: number) => storedRun(this.#files, path, width, first, length);
    return { train: run(0, train), validation: run(train, validation) };
  }

  async writer(): Promise<TokenWriter> {
    const held = new HeldIds(this.#width, this.#mostHeld);
    const counts = { train: 0, validation: 0 };
    const out = await this.#file.writer();
    const add = async (part: keyof typeof counts, ids: TokenIds) => {
      if (ids.length === 0) return;
      counts[part] += ids.length;
      await out.write(held.add(ids));
      held.check(out);
    };
    return {
      train: (ids) => add('train', ids),
      validation: (ids) => add('validation', ids),
      finish: async () => {
        await out.finish({ width: this.#width, ...counts });
        if (!held.isWhole) return (await this.read()) ?? notKept();
        return heldParts(held.all(), counts.train);
      },
      abort: () => out.abort(),
    };
  }
}

const widthOf = (vocabulary: number): Width => (vocabulary <= 2 ** 8 ? 1 : vocabulary <= 2 ** 16 ? 2 : 4);

const idsIn = ({ buffer, byteOffset, length }: Uint8Array<ArrayBuffer>, width: Width): TokenIds => {
  if (width === 1) return new Uint8Array(buffer, byteOffset, length);
  return new (width === 2 ? Uint16Array : Uint32Array)(buffer, byteOffset, length / width);
};

const heldParts = (ids: TokenIds, train: number): TokenParts => ({
  train: heldRun(ids.subarray(0, train)),
  validation: heldRun(ids.subarray(train)),
});

function notKept(): never {
  throw new NotKept('the ids are too many to be held, and could not be written');
}

/** What was written, in memory too, until it is too much. */
class HeldIds {
  readonly #width: Width;
  readonly #most: number;
  readonly #chunks: Uint8Array<ArrayBuffer>[] = [];
  #bytes = 0;

  constructor(width: Width, most: number) {
    this.#width = width;
    this.#most = most;
  }

  get isWhole(): boolean {
    return this.#bytes <= this.#most;
  }

  /** As bytes of a file. */
  add(ids: TokenIds): Uint8Array<ArrayBuffer> {
    const wide = this.#width === 1 ? Uint8Array : this.#width === 2 ? Uint16Array : Uint32Array;
    const chunk = new Uint8Array(wide.from(ids).buffer);
    this.#bytes += chunk.length;
    if (this.isWhole) this.#chunks.push(chunk);
    else this.#chunks.length = 0;
    return chunk;
  }

  /** Errors: NotKept where they are neither here nor there. */
  check(out: Pick<TokenFileWriter<Figures>, 'isWhole'>): void {
    if (!this.isWhole && !out.isWhole) notKept();
  }

  /** Each chunk is given up as soon as it has been copied. */
  all(): TokenIds {
    const all = heldBytes(this.#bytes, 'the text, as tokens,', 'use a part of it');
    let at = 0;
    for (const [i, chunk] of this.#chunks.entries()) {
      all.set(chunk, at);
      at += chunk.length;
      this.#chunks[i] = NOTHING;
    }
    return idsIn(all, this.#width);
  }
}

const NOTHING = new Uint8Array();

/** So many ids of a file, from one on. It is opened for each batch: a run that ends has nothing to close. */
const storedRun = (files: Files, path: string, width: Width, first: number, length: number): TokenRun => ({
  length,
  async read(ranges) {
    let file: OpenFile | undefined;
    try {
      const open = await files.open(path);
      file = open;
      const read = ([begin, end]: TokenRange) =>
        open.readRange((first + begin) * width, (Math.min(end, length) - begin) * width);
      return (await Promise.all(ranges.map(read))).map((bytes) => idsIn(bytes, width));
    } catch (error) {
      throw new HoldfastError(
        `${messageOf(error)}: the text's tokens were in this file of the cache; go on from the last checkpoint, which makes it again`,
      );
    } finally {
      await file?.close();
    }
  },
});
