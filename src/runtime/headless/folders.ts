// Folders, made with the folders above them, and the room that is left in one. Not Node's own `recursive`: that calls whatever
// goes wrong on the way "does not exist", and does not return in folders of the system's like /proc.

import * as fs from 'node:fs/promises';
import path from 'node:path';
import { HoldfastError } from '../../util/errors.ts';
import { codeOf } from './file-errors.ts';

/** Those that were made, outermost first. */
export type NewFolders = string[];

/** Times that another process may remove what is made here, empty as it is. */
const MOST_TRIES = 20;

/** Their names survive a loss of power. Errors: as the system throws them, of the folder that could not be made; none is left then. */
export async function makeFolders(folder: string): Promise<NewFolders> {
  const made: NewFolders = [];
  try {
    await makeInto(made, folder);
  } catch (error) {
    await removeEmpty(made);
    throw error;
  }
  return made;
}

/** Innermost first; those that something lies in stay. */
export async function removeEmpty(folders: readonly string[]): Promise<void> {
  for (const folder of folders.toReversed()) await fs.rmdir(folder).catch(() => {});
}

async function makeInto(made: NewFolders, folder: string): Promise<void> {
  for (let tries = 0; ; tries++) {
    try {
      await fs.mkdir(folder);
      made.push(folder);
    } catch (error) {
      const found = await fs.stat(folder).catch(() => undefined);
      if (!found?.isDirectory()) {
        // It was there, and its maker has removed it in between.
        if (codeOf(error) === 'EEXIST' && !found && tries < MOST_TRIES) continue;
        const parent = path.dirname(folder);
        if (codeOf(error) !== 'ENOENT' || parent === folder) throw error;
        if (tries === MOST_TRIES) throw new HoldfastError(`cannot make the folder ${folder}: ${parent} takes none`);
        await makeInto(made, parent);
        continue;
      }
    }
    // Also of one that another process has just made.
    await syncFolder(path.dirname(folder));
    return;
  }
}

/** Errors: as the system throws them. */
export async function syncFolder(folder: string): Promise<void> {
  try {
    const handle = await fs.open(folder);
    try {
      await handle.sync();
    } finally {
      await handle.close();
    }
  } catch (error) {
    // Windows opens no folders, some file systems sync none, and one above ours may be closed to us.
    if (/^(EISDIR|EINVAL|EPERM|EACCES|EBADF|ENOTSUP|ENOSYS)$/.test(codeOf(error))) return;
    throw error;
  }
}

/** Infinity where the runtime or the file system does not say. */
export async function freeBytes(folder: string): Promise<number> {
  try {
    const { bavail, bsize } = await fs.statfs(folder);
    return bavail * bsize;
  } catch {
    return Number.POSITIVE_INFINITY;
  }
}
