// The files of a browser: the host's `Files` over the site's private file system. Reads are the page's or worker's own, writes
// are the disk worker's.
//
// Invariant: a file is written beside its target, flushed and moved over it: it has its old content or its new one.

import { HoldfastError } from '../../util/errors.ts';
import type { FileStat, Files, OpenFile, ResumedFile, Sha256, WriteStream } from '../host.ts';
import type { DiskLink } from './disk-link.ts';
import { find, openFolder, renameFolder, splitPath } from './opfs.ts';
import { storageError } from './room.ts';
import { sha256 } from './sha256.ts';

const PARTIAL = /\.partial-[0-9a-f-]{36}$/;

/** The path of what is being written beside `path`. */
const partialOf = (path: string): string => `${path}.partial-${crypto.randomUUID()}`;

export async function fileAt(path: string): Promise<FileSystemFileHandle> {
  const [folder, name] = splitPath(path);
  return (await openFolder(folder)).getFileHandle(name);
}

export class OpfsFiles implements Files {
  readonly #link: DiskLink;

  constructor(link: DiskLink) {
    this.#link = link;
  }

  read(path: string): Promise<Uint8Array<ArrayBuffer>> {
    return this.#attempt(
      `cannot read ${path}`,
      async () => new Uint8Array(await (await (await fileAt(path)).getFile()).arrayBuffer()),
    );
  }

  async readRange(path: string, offset: number, bytes: number): Promise<Uint8Array<ArrayBuffer>> {
    return (await this.open(path)).readRange(offset, bytes);
  }

  async open(path: string): Promise<OpenFile> {
    const what = `cannot read ${path}`;
    const file = await this.#attempt(what, async () => (await fileAt(path)).getFile());
    const readRange = async (offset: number, bytes: number) => {
      if (file.size < offset + bytes) throw new Error(`it ends at byte ${file.size}, before ${offset + bytes}`);
      return new Uint8Array(await file.slice(offset, offset + bytes).arrayBuffer());
    };
    return {
      bytes: file.size,
      readRange: (offset, bytes) => this.#attempt(what, () => readRange(offset, bytes)),
      close: async () => {},
    };
  }

  async writeAtomic(path: string, bytes: Uint8Array | string): Promise<void> {
    const stream = await this.writeStream(path);
    try {
      await stream.write(typeof bytes === 'string' ? new TextEncoder().encode(bytes) : bytes);
      await stream.commit();
    } catch (error) {
      await stream.abort();
      throw error;
    }
  }

  async writeStream(path: string): Promise<WriteStream> {
    const partial = partialOf(path);
    const attempt = <T>(work: () => Promise<T>) => this.#attempt(`cannot write ${path}`, work);
    const [folder, name] = splitPath(path);
    // As everywhere, a folder that is missing is an error, not made.
    await attempt(() => openFolder(folder));
    const file = await attempt(() => this.#link.ask((disk) => disk.create(partial, 0)));
    let open = true;
    let at = 0;
    return {
      write: (bytes) =>
        attempt(async () => {
          await this.#write(file, at, bytes);
          at += bytes.length;
        }),
      commit: () =>
        attempt(async () => {
          open = false;
          await this.#link.ask((disk) => disk.close(file, true));
          await (await fileAt(partial)).move(name);
        }),
      abort: async () => {
        if (open) await this.#link.ask((disk) => disk.close(file, false)).catch(() => {});
        await this.remove(partial).catch(() => {});
      },
    };
  }

  /**
   * See Host.resumeFile. What was written is in the file at once: it is there when the tab is closed, and flushed by `commit`
   * and `close` alone.
   */
  async resume(path: string): Promise<ResumedFile> {
    const partial = `${path}.incoming`;
    const attempt = <T>(work: () => Promise<T>) => this.#attempt(`cannot write ${path}`, work);
    const [folder, name] = splitPath(path);
    await attempt(() => openFolder(folder));
    const { file, bytes: written } = await attempt(() => this.#link.ask((disk) => disk.resume(partial)));
    let at = written;
    return {
      written,
      write: (bytes) =>
        attempt(async () => {
          await this.#write(file, at, bytes);
          at += bytes.length;
        }),
      restart: () =>
        attempt(async () => {
          await this.#link.ask((disk) => disk.empty(file));
          at = 0;
        }),
      commit: () =>
        attempt(async () => {
          await this.#link.ask((disk) => disk.close(file, true));
          await (await fileAt(partial)).move(name);
        }),
      close: () => attempt(() => this.#link.ask((disk) => disk.close(file, true))),
    };
  }

  stat(path: string): Promise<FileStat | undefined> {
    return this.#attempt(`cannot look at ${path}`, async () => {
      const found = await find(path);
      if (found?.kind !== 'file') return found && { kind: 'folder', bytes: 0 };
      return { kind: 'file', bytes: (await found.getFile()).size };
    });
  }

  list(folder: string): Promise<string[]> {
    return this.#attempt(`cannot list ${folder}`, async () => {
      const names: string[] = [];
      for await (const name of (await openFolder(folder)).keys()) names.push(name);
      return names.sort();
    });
  }

  async makeFolder(folder: string): Promise<void> {
    await this.#attempt(`cannot make the folder ${folder}`, () => openFolder(folder, true));
  }

  /** The browser's own table holds the names: nothing here can sync it. */
  async syncFolder(): Promise<void> {}

  sha256(): Promise<Sha256> {
    return sha256();
  }

  rename(from: string, to: string): Promise<void> {
    return this.#attempt(`cannot rename ${from} to ${to}`, async () => {
      const source = await find(from);
      if (!source) throw new Error('it does not exist');
      const [folder, name] = splitPath(to);
      if (source.kind === 'file') return source.move(await openFolder(folder), name);
      const there = await find(to);
      if (there?.kind === 'file' || (there && (await this.list(to)).length > 0))
        throw new Error(`${to} is there already`);
      return renameFolder(from, to, (path, text) => this.writeAtomic(path, text));
    });
  }

  async makePartial(path: string): Promise<string> {
    const partial = partialOf(path);
    await this.makeFolder(partial);
    return partial;
  }

  /** Files alone: of a folder it cannot be told whether it is being written into. */
  removePartials(folder: string): Promise<void> {
    return this.#attempt(`cannot remove what is left in ${folder}`, async () => {
      const parent = await openFolder(folder);
      for (const name of await this.list(folder)) {
        if (!PARTIAL.test(name) || (await find(`${folder}/${name}`))?.kind !== 'file') continue;
        // A file that a living worker has open refuses to be removed: what goes was left by one that is gone.
        await parent.removeEntry(name).catch(() => {});
      }
    });
  }

  remove(path: string): Promise<void> {
    return this.#attempt(`cannot remove ${path}`, async () => {
      if (!(await find(path))) return;
      const [folder, name] = splitPath(path);
      await (await openFolder(folder)).removeEntry(name, { recursive: true });
    });
  }

  async #write(file: number, at: number, bytes: Uint8Array): Promise<void> {
    for (let done = 0; done < bytes.length; ) {
      const count = await this.#link.write(file, at + done, bytes.subarray(done));
      if (count === 0) throw new Error('the browser wrote nothing and gave no reason');
      done += count;
    }
  }

  async #attempt<T>(what: string, work: () => Promise<T>): Promise<T> {
    try {
      return await work();
    } catch (error) {
      throw error instanceof HoldfastError ? error : await storageError(what, error);
    }
  }
}
