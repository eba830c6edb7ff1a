// Files of tokens in the host's cache folder: what was tokenized before, by the checksum of all that decides it. A file is
// its bytes, a line of figures that say how to read them, and a checksum of its key, the bytes and the figures.
//
// Invariant: what is read is what was written under the same key. A file that is damaged, cut off, of another format or
// another key counts as not there and is made again; a cache that cannot be written costs time only. The oldest go when
// there are more bytes than MOST_BYTES, but for those that this process reads from, and those newer than what it has written. One that
// another process reads from is open there, and stays readable without its name.

import { type Files, type Host, join, type OpenFile, type Sha256, type WriteStream } from '../runtime/host.ts';
import { heldBytes } from '../util/held.ts';
import { accept, number, object, oneOf, parseJSON, type Schema } from '../util/json.ts';
import { wholeNumber } from '../util/range.ts';

const FOLDER = 'tokens';
const FIGURES_BYTES = 447;
/** The figures, the checksum, and a line's end. */
const TRAILER_BYTES = FIGURES_BYTES + 64 + 1;
const PIECE_BYTES = 4 * 2 ** 20;
const MOST_BYTES = 2 ** 31;
const NAME = /^(\d{8})-([0-9a-f]{64})\.tokens$/;

/** Files that are read from, by path: open as long as the process lives. */
const inUse = new WeakMap<Files, Map<string, OpenFile>>();

/** Bytes that are held in memory, at most, unless they cannot be written. */
export const MOST_HELD = 2 ** 26;

/** Bytes of the cache that are whole. */
export interface CachedBytes<F> {
  readonly figures: F;
  readonly size: number;
  /** The bytes themselves, or, where they are too many, the file whose first they are: it stays open. */
  readonly at: { readonly held: Uint8Array<ArrayBuffer> } | { readonly file: OpenFile };
}

/** Takes a file's bytes in order. After `finish` they are in the cache, or held here. */
export interface TokenFileWriter<F> {
  /** The bytes stay as they are afterwards. Errors: NotKept. */
  write(bytes: Uint8Array<ArrayBuffer>): Promise<void>;
  /** All that it has taken. Errors: NotKept. */
  finish(figures: F): Promise<CachedBytes<F>>;
  abort(): Promise<void>;
}

/** The error of bytes that are too many to be held, and that could not be written. */
export class NotKept extends Error {}

