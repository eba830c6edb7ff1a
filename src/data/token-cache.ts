// Token files in the host's cache folder: the ids of a text that was tokenized before, 16 or 32 bits each, by the checksums
// of the text and the tokenizer, and by where what validates begins. Each ends with a line that says how many there are and what their checksum is.
//
// Invariant: what is read is what was written. A file that is damaged, cut off or of another format counts as not there and
// is made again; a cache that cannot be written costs time only. The oldest go when there are more bytes than MOST_BYTES.

import { type Files, type Host, join, type Sha256, type WriteStream } from '../runtime/host.ts';
import { accept, number, object, oneOf, parseJSON, text } from '../util/json.ts';
import { wholeNumber } from '../util/range.ts';
import type { Tokens } from './batches.ts';
import type { TextIdentity } from './tokenized-text.ts';
import type { Tokenizer } from './tokenizer.ts';

const FORMAT = 'holdfast tokens 1';
const FOLDER = 'tokens';
const TRAILER_BYTES = 256;
const PIECE_BYTES = 4 * 2 ** 20;
const MOST_BYTES = 2 ** 31;
const NAME = /^(\d{8})-([0-9a-f]{64})\.tokens$/;

const TRAILER = object({
  format: oneOf([FORMAT]),
  width: oneOf([2, 4]),
  train: number(wholeNumber(0)),
  validation: number(wholeNumber(0)),
  sha256: text,
});

/** Ids to train on, and to validate with. */
export interface TokenParts {
  readonly train: Tokens;
  readonly validation: Tokens;
}

/** Takes ids in order, those to train on first; what it has taken, `finish` gives back. */
export interface TokenWriter {
  train(ids: Int32Array): Promise<void>;
  validation(ids: Int32Array): Promise<void>;
  finish(): Promise<TokenParts>;
  abort(): Promise<void>;
}

export class TokenCache {
  readonly #files: Files;
  readonly #folder: string;
  readonly #key: string;
  readonly #width: 2 | 4;

  /** `border`: how many bytes of the text train. */
  static async at(host: Host, text: TextIdentity, border: number, tokenizer: Tokenizer): Promise<TokenCache> {
    const sum = await host.files.sha256();
    const key = JSON.stringify([FORMAT, text, border, { ...tokenizer.identity, path: '' }]);
    sum.update(new TextEncoder().encode(key));
    return new TokenCache(host, sum.hex(), tokenizer.vocabulary <= 2 ** 16 ? 2 : 4);
  }

  private constructor({ files, cacheFolder }: Host, key: string, width: 2 | 4) {
    this.#files = files;
    this.#folder = join(cacheFolder, FOLDER);
    this.#key = key;
    this.#width = width;
  }

  /** Undefined where there is none, or none that is whole. */
  async read(): Promise<TokenParts | undefined> {
    try {
      for (const name of await this.#names())
        if (name.includes(this.#key)) return await this.#readFile(join(this.#folder, name));
    } catch {
      // It is made again.
    }
    return undefined;
  }

  async writer(): Promise<TokenWriter> {
    const chunks: Uint8Array<ArrayBuffer>[] = [];
    const counts = { train: 0, validation: 0 };
    const sum = await this.#files.sha256();
    const out = await OptionalFile.open(this.#files, this.#folder, () => this.#nextName());
    const add = async (part: keyof typeof counts, ids: Int32Array) => {
      if (ids.length === 0) return;
      counts[part] += ids.length;
      const bytes = new Uint8Array(this.#wide(ids).buffer);
      chunks.push(bytes);
      sum.update(bytes);
      await out.write(bytes);
    };
    return {
      train: (ids) => add('train', ids),
      validation: (ids) => add('validation', ids),
      finish: async () => {
        await out.finish(trailerOf({ width: this.#width, ...counts }, sum));
        await this.#removeOldest();
        const all = new Uint8Array((counts.train + counts.validation) * this.#width);
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

  async #readFile(path: string): Promise<TokenParts | undefined> {
    const bytes = (await this.#files.stat(path))?.bytes ?? 0;
    const size = bytes - TRAILER_BYTES;
    if (size < 0) return undefined;
    const trailer = accept(TRAILER, parseJSON(await this.#files.readRange(path, size, TRAILER_BYTES), path, ''));
    if (trailer?.width !== this.#width || (trailer.train + trailer.validation) * this.#width !== size) return undefined;
    const all = new Uint8Array(size);
    const sum = await this.#files.sha256();
    for (let at = 0; at < size; at += PIECE_BYTES) {
      const piece = await this.#files.readRange(path, at, Math.min(PIECE_BYTES, size - at));
      sum.update(piece);
      all.set(piece, at);
    }
    return sum.hex() === trailer.sha256 ? this.#parts(all, trailer.train) : undefined;
  }

  async #names(): Promise<string[]> {
    if ((await this.#files.stat(this.#folder))?.kind !== 'folder') return [];
    return (await this.#files.list(this.#folder)).filter((name) => NAME.test(name)).sort();
  }

  /** One that is damaged is replaced; else the number after the newest. */
  async #nextName(): Promise<string> {
    const names = await this.#names();
    const same = names.find((name) => name.includes(this.#key));
    if (same) return same;
    const newest = Number(NAME.exec(names.at(-1) ?? '')?.[1] ?? 0);
    return `${String(newest + 1).padStart(8, '0')}-${this.#key}.tokens`;
  }

  async #removeOldest(): Promise<void> {
    try {
      const names = await this.#names();
      const sizes = await Promise.all(
        names.map(async (name) => (await this.#files.stat(join(this.#folder, name)))?.bytes ?? 0),
      );
      let total = sizes.reduce((a, b) => a + b, 0);
      for (const [i, name] of names.slice(0, -1).entries()) {
        if (total <= MOST_BYTES) return;
        await this.#files.remove(join(this.#folder, name));
        total -= sizes[i] ?? 0;
      }
    } catch {
      // The next one tries again.
    }
  }
}

const NOTHING = new Uint8Array();

function trailerOf(figures: { width: number; train: number; validation: number }, sum: Sha256): Uint8Array {
  const json = JSON.stringify({ format: FORMAT, ...figures, sha256: sum.hex() });
  return new TextEncoder().encode(`${json.padEnd(TRAILER_BYTES - 1)}\n`);
}

/** A file that is written as long as that works: without it, only time is lost. */
class OptionalFile {
  #stream: WriteStream | undefined;

  static async open(files: Files, folder: string, name: () => Promise<string>): Promise<OptionalFile> {
    try {
      await files.makeFolder(folder);
      return new OptionalFile(await files.writeStream(join(folder, await name())));
    } catch {
      return new OptionalFile(undefined);
    }
  }

  private constructor(stream: WriteStream | undefined) {
    this.#stream = stream;
  }

  write(bytes: Uint8Array): Promise<void> {
    return this.#try((stream) => stream.write(bytes));
  }

  finish(last: Uint8Array): Promise<void> {
    return this.#try(async (stream) => {
      await stream.write(last);
      await stream.commit();
    });
  }

  async abort(): Promise<void> {
    await this.#stream?.abort();
    this.#stream = undefined;
  }

  async #try(work: (stream: WriteStream) => Promise<void>): Promise<void> {
    try {
      if (this.#stream) await work(this.#stream);
    } catch {
      await this.abort();
    }
  }
}
