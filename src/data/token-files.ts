// Files of tokens in the host's cache folder: what was tokenized before, by the checksum of all that decides it. A file is
// its bytes, a line of figures that say how to read them, and a checksum of its key, the bytes and the figures.
//
// Invariant: what is read is what was written under the same key. A file that is damaged, cut off, of another format or
// another key counts as not there and is made again; a cache that cannot be written costs time only. The oldest go when
// there are more bytes than MOST_BYTES, but for those that this process reads from.

import { type Files, type Host, join, type Sha256, type WriteStream } from '../runtime/host.ts';
import { accept, number, object, oneOf, parseJSON, type Schema } from '../util/json.ts';
import { wholeNumber } from '../util/range.ts';

const FOLDER = 'tokens';
const FIGURES_BYTES = 447;
/** The figures, the checksum, and a line's end. */
const TRAILER_BYTES = FIGURES_BYTES + 64 + 1;
const PIECE_BYTES = 4 * 2 ** 20;
const MOST_BYTES = 2 ** 31;
const NAME = /^(\d{8})-([0-9a-f]{64})\.tokens$/;

/** Paths of files that are read from as long as the process lives. */
const inUse = new WeakMap<Files, Set<string>>();

/** A file that is whole. */
interface FoundTokenFile<F> {
  readonly figures: F;
  readonly path: string;
  /** Bytes, which lie in it from its first on. */
  readonly size: number;
  /** Absent where they are too many. */
  readonly bytes?: Uint8Array<ArrayBuffer>;
}

/** Takes a file's bytes in order. After `finish` they are in the cache, or could not be written. */
export interface TokenFileWriter<F> {
  /** Whether all of them were written so far. */
  readonly isWhole: boolean;
  write(bytes: Uint8Array): Promise<void>;
  finish(figures: F): Promise<void>;
  abort(): Promise<void>;
}

/** A file of the cache, there or not. */
export class TokenFile<F> {
  readonly #files: Files;
  readonly #folder: string;
  readonly #key: string;
  readonly #trailer: Schema<{ format: string; bytes: number; figures: F }>;
  readonly #format: string;

  /** `content`: all that decides it, as plain JSON. `format` has a number, which goes up where the same content becomes other bytes. */
  static async at<F>(host: Host, format: string, content: unknown, figures: Schema<F>): Promise<TokenFile<F>> {
    const sum = await host.files.sha256();
    sum.update(encoded(JSON.stringify([format, content])));
    return new TokenFile(host, sum.hex(), format, figures);
  }

  private constructor({ files, cacheFolder }: Host, key: string, format: string, figures: Schema<F>) {
    this.#files = files;
    this.#folder = join(cacheFolder, FOLDER);
    this.#key = key;
    this.#format = format;
    const entries = { format: oneOf([format]), bytes: number(wholeNumber(0)), figures };
    this.#trailer = object(entries) as unknown as Schema<{ format: string; bytes: number; figures: F }>;
  }

  /**
   * Undefined where there is none, or none that is whole: all of it is read for that. `most`: bytes that are brought along; a
   * file with more stays where it is, to be read from.
   */
  async read(most = Number.POSITIVE_INFINITY): Promise<FoundTokenFile<F> | undefined> {
    try {
      for (const name of await this.#names())
        if (name.includes(this.#key)) return await this.#readFile(join(this.#folder, name), most);
    } catch {
      // It is made again.
    }
    return undefined;
  }

  async writer(): Promise<TokenFileWriter<F>> {
    const sum = await this.#sum();
    const out = await OptionalFile.open(this.#files, this.#folder, () => this.#nextName());
    let bytes = 0;
    const write = (piece: Uint8Array) => {
      sum.update(piece);
      return out.write(piece);
    };
    return {
      get isWhole() {
        return out.isWhole;
      },
      write: (piece) => {
        bytes += piece.length;
        return write(piece);
      },
      finish: async (figures) => {
        const line = JSON.stringify({ format: this.#format, bytes, figures });
        await write(encoded(line.padEnd(FIGURES_BYTES)));
        await out.finish(encoded(`${sum.hex()}\n`));
        await this.#removeOldest();
      },
      abort: () => out.abort(),
    };
  }

  /** Of the key, for what follows. */
  async #sum(): Promise<Sha256> {
    const sum = await this.#files.sha256();
    sum.update(encoded(this.#key));
    return sum;
  }

  async #readFile(path: string, most: number): Promise<FoundTokenFile<F> | undefined> {
    const size = ((await this.#files.stat(path))?.bytes ?? 0) - TRAILER_BYTES;
    if (size < 0) return undefined;
    const trailer = await this.#files.readRange(path, size, TRAILER_BYTES);
    const line = trailer.subarray(0, FIGURES_BYTES);
    const found = accept(this.#trailer, parseJSON(line, path, ''));
    if (found?.bytes !== size) return undefined;
    const sum = await this.#sum();
    const bytes = size <= most ? new Uint8Array(size) : undefined;
    for (let at = 0; at < size; at += PIECE_BYTES) {
      const piece = await this.#files.readRange(path, at, Math.min(PIECE_BYTES, size - at));
      sum.update(piece);
      bytes?.set(piece, at);
    }
    sum.update(line);
    const written = new TextDecoder().decode(trailer.subarray(FIGURES_BYTES));
    if (written !== `${sum.hex()}\n`) return undefined;
    if (!bytes) this.#use(path);
    return { figures: found.figures, path, size, ...(bytes && { bytes }) };
  }

  #use(path: string): void {
    const paths = inUse.get(this.#files) ?? new Set();
    inUse.set(this.#files, paths.add(path));
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
        const path = join(this.#folder, name);
        if (inUse.get(this.#files)?.has(path)) continue;
        await this.#files.remove(path);
        total -= sizes[i] ?? 0;
      }
    } catch {
      // The next one tries again.
    }
  }
}

const encoded = (text: string): Uint8Array => new TextEncoder().encode(text);

/** A file that is written as long as that works: without it, only time is lost. */
class OptionalFile {
  #stream: WriteStream | undefined;

  static async open(files: Files, folder: string, name: () => Promise<string>): Promise<OptionalFile> {
    try {
      await files.makeFolder(folder);
      // Of writers that were killed: they would count in no limit.
      await files.removePartials(folder);
      return new OptionalFile(await files.writeStream(join(folder, await name())));
    } catch {
      return new OptionalFile(undefined);
    }
  }

  private constructor(stream: WriteStream | undefined) {
    this.#stream = stream;
  }

  get isWhole(): boolean {
    return this.#stream !== undefined;
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