/** What `make` gives when few bytes are held or, where more can be kept nowhere else, when all are. */
export async function heldOrKept<T>(make: (mostHeld: number) => Promise<T>, mostHeld = MOST_HELD): Promise<T> {
  try {
    return await make(mostHeld);
  } catch (error) {
    if (!(error instanceof NotKept)) throw error;
    return make(Number.POSITIVE_INFINITY);
  }
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
   * Undefined where there is none, or none that is whole: all of it is read for that. `mostHeld`: more bytes stay where they are,
   * to be read from.
   */
  async read(mostHeld = MOST_HELD): Promise<CachedBytes<F> | undefined> {
    try {
      for (const name of await this.#names())
        if (name.includes(this.#key)) return await this.#readFile(join(this.#folder, name), mostHeld);
    } catch {
      // It is made again.
    }
    return undefined;
  }

  async writer(mostHeld = MOST_HELD): Promise<TokenFileWriter<F>> {
    const sum = await this.#sum();
    const out = await OptionalFile.open(this.#files, this.#folder, () => this.#nextName());
    const held = new HeldPieces(mostHeld);
    return {
      write: async (piece) => {
        held.add(piece);
        sum.update(piece);
        await out.write(piece);
        if (!held.isWhole && !out.isWhole) notKept();
      },
      finish: async (figures) => {
        const { size } = held;
        const line = encoded(JSON.stringify({ format: this.#format, bytes: size, figures }).padEnd(FIGURES_BYTES));
        sum.update(line);
        await out.write(line);
        await out.finish(encoded(`${sum.hex()}\n`));
        // It is open before anything is removed, here or, as late as can be, by another process.
        const kept = held.isWhole ? undefined : await this.read(mostHeld);
        await this.#removeOldest(out.path);
        if (held.isWhole) return { figures, size, at: { held: held.joined() } };
        return kept ?? notKept();
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

  async #readFile(path: string, mostHeld: number): Promise<CachedBytes<F> | undefined> {
    const used = this.#inUse.get(path);
    const again = used && (await this.#readOpen(used, mostHeld).catch(() => undefined));
    if (again) return again;
    const file = await this.#files.open(path);
    let found: CachedBytes<F> | undefined;
    try {
      found = await this.#readOpen(file, mostHeld);
    } finally {
      if (found && 'file' in found.at) this.#inUse.set(path, file);
      else await file.close();
    }
    return found;
  }

  async #readOpen(file: OpenFile, mostHeld: number): Promise<CachedBytes<F> | undefined> {
    const size = file.bytes - TRAILER_BYTES;
    if (size < 0) return undefined;
    const trailer = await file.readRange(size, TRAILER_BYTES);
    const line = trailer.subarray(0, FIGURES_BYTES);
    const found = accept(this.#trailer, parseJSON(line, 'the figures', ''));
    if (found?.bytes !== size) return undefined;
    const sum = await this.#sum();
    const held = size <= mostHeld ? heldBytes(size, ...TOKENS) : undefined;
    for (let at = 0; at < size; at += PIECE_BYTES) {
      const piece = await file.readRange(at, Math.min(PIECE_BYTES, size - at));
      sum.update(piece);
      held?.set(piece, at);
    }
    sum.update(line);
    const written = new TextDecoder().decode(trailer.subarray(FIGURES_BYTES));
    if (written !== `${sum.hex()}\n`) return undefined;
    return { figures: found.figures, size, at: held ? { held } : { file } };
  }

  get #inUse(): Map<string, OpenFile> {
    const files = inUse.get(this.#files) ?? new Map<string, OpenFile>();
    inUse.set(this.#files, files);
    return files;
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
    const newest = numberIn(names.at(-1) ?? '');
    return `${String(newest + 1).padStart(8, '0')}-${this.#key}.tokens`;
  }

  /** Older than what was `written`. */
  async #removeOldest(written: string): Promise<void> {
    try {
      const names = await this.#names();
      const sizes = await Promise.all(
        names.map(async (name) => (await this.#files.stat(join(this.#folder, name)))?.bytes ?? 0),
      );
      let total = sizes.reduce((a, b) => a + b, 0);
      for (const [i, name] of names.entries()) {
        const path = join(this.#folder, name);
        if (total <= MOST_BYTES || !isOlder(path, written)) return;
        if (this.#inUse.has(path)) continue;
        await this.#files.remove(path);
        total -= sizes[i] ?? 0;
      }
    } catch {
      // The next one tries again.
    }
  }
}

/** By their numbers: others of the same one were written at the same time. */
const isOlder = (path: string, other: string): boolean => numberIn(path) < numberIn(other);
const numberIn = (path: string): number => Number(NAME.exec(path.slice(path.lastIndexOf('/') + 1))?.[1] ?? 0);

const encoded = (text: string): Uint8Array<ArrayBuffer> => new TextEncoder().encode(text);

function notKept(): never {
  throw new NotKept('the tokens are too many to be held, and could not be written');
}

/** What was written, until it is too much to be held. */
class HeldPieces {
  readonly #most: number;
  readonly #pieces: Uint8Array<ArrayBuffer>[] = [];
  #size = 0;

  constructor(most: number) {
    this.#most = most;
  }

  /** Bytes of all that was added. */
  get size(): number {
    return this.#size;
  }

  get isWhole(): boolean {
    return this.#size <= this.#most;
  }

  add(piece: Uint8Array<ArrayBuffer>): void {
    this.#size += piece.length;
    if (this.isWhole) this.#pieces.push(piece);
    else this.#pieces.length = 0;
  }

  /** Each piece is given up as soon as it has been copied. */
  joined(): Uint8Array<ArrayBuffer> {
    const all = heldBytes(this.#size, ...TOKENS);
    let at = 0;
    for (const [i, piece] of this.#pieces.entries()) {
      all.set(piece, at);
      at += piece.length;
      this.#pieces[i] = NOTHING;
    }
    return all;
  }
}

const NOTHING = new Uint8Array();
/** What is too large, and what to do. */
const TOKENS = ['the data, as tokens,', 'use a part of it'] as const;

/** A file that is written as long as that works: without it, only time is lost. */
class OptionalFile {
  /** Empty where there is none. */
  readonly path: string;
  #stream: WriteStream | undefined;

  static async open(files: Files, folder: string, name: () => Promise<string>): Promise<OptionalFile> {
    try {
      await files.makeFolder(folder);
      // Of writers that were killed: they would count in no limit.
      await files.removePartials(folder);
      const path = join(folder, await name());
      return new OptionalFile(path, await files.writeStream(path));
    } catch {
      return new OptionalFile('', undefined);
    }
  }

  private constructor(path: string, stream: WriteStream | undefined) {
    this.path = path;
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
