// `OpfsDisk`: the owner of OPFS sync access handles: they exist in dedicated workers only, block the thread that uses
// them, and lock their file. It lives in a worker of its own (workers/disk.ts), so that neither the page nor the
// trainer waits.
//
// Bytes travel in a SharedArrayBuffer where the page is cross-origin isolated, else in buffers that are transferred.
// What the browser throws is passed on with its `name`, from which the caller makes its message.

import { transfer } from 'comlink';
import { assert } from '../../util/errors.ts';
import { errorName, openFolder, splitPath } from './opfs.ts';

const RETRIES = 50;
const RETRY_MS = 100;

/** FileSystemSyncAccessHandle: TypeScript declares it for workers only. */
interface SyncHandle {
  read(into: Uint8Array, options: { at: number }): number;
  write(from: Uint8Array, options: { at: number }): number;
  truncate(bytes: number): void;
  getSize(): number;
  flush(): void;
  close(): void;
}

declare global {
  interface FileSystemFileHandle {
    createSyncAccessHandle(): Promise<SyncHandle>;
    /** Renames within its folder, or moves; in OPFS it replaces what was there, in one step. */
    move(name: string): Promise<void>;
    move(folder: FileSystemDirectoryHandle, name: string): Promise<void>;
  }
}

export class OpfsDisk {
  readonly #handles = new Map<number, SyncHandle>();
  #last = 0;

  /** Opens a file, made anew and `bytes` long, for this worker alone. Returns its number. */
  async create(path: string, bytes: number): Promise<number> {
    const handle = await (await fileAt(path)).createSyncAccessHandle();
    try {
      handle.truncate(0);
      handle.truncate(bytes);
    } catch (error) {
      handle.close();
      throw error;
    }
    return this.#keep(handle);
  }

  /** Opens a file as it is, or made anew, for this worker alone. Returns its number, and the bytes that it has. */
  async resume(path: string): Promise<{ file: number; bytes: number }> {
    const found = await fileAt(path);
    for (let i = 1; ; i++) {
      try {
        const handle = await found.createSyncAccessHandle();
        return { file: this.#keep(handle), bytes: handle.getSize() };
      } catch (error) {
        // A tab that was closed a moment ago may have it still.
        if (i === RETRIES || errorName(error) !== 'NoModificationAllowedError') throw error;
        await new Promise((resolve) => setTimeout(resolve, RETRY_MS));
      }
    }
  }

  /** Drops all that a file has. */
  empty(file: number): void {
    this.#handle(file).truncate(0);
  }

  /** Reads into `shared`, or into a buffer of its own where there is none. */
  read(
    file: number,
    offset: number,
    length: number,
    shared?: SharedArrayBuffer,
  ): { count: number; bytes: ArrayBufferLike } {
    const bytes = shared ?? new ArrayBuffer(length);
    const count = this.#handle(file).read(new Uint8Array(bytes, 0, length), { at: offset });
    return bytes instanceof ArrayBuffer ? transfer({ count, bytes }, [bytes]) : { count, bytes };
  }

  /** Writes the first `length` bytes of `from`. */
  write(file: number, offset: number, length: number, from: ArrayBufferLike): number {
    return this.#handle(file).write(new Uint8Array(from, 0, length), { at: offset });
  }

  /** Closes; what was written is on disk before, where `flush` says so. */
  close(file: number, flush: boolean): void {
    const handle = this.#handle(file);
    this.#handles.delete(file);
    try {
      if (flush) handle.flush();
    } finally {
      handle.close();
    }
  }

  #keep(handle: SyncHandle): number {
    this.#handles.set(++this.#last, handle);
    return this.#last;
  }

  #handle(file: number): SyncHandle {
    const handle = this.#handles.get(file);
    assert(handle, `file ${file} is not open`);
    return handle;
  }
}

/** Made where it is missing. */
async function fileAt(path: string): Promise<FileSystemFileHandle> {
  const [folder, name] = splitPath(path);
  return (await openFolder(folder, true)).getFileHandle(name, { create: true });
}
