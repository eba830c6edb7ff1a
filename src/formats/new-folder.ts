// A folder that is written for others: a model, a tokenizer. Its files are written beside it, into a folder that becomes it by one
// rename. Not a run's folder, in which checkpoints come and go.
//
// Invariant: the folder is there whole or not at all, also after a loss of power; once it is reported, it is there.

import { type Files, folderOf } from '../runtime/host.ts';
import { HoldfastError } from '../util/errors.ts';

/**
 * Makes `out`, a folder that is not there or empty, of what `write` puts into the folder that it is given. Errors:
 * HoldfastError where something is there; as `write`. Nothing is left of it then; where the very last
 * fails, the sync of the folder that it is in, it is there.
 */
export async function writeNewFolder<T>(files: Files, out: string, write: (folder: string) => Promise<T>): Promise<T> {
  const target = withoutSlashes(out);
  await checkFree(files, target);
  const partial = await files.makePartial(target);
  let result: T;
  try {
    result = await write(partial);
    await files.syncFolder(partial);
    // What came meanwhile stays.
    await checkFree(files, target);
    await files.rename(partial, target);
  } catch (error) {
    // The disk may be full. The error above is the one that matters.
    await files.remove(partial).catch(() => {});
    throw error;
  }
  // Where `target` is a link, the folder that it leads to is beside this one.
  await files.syncFolder(folderOf(partial));
  return result;
}

/** Errors: HoldfastError where such a folder cannot be made. Nothing is left of the try. */
export async function checkNewFolder(files: Files, out: string): Promise<void> {
  const target = withoutSlashes(out);
  await checkFree(files, target);
  await files.remove(await files.makePartial(target));
}

const withoutSlashes = (path: string): string => path.replace(/(?<=.)\/+$/, '');

/** Errors: HoldfastError where something is there that a folder would not take the place of. */
async function checkFree(files: Files, target: string): Promise<void> {
  const there = await files.stat(target);
  if (there && (there.kind !== 'folder' || (await files.list(target)).length > 0)) {
    throw new HoldfastError(`${target}: is there already; name a folder that is not, or an empty one`);
  }
}
