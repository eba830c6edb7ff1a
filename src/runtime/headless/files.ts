// Files of the system, by the node: modules, in Node and in Deno. Each error is one line that names the file.

import { createHash } from 'node:crypto';
import * as fs from 'node:fs/promises';
import path from 'node:path';
import { HoldfastError } from '../../util/errors.ts';
import type { Files } from '../host.ts';
import { allOf } from './all-of.ts';
import { codeOf, fileError } from './file-errors.ts';
import { freeBytes, makeFolders, syncFolder } from './folders.ts';
import { makePartialFolder, placeOf, removePartials, writeStream } from './partials.ts';

const PIECE_BYTES = 2 ** 20;

export const files: Files = {
  absolute: (file) => path.resolve(file),
  async read(file, most, fix) {
    try {
      return most === undefined
        ? new Uint8Array(await fs.readFile(file))
        : await allOf(piecesOf(file), file, most, fix);
    } catch (error) {
      throw fileError(`cannot read ${file}`, error);
    }
  },
  async readRange(file, offset, bytes, into) {
    const open = await files.open(file);
    try {
      return await open.readRange(offset, bytes, into);
    } finally {
      await open.close();
    }
  },
  async open(file) {
    const attempt = async <T>(work: () => Promise<T>): Promise<T> => {
      try {
        return await work();
      } catch (error) {
        throw fileError(`cannot read ${file}`, error);
      }
    };
    // Opening a pipe waits for its other end, and neither it nor a device has ranges.
    const found = await attempt(() => fs.stat(file));
    if (!found.isFile() && !found.isDirectory())
      throw new HoldfastError(`cannot read ${file}: it is a pipe or a device; name a file`);
    const handle = await attempt(() => fs.open(file));
    const readRange = async (offset: number, bytes: number, into?: Uint8Array<ArrayBuffer>) => {
      const result = into?.subarray(0, bytes) ?? new Uint8Array(bytes);
      for (let done = 0; done < bytes; ) {
        const { bytesRead } = await handle.read(result, done, bytes - done, offset + done);
        if (bytesRead === 0) throw new Error(`it ends at byte ${offset + done}, before ${offset + bytes}`);
        done += bytesRead;
      }
      return result;
    };
    try {
      const { size } = await handle.stat();
      return {
        bytes: size,
        readRange: (...range) => attempt(() => readRange(...range)),
        close: () => handle.close(),
      };
    } catch (error) {
      await handle.close();
      throw fileError(`cannot read ${file}`, error);
    }
  },
  async writeAtomic(file, bytes) {
    const stream = await files.writeStream(file);
    try {
      await stream.write(typeof bytes === 'string' ? new TextEncoder().encode(bytes) : bytes);
      await stream.commit();
    } catch (error) {
      await stream.abort();
      throw error;
    }
  },
  writeStream,
  async stat(file) {
    try {
      const stat = await fs.stat(file, { bigint: true });
      const kind = stat.isDirectory() ? 'folder' : stat.isFile() ? 'file' : stat.isFIFO() ? 'pipe' : 'other';
      return { kind, bytes: Number(stat.size), id: `${stat.dev}:${stat.ino}` };
    } catch (error) {
      if (/ENOENT|ENOTDIR/.test(codeOf(error))) return undefined;
      if (codeOf(error) === 'ELOOP') return { kind: 'other', bytes: 0 };
      throw fileError(`cannot look at ${file}`, error);
    }
  },
  async list(folder) {
    try {
      return (await fs.readdir(folder)).sort();
    } catch (error) {
      throw fileError(`cannot list ${folder}`, error);
    }
  },
  async makeFolder(folder) {
    try {
      await makeFolders(folder);
    } catch (error) {
      throw fileError(`cannot make the folder ${folder}`, error);
    }
  },
  makePartial: makePartialFolder,
  async removePartials(folder) {
    try {
      await removePartials(folder);
    } catch (error) {
      throw fileError(`cannot remove what ended processes left in ${folder}`, error);
    }
  },
  async syncFolder(folder) {
    try {
      await syncFolder(folder);
    } catch (error) {
      throw fileError(`cannot sync the folder ${folder}`, error);
    }
  },
  freeBytes,
  async sha256() {
    const hash = createHash('sha256');
    return { update: (bytes) => void hash.update(bytes), hex: () => hash.digest('hex') };
  },
  async rename(from, to) {
    try {
      if (!(await fs.lstat(from)).isDirectory()) return await fs.rename(from, to);
      const place = await placeOf(to);
      // Not everywhere is a folder renamed onto an empty one. One that is not empty stays, and is in the way.
      await fs.rmdir(place).catch(() => {});
      await fs.rename(from, place);
    } catch (error) {
      throw fileError(`cannot rename ${from} to ${to}`, error);
    }
  },
  async remove(file) {
    try {
      await fs.rm(file, { recursive: true, force: true });
    } catch (error) {
      throw fileError(`cannot remove ${file}`, error);
    }
  },
};

/** Each as long as what has come: a pipe brings a fraction of what there is room for. */
async function* piecesOf(file: string): AsyncGenerator<Uint8Array> {
  const handle = await fs.open(file);
  try {
    for (const piece = new Uint8Array(PIECE_BYTES); ; ) {
      const { bytesRead } = await handle.read(piece, 0, piece.length, null);
      if (bytesRead === 0) return;
      yield piece.slice(0, bytesRead);
    }
  } finally {
    await handle.close();
  }
}
