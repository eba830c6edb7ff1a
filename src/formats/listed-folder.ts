// A folder that is a list of files by their paths: those of a zip (archive.ts), or those that a person chose on a page. What
// reads models from real folders reads them from here. Where the bytes come from is each file's own matter.
//
// Invariant: a path names one file of the list or none, and leads nowhere outside it.

import type { Files, FolderReader } from '../runtime/host.ts';
import { formatBytes } from '../util/bytes.ts';
import { firstFew, HoldfastError } from '../util/errors.ts';
import { blobSource } from './byte-source.ts';
import type { StoredTensors } from './checkpoint/model-tensors.ts';

/** A file that was chosen by itself, or out of a folder. */
export interface ImportedFile {
  /** Without its folders. */
  readonly name: string;
  readonly bytes: number;
  /** Errors, at once or while it is read: HoldfastError where a zip's file is not what was put into it. */
  open(): ReadableStream<Uint8Array>;
  /** The file's bytes from `from` on. Absent where it is read from its first byte alone. */
  openFrom?(from: number): ReadableStream<Uint8Array>;
  /** Absent where none is known. */
  readonly sha256?: string;
}

/** A file of the list. */
export interface ListedFile extends Omit<ImportedFile, 'name'> {
  /** With its folders, as it stands in the list. */
  readonly path: string;
  /** All of it. Errors: HoldfastError naming `path`. */
  whole(path: string): Promise<Uint8Array<ArrayBuffer>>;
  /** Bytes that it has. Errors: HoldfastError naming `path`. */
  readRange(path: string, offset: number, bytes: number): Promise<Uint8Array<ArrayBuffer>>;
}

/** What systems and Holdfast leave beside the files that count: of a checkpoint that was cut off, for one. */
const LEFT_OUT = /^(__MACOSX|\.DS_Store|\._.*|.*\.partial(-.*)?)$/;
const MOST_FOLDERS = 32;
const MOST_LETTERS = 400;
/** The longest text: a file that is read as a whole is JSON. */
const MOST_WHOLE_BYTES = 2 ** 29;

/** Weights that are in no file of the list. */
export type ListedWeights = StoredTensors & { readonly bytes: number };

/** Words of messages. */
export interface ListWords {
  /** How a person makes the list. */
  readonly verb: 'zip' | 'choose';
  /** What it should be of. */
  readonly wanted: string;
}

export class ListedFolder implements FolderReader {
  /** What all paths begin with. */
  readonly path: string;
  readonly sha256: Files['sha256'];
  readonly #words: ListWords;
  readonly #files = new Map<string, ListedFile>();
  /** Names in every folder, by its path inside; the top is ''. */
  readonly #folders = new Map<string, Set<string>>([['', new Set()]]);

  /** The weights of the model that it is the folder of, where they are none of its files; and the bytes of theirs. */
  readonly weights: ListedWeights | undefined;

  /** Errors: HoldfastError where a name is there twice or leads out of the folder. */
  constructor(
    path: string,
    files: readonly ListedFile[],
    sha256: Files['sha256'],
    words: ListWords,
    weights?: ListedWeights,
  ) {
    this.path = path;
    this.weights = weights;
    this.sha256 = sha256;
    this.#words = words;
    const known = new Map<string, string>();
    for (const file of files) {
      const parts = partsOf(file.path);
      if (parts.some((part) => LEFT_OUT.test(part))) continue;
      if (parts.length === 0 || parts.includes('..') || parts.length > MOST_FOLDERS || !isLine(file.path)) {
        const shown = JSON.stringify(file.path).slice(0, MOST_LETTERS);
        throw new HoldfastError(`${this.path}: ${shown} is no name for a file in it; ${words.verb} the folder again`);
      }
      const inside = parts.join('/');
      // Where names differ in case only, systems disagree whether there are two files.
      const folded = inside.normalize('NFC').toLowerCase();
      const other = known.get(folded);
      if (other !== undefined) {
        throw new HoldfastError(
          `${this.path} has ${other === file.path ? `${other} twice` : `both ${other} and ${file.path}`}; ${words.verb} the folder again`,
        );
      }
      known.set(folded, file.path);
      this.#files.set(inside, file);
      parts.forEach((part, depth) => {
        const folder = parts.slice(0, depth).join('/');
        const names = this.#folders.get(folder) ?? new Set();
        this.#folders.set(folder, names.add(part));
      });
    }
  }

