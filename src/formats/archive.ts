// A zip as a folder: its files by their paths, so that what is taken from a zip is chosen as it is in a real folder. And
// files that come one by one, from a zip or chosen by themselves, on their way into a folder.
//
// Not the zip format (zip.ts). Invariant: a path names one file of the zip or none, and leads nowhere outside it.

import type { Files, FolderReader, WriteStream } from '../runtime/host.ts';
import { formatBytes } from '../util/bytes.ts';
import { HoldfastError, messageOf } from '../util/errors.ts';
import { type ByteSource, sourceAt } from './byte-source.ts';
import type { ZipEntry } from './zip.ts';

/** A file out of a zip, or one that was chosen by itself. */
export interface ImportedFile {
  /** Without its folders. */
  readonly name: string;
  readonly bytes: number;
  /** Errors, at once or while it is read: HoldfastError where a zip's file is not what was put into it. */
  open(): ReadableStream<Uint8Array>;
}

/** What systems and Holdfast leave beside the files that count: of a checkpoint that was cut off, for one. */
const LEFT_OUT = /^(__MACOSX|\.DS_Store|\._.*|.*\.partial(-.*)?)$/;
const MOST_FOLDERS = 32;
const MOST_LETTERS = 400;
/** The longest text: a file that is read as a whole is JSON. */
const MOST_WHOLE_BYTES = 2 ** 29;

export const isZip = (path: string): boolean => /\.zip$/i.test(path);

/** What weights are read through: `files`, or where the path is a zip, the files in it, each read when it is asked for. */
export async function readerOf(files: Files, path: string): Promise<FolderReader> {
  if (!isZip(path)) return files;
  const stat = await files.stat(path);
  if (stat?.kind !== 'file') return files;
  return ZipFolder.open(sourceAt(files, path, stat.bytes), path, () => files.sha256());
}

/** The zip at `path` as a folder of that path. */
export class ZipFolder implements FolderReader {
  readonly path: string;
  readonly sha256: Files['sha256'];
  readonly #source: ByteSource;
  readonly #files = new Map<string, ZipEntry>();
  /** Names in every folder, by its path inside; the top is ''. */
  readonly #folders = new Map<string, Set<string>>([['', new Set()]]);
  readonly #places = new Map<string, Promise<number | undefined>>();
  readonly #unpacked = new Map<string, Promise<Uint8Array<ArrayBuffer>>>();

  /** Errors: HoldfastError for what is no zip, and where a name in it is there twice or leads out of it. */
  static async open(source: ByteSource, path: string, sha256: Files['sha256']): Promise<ZipFolder> {
    const { readZip } = await import('./zip.ts');
    return new ZipFolder(source, path, sha256, await readZip(source, path));
  }

  private constructor(source: ByteSource, path: string, sha256: Files['sha256'], entries: readonly ZipEntry[]) {
    this.#source = source;
    this.path = path;
    this.sha256 = sha256;
    const known = new Map<string, string>();
    for (const entry of entries) {
      const parts = partsOf(entry.path);
      if (parts.some((part) => LEFT_OUT.test(part))) continue;
      if (parts.length === 0 || parts.includes('..') || parts.length > MOST_FOLDERS || !isLine(entry.path)) {
        const shown = JSON.stringify(entry.path).slice(0, MOST_LETTERS);
        throw new HoldfastError(`${path}: ${shown} is no name for a file in it; zip the folder again`);
      }
      const inside = parts.join('/');
      // Where names differ in case only, systems disagree whether there are two files.
      const folded = inside.normalize('NFC').toLowerCase();
      const other = known.get(folded);
      if (other !== undefined) {
        throw new HoldfastError(
          `${path} has ${other === entry.path ? `${other} twice` : `both ${other} and ${entry.path}`}; zip the folder again`,
        );
      }
      known.set(folded, entry.path);
      this.#files.set(inside, entry);
      parts.forEach((part, depth) => {
        const folder = parts.slice(0, depth).join('/');
        const names = this.#folders.get(folder) ?? new Set();
        this.#folders.set(folder, names.add(part));
      });
    }
  }

  /**
   * The only folder in it whose names are such, seen from the top: in the folders of a found one nothing is searched.
   * The zip itself where there is none. Errors: HoldfastError that lists them where there are more.
   */
  only(isSuch: (names: readonly string[]) => boolean): string {
    const found: string[] = [];
    const search = (folder: string) => {
      const names = this.#names(folder);
      if (isSuch(names)) found.push(folder);
      else for (const name of names) search(below(folder, name));
    };
    search('');
    if (found.length > 1) {
      const shown = found.slice(0, 5).join(', ') + (found.length > 5 ? ', ...' : '');
      throw new HoldfastError(`${this.path} holds ${found.length} models or runs (${shown}); zip one of them alone`);
    }
    return found[0] ? `${this.path}/${found[0]}` : this.path;
  }

