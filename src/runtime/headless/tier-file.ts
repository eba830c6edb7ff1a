// The file of the disk tier, for Node and Deno: one for each that is opened, of a fixed size, named after its process.
// Its space is taken as it is made: a disk that others fill later does not end a run. Folders that were made for it go with
// it, where nothing else lies in them.

import * as fs from 'node:fs/promises';
import path from 'node:path';
import process from 'node:process';
import { formatBytes } from '../../util/bytes.ts';
import { finishing, HoldfastError } from '../../util/errors.ts';
import type { BlockFile } from '../host.ts';
import { codeOf, fileError } from './file-errors.ts';
import { freeBytes, makeFolders, type NewFolders, removeEmpty } from './folders.ts';
import { identityIn, isGone, makeOwn, OWNER } from './processes.ts';
import { removeAtEnd } from './removed-at-end.ts';

/** See Host. */
export async function openBlockFile(folder: string, bytes: number): Promise<BlockFile> {
  const made: NewFolders = [];
  // A program may go to another folder meanwhile.
  const place = path.resolve(folder);
  let file: string;
  let handle: fs.FileHandle;
  try {
    ({ file, handle } = await createFile(folder, place, bytes, made));
  } catch (error) {
    await removeEmpty(made);
    throw error;
  }
  const forget = removeAtEnd(file, made);
  const removeFile = () =>
    finishing(
      () => handle.close(),
      () => fs.rm(file, { force: true }),
      forget,
    );
  try {
    await handle.truncate(bytes);
    await reserve(handle, bytes);
  } catch (error) {
    // The error above is the one that matters.
    await removeFile().catch(() => {});
    const free = Math.min(await freeBytes(place), bytes);
    await removeEmpty(made);
    if (codeOf(error) === 'ENOSPC') throw tooSmall(folder, free, bytes);
    throw fileError(`cannot make ${file} ${bytes} bytes long`, error);
  }
  return {
    path: path.join(folder, path.basename(file)),
    bytes,
    read: async (offset, into) => (await handle.read(into, 0, into.length, offset)).bytesRead,
    write: async (offset, from) => (await handle.write(from, 0, from.length, offset)).bytesWritten,
    remove: () => finishing(removeFile, () => removeEmpty(made)),
  };
}

function tooSmall(folder: string, free: number, bytes: number): HoldfastError {
  return new HoldfastError(
    `${folder} has ${formatBytes(free)} free (${free} bytes), the disk tier needs ${formatBytes(bytes)} ` +
      `(${bytes} bytes); make space there, choose another folder or set a lower disk limit`,
  );
}

// ---- Names -----------------------------------------------------------------------------------------------

const NAME = new RegExp(`^holdfast-tier-${OWNER}\\.bin$`);

/** Times that another process may remove the folder, which it had made, as it ends. */
const MOST_TRIES = 20;

/** In `place`, which errors call `folder`. `made` gets the folders that are made for it. */
async function createFile(
  folder: string,
  place: string,
  bytes: number,
  made: NewFolders,
): Promise<{ file: string; handle: fs.FileHandle }> {
  for (let tries = 1; ; tries++) {
    try {
      made.push(...(await makeFolders(place)));
    } catch (error) {
      throw fileError(`cannot make the folder ${folder}`, error);
    }
    try {
      await removeStaleFiles(place);
      const free = await freeBytes(place);
      if (free < bytes) throw tooSmall(folder, free, bytes);
      const { path: file, made: handle } = await makeOwn(
        (owner) => path.join(place, `holdfast-tier-${owner}.bin`),
        (file) => fs.open(file, 'wx+', 0o600),
      );
      return { file, handle };
    } catch (error) {
      if (codeOf(error) === 'ENOENT' && tries < MOST_TRIES) continue;
      throw fileError(`cannot create a file in ${folder}`, error);
    }
  }
}

async function removeStaleFiles(folder: string): Promise<void> {
  try {
    for (const name of await fs.readdir(folder)) {
      const [, ...owner] = NAME.exec(name) ?? [];
      if (owner.length > 0 && isGone(identityIn(owner))) await fs.rm(path.join(folder, name), { force: true });
    }
  } catch (error) {
    if (codeOf(error) === 'ENOENT') throw error;
    throw fileError(`cannot remove what ended processes left in ${folder}`, error);
  }
}

// ---- Space -----------------------------------------------------------------------------------------------

const ZEROS = 1 << 20;

/** File systems that write everything to a new place (btrfs, ZFS) may run out of space nevertheless. */
async function reserve(handle: fs.FileHandle, bytes: number): Promise<void> {
  // Windows gives a file its space with its length.
  if (bytes === 0 || process.platform === 'win32') return;
  const status = await allocate(handle.fd, bytes);
  if (status === 0) return;
  if (status === NO_SPACE) throw Object.assign(new Error('no space'), { code: 'ENOSPC' });
  const zeros = new Uint8Array(Math.min(ZEROS, bytes));
  for (let at = 0; at < bytes; ) {
    at += (await handle.write(zeros, 0, Math.min(zeros.length, bytes - at), at)).bytesWritten;
  }
}

/** ENOSPC has this number on every system that has posix_fallocate. */
const NO_SPACE = 28;

/** What posix_fallocate says: 0 when the file has its space; undefined where the system has no such call. */
async function allocate(descriptor: number, bytes: number): Promise<number | undefined> {
  try {
    const koffi = (await import('koffi')).default;
    const call = koffi.load(null).func('int posix_fallocate(int descriptor, int64_t offset, int64_t bytes)');
    return await new Promise((resolve, reject) => {
      call.async(descriptor, 0, bytes, (error: unknown, status: number) => (error ? reject(error) : resolve(status)));
    });
  } catch {
    return undefined;
  }
}