  /** The folders in it whose names are such, seen from the top: in the folders of a found one nothing is searched. */
  foldersWith(isSuch: (names: readonly string[]) => boolean): string[] {
    const found: string[] = [];
    const search = (folder: string) => {
      const names = this.#names(folder);
      if (isSuch(names)) found.push(below(this.path, folder));
      else for (const name of names) search(below(folder, name));
    };
    search('');
    return found;
  }

  /** The only such folder; the whole where there is none. Errors: HoldfastError that lists them where there are more. */
  only(isSuch: (names: readonly string[]) => boolean): string {
    const found = this.foldersWith(isSuch);
    if (found.length > 1) {
      const shown = firstFew(found.map((folder) => this.#inside(folder) ?? ''));
      throw new HoldfastError(
        `${this.path} holds ${found.length} models or runs (${shown}); ${this.#words.verb} one of them alone`,
      );
    }
    return found[0] ?? this.path;
  }

  /** Those in a folder of it, without what is in the folders there. */
  files(folder: string): ImportedFile[] {
    const inside = this.#inside(folder) ?? '';
    return this.#names(inside).flatMap((name) => {
      const file = this.#files.get(below(inside, name));
      return file ? [{ ...file, name }] : [];
    });
  }

  /** Files of a folder of it, by their names, as a folder of their own that is called `path`. */
  part(folder: string, names: readonly string[], path: string): ListedFolder {
    const inside = this.#inside(folder) ?? '';
    const files = names.flatMap((name) => {
      const file = this.#files.get(below(inside, name));
      return file ? [{ ...file, path: name }] : [];
    });
    return new ListedFolder(path, files, this.sha256, this.#words);
  }

  async read(path: string): Promise<Uint8Array<ArrayBuffer>> {
    const file = this.#file(path);
    if (file.bytes <= MOST_WHOLE_BYTES) return file.whole(path);
    throw new HoldfastError(
      `${path} has ${formatBytes(file.bytes)}, such a file has at most ${formatBytes(MOST_WHOLE_BYTES)}; ${this.#words.verb} the folder again`,
    );
  }

  async readRange(path: string, offset: number, bytes: number): Promise<Uint8Array<ArrayBuffer>> {
    const file = this.#file(path);
    if (offset + bytes > file.bytes) {
      throw new HoldfastError(`${path} ends at byte ${file.bytes}, before ${offset + bytes}`);
    }
    return file.readRange(path, offset, bytes);
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

  #file(path: string): ListedFile {
    const inside = this.#inside(path);
    const file = inside === undefined ? undefined : this.#files.get(inside);
    if (file) return file;
    throw new HoldfastError(`${this.path} has no ${inside ?? path} in it; ${this.#words.wanted}`);
  }

  /** Of the path of a file in it: join() writes a path in another way than it was given. */
  #inside(path: string): string | undefined {
    const [own, parts] = [partsOf(this.path), partsOf(path)];
    return own.every((part, i) => part === parts[i]) ? parts.slice(own.length).join('/') : undefined;
  }
}

/** A file that a page has: its bytes stay where they are until they are asked for. */
export const listedBlob = (path: string, blob: Blob): ListedFile => ({
  path,
  bytes: blob.size,
  open: () => blob.stream(),
  whole: (name) => blobSource(blob, name).read(0, blob.size),
  readRange: (name, offset, bytes) => blobSource(blob, name).read(offset, bytes),
});

const below = (folder: string, name: string): string => [folder, name].filter((part) => part !== '').join('/');

/** Names are shown in messages of one line. */
const isLine = (name: string): boolean => name.length <= MOST_LETTERS && !/[\p{Cc}\p{Zl}\p{Zp}]/u.test(name);

/** Backslashes too: some programs write them into zips. */
const partsOf = (path: string): string[] => path.split(/[\\/]/).filter((part) => part !== '' && part !== '.');
