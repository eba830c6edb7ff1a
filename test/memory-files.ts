// Files in memory, and a host around them, for tests of what reads and writes through src/runtime/host.ts.
// Folders exist where something lies in them, or once made. Not a simulation of failures.

import { sha256 } from '../src/runtime/browser/sha256.ts';
import type { BlockFile, FileStat, Files, Host, OpenFile, Sha256, WriteStream } from '../src/runtime/host.ts';
import { HoldfastError } from '../src/util/errors.ts';
import { entry } from './entry.ts';

export class MemoryFiles implements Files {
  readonly contents = new Map<string, Uint8Array<ArrayBuffer>>();
  readonly #folders = new Set<string>();
  #partials = 0;

  constructor(files: Record<string, string | Uint8Array> = {}) {
    for (const [path, content] of Object.entries(files)) this.contents.set(path, toBytes(content));
  }

  async read(path: string) {
    const bytes = this.contents.get(path);
    if (!bytes) throw new HoldfastError(`${path}: no such file`);
    return bytes.slice();
  }

  async readRange(path: string, offset: number, bytes: number) {
    const whole = this.contents.get(path);
    if (!whole) throw new HoldfastError(`${path}: no such file`);
    if (offset + bytes > whole.length) throw new HoldfastError(`${path}: ends at byte ${whole.length}`);
    return whole.slice(offset, offset + bytes);
  }

  async writeAtomic(path: string, bytes: Uint8Array | string) {
    const stream = await this.writeStream(path);
    try {
      await stream.write(toBytes(bytes));
      await stream.commit();
    } catch (error) {
      await stream.abort();
      throw error;
    }
  }

  /** As on disk: what was written lies beside the target until it is renamed. */
  async writeStream(path: string): Promise<WriteStream> {
    const partial = `${path}.partial`;
    this.contents.set(partial, new Uint8Array());
    /** What is at its beginning, with room for more: a file of many pieces is not copied for each. */
    let roomy = new Uint8Array();
    return {
      write: async (bytes) => {
        const before = entry(this.contents, partial);
        const length = before.length + bytes.length;
        if (before.buffer !== roomy.buffer || length > roomy.length) {
          roomy = new Uint8Array(roomy.length === 0 ? length : 2 * length);
          roomy.set(before);
        }
        roomy.set(bytes, before.length);
        this.contents.set(partial, roomy.subarray(0, length));
      },
      commit: async () => {
        const written = entry(this.contents, partial);
        if (written.length < written.buffer.byteLength) this.contents.set(partial, written.slice());
        await this.rename(partial, path);
      },
      abort: () => this.remove(partial),
    };
  }

  /** The bytes that it has now stay readable. */
  async open(path: string): Promise<OpenFile> {
    const whole = await this.read(path);
    return {
      bytes: whole.length,
      readRange: async (offset, bytes) => {
        if (offset + bytes > whole.length) throw new HoldfastError(`${path}: ends at byte ${whole.length}`);
        return whole.slice(offset, offset + bytes);
      },
      close: async () => {},
    };
  }

  /** In Node and in browsers. */
  sha256(): Promise<Sha256> {
    return sha256();
  }

  async syncFolder(_path: string) {}

  async stat(path: string): Promise<FileStat | undefined> {
    const bytes = this.contents.get(path);
    if (bytes) return { kind: 'file' as const, bytes: bytes.length };
    const isFolder = this.#folders.has(path) || [...this.contents.keys()].some((key) => key.startsWith(`${path}/`));
    return isFolder ? { kind: 'folder' as const, bytes: 0 } : undefined;
  }

  async list(folder: string) {
    const inside = [...this.contents.keys(), ...this.#folders].filter((key) => key.startsWith(`${folder}/`));
    return [...new Set(inside.map((key) => key.slice(folder.length + 1).replace(/\/.*/s, '')))].sort();
  }

  async makeFolder(path: string) {
    this.#folders.add(path);
  }

  async makePartial(path: string) {
    const partial = `${path}.partial-${this.#partials++}`;
    await this.makeFolder(partial);
    return partial;
  }

  /** Does nothing: these files have one writer, so that no other has left any. */
  async removePartials(_folder: string) {}

  async rename(from: string, to: string) {
    if (!this.contents.has(from)) {
      if ((await this.list(to)).length > 0) throw new HoldfastError(`cannot rename ${from} to ${to}: it is not empty`);
      this.#folders.delete(to);
    }
    for (const [path, bytes] of [...this.contents]) {
      if (!isUnder(path, from)) continue;
      this.contents.delete(path);
      this.contents.set(to + path.slice(from.length), bytes);
    }
    for (const path of [...this.#folders]) {
      if (isUnder(path, from) && this.#folders.delete(path)) this.#folders.add(to + path.slice(from.length));
    }
  }

  async remove(path: string) {
    for (const key of [...this.contents.keys()]) if (isUnder(key, path)) this.contents.delete(key);
    for (const key of [...this.#folders]) if (isUnder(key, path)) this.#folders.delete(key);
  }
}

/** A block file in memory. */
export class MemoryBlockFile implements BlockFile {
  readonly path: string;
  readonly bytes: number;
  readonly contents: Uint8Array<ArrayBuffer>;
  removed = false;

  constructor(path: string, bytes: number) {
    this.path = path;
    this.bytes = bytes;
    this.contents = new Uint8Array(bytes);
  }

  async read(offset: number, into: Uint8Array<ArrayBuffer>) {
    const part = this.contents.subarray(offset, offset + into.length);
    into.set(part);
    return part.length;
  }

  async write(offset: number, from: Uint8Array<ArrayBuffer>) {
    this.contents.set(from, offset);
    return from.length;
  }

  async remove() {
    this.removed = true;
  }
}

/** Folders of files in memory, which nothing else sees: no lock is taken on a disk. */
export const memoryClaims: Pick<Host, 'claimFolder' | 'claimNextFolder'> = {
  claimFolder: async (folder) => ({ folder, release: async () => {} }),
  claimNextFolder: async (parent, prefix) => ({ folder: `${parent}/${prefix}1`, release: async () => {} }),
};

/** A host with these files and nothing else; override what a test needs. */
export function memoryHost(files: Files, overrides: Partial<Host> = {}): Host {
  return {
    name: 'memory',
    args: [],
    files,
    terminal: { interactive: false, columns: 80, write() {}, warn() {} },
    gpuSources: async () => [],
    exampleText: () => files.read('/package/assets/example.txt.gz'),
    cacheFolder: '/cache',
    openBlockFile: async (folder, bytes) => new MemoryBlockFile(`${folder}/tier`, bytes),
    ...memoryClaims,
    readStandardInput: async () => new Uint8Array(),
    onInterrupt() {},
    exit() {},
    ...overrides,
  };
}

const isUnder = (path: string, folder: string) => path === folder || path.startsWith(`${folder}/`);

function toBytes(content: string | Uint8Array): Uint8Array<ArrayBuffer> {
  return typeof content === 'string' ? new TextEncoder().encode(content) : Uint8Array.from(content);
}