  /** Those in a folder of it, without what is in the folders there. */
  files(folder: string): ImportedFile[] {
    const inside = this.#inside(folder) ?? '';
    return this.#names(inside).flatMap((name) => {
      const entry = this.#files.get(below(inside, name));
      return entry ? [{ name, bytes: entry.bytes, open: entry.open }] : [];
    });
  }

  async read(path: string): Promise<Uint8Array<ArrayBuffer>> {
    const entry = this.#entry(path);
    if (entry.bytes <= MOST_WHOLE_BYTES) return wholeOf(entry, path);
    throw new HoldfastError(
      `${path} has ${formatBytes(entry.bytes)}, such a file has at most ${formatBytes(MOST_WHOLE_BYTES)}; get the zip again`,
    );
  }

  /** Of a file that is not compressed, no more than these bytes are in memory. */
  async readRange(path: string, offset: number, bytes: number): Promise<Uint8Array<ArrayBuffer>> {
    const entry = this.#entry(path);
    if (offset + bytes > entry.bytes) {
      throw new HoldfastError(`${path} ends at byte ${entry.bytes}, before ${offset + bytes}`);
    }
    const at = await remembered(this.#places, entry.path, () => entry.place());
    if (at !== undefined) return this.#source.read(at + offset, bytes);
    const unpacked = await remembered(this.#unpacked, entry.path, () => wholeOf(entry, path));
    return unpacked.slice(offset, offset + bytes);
  }

  async stat(path: string): Promise<{ kind: 'file' | 'folder'; bytes: number } | undefined> {
    const inside = this.#inside(path);
    if (inside === undefined) return undefined;
    const file = this.#files.get(inside);
    if (file) return { kind: 'file', bytes: file.bytes };
    return this.#folders.has(inside) ? { kind: 'folder', bytes: 0 } : undefined;
  }

  async list(folder: string): Promise<string[]> {
    const inside = this.#inside(folder);
    return inside === undefined ? [] : this.#names(inside);
  }

  #names(inside: string): string[] {
    return [...(this.#folders.get(inside) ?? [])].sort();
  }

  #entry(path: string): ZipEntry {
    const inside = this.#inside(path);
    const entry = inside === undefined ? undefined : this.#files.get(inside);
    if (entry) return entry;
    throw new HoldfastError(
      `${this.path} has no ${inside ?? path} in it; give the zip of a run, a checkpoint, or a model's files`,
    );
  }

  /** Of the path of a file in it: join() writes a path in another way than it was given. */
  #inside(path: string): string | undefined {
    const [own, parts] = [partsOf(this.path), partsOf(path)];
    return own.every((part, i) => part === parts[i]) ? parts.slice(own.length).join('/') : undefined;
  }
}

const below = (folder: string, name: string): string => (folder === '' ? name : `${folder}/${name}`);

/** Names are shown in messages of one line. */
const isLine = (name: string): boolean => name.length <= MOST_LETTERS && !/[\p{Cc}\p{Zl}\p{Zp}]/u.test(name);

/** Backslashes too: some programs write them into zips. */
const partsOf = (path: string): string[] => path.split(/[\\/]/).filter((part) => part !== '' && part !== '.');

function remembered<V>(known: Map<string, Promise<V>>, key: string, make: () => Promise<V>): Promise<V> {
  const made = known.get(key) ?? make();
  known.set(key, made);
  return made;
}

async function wholeOf({ bytes, open }: ZipEntry, path: string): Promise<Uint8Array<ArrayBuffer>> {
  // What it cannot have is refused before room is made for it.
  const pieces = open();
  let all: Uint8Array<ArrayBuffer>;
  try {
    all = new Uint8Array(bytes);
  } catch (error) {
    throw new HoldfastError(
      `${path} has ${formatBytes(bytes)} and is compressed: too much for memory (${messageOf(error)}); unpack the zip`,
    );
  }
  let at = 0;
  for await (const piece of pieces) {
    all.set(piece, at);
    at += piece.length;
  }
  return all;
}

/** Writes it to `path`; all of it, or an error and nothing. No more is written than the bytes that it says it has. */
export async function storeFile(files: Files, path: string, file: ImportedFile): Promise<void> {
  const stream: WriteStream = await files.writeStream(path);
  try {
    let written = 0;
    for await (const bytes of file.open()) {
      written += bytes.length;
      if (written > file.bytes) break;
      await stream.write(bytes);
    }
    if (written !== file.bytes) {
      throw new HoldfastError(
        `${file.name} has ${written > file.bytes ? 'more than' : `${written} bytes, not`} the ${file.bytes} bytes that it says it has; it is damaged, choose another file`,
      );
    }
    await stream.commit();
  } catch (error) {
    await stream.abort();
    throw error;
  }
}
