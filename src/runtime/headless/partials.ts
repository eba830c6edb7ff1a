// Files and folders that are being written, beside their targets: their names say which process writes them. What one that is
// gone has left goes when the same target is written again.
//
// Invariant: what a living process writes stays. Of a process that cannot be seen from here, on another machine or in another
// container, that is what was changed within a day.

import * as fs from 'node:fs/promises';
import path from 'node:path';
import { HoldfastError } from '../../util/errors.ts';
import type { WriteStream } from '../host.ts';
import { codeOf, fileError } from './file-errors.ts';
import { makeFolders } from './folders.ts';
import { identityIn, isGone, makeOwn, OWNER, SELF } from './processes.ts';

const DAY_MS = 24 * 60 * 60 * 1000;
const PARTIAL = new RegExp(`^(.*)\\.partial-${OWNER}$`, 's');

/** See Files. */
export async function writeStream(file: string): Promise<WriteStream> {
  const attempt = async <T>(work: () => Promise<T>): Promise<T> => {
    try {
      return await work();
    } catch (error) {
      throw fileError(`cannot write ${file}`, error, 'there is no such folder');
    }
  };
  const place = await attempt(() => placeOf(file));
  const stat = await attempt(() => fs.stat(place).catch(missing));
  // What a rename puts there takes their place: a file where a device was.
  if (stat && !stat.isFile()) {
    const kind = stat.isDirectory() ? 'folder' : stat.isFIFO() ? 'pipe' : 'device';
    throw new HoldfastError(`cannot write ${file}: it is a ${kind}; name a file`);
  }
  const { path: partial, made: handle } = await attempt(() => makeBeside(place, (partial) => fs.open(partial, 'wx')));
  return {
    write: (bytes) => attempt(() => handle.writeFile(bytes)),
    commit: () =>
      attempt(async () => {
        await handle.sync();
        await handle.close();
        await fs.rename(partial, place);
      }),
    async abort() {
      await handle.close().catch(() => {});
      await fs.rm(partial, { force: true }).catch(() => {});
    },
  };
}

/** See Files.makePartial. */
export async function makePartialFolder(target: string): Promise<string> {
  try {
    const place = await placeOf(target);
    await makeFolders(path.dirname(place));
    return (await makeBeside(place, (partial) => fs.mkdir(partial))).path;
  } catch (error) {
    throw fileError(`cannot make a folder beside ${target}`, error);
  }
}

/**
 * Where a path leads to through links, also where nothing is there yet: what is put there leaves the links as they are. Errors: as
 * the system throws them, of links that lead in a circle and of what cannot be looked at.
 */
export async function placeOf(target: string): Promise<string> {
  try {
    return await fs.realpath(target);
  } catch (error) {
    missing(error);
    const to = await fs.readlink(target).catch(() => undefined);
    if (to === undefined) return target;
    return placeOf(path.resolve(await fs.realpath(path.dirname(target)), to));
  }
}

/** Nothing, for what is not there. Errors: any other, as it is. */
function missing(error: unknown): undefined {
  if (!/^(ENOENT|ENOTDIR)$/.test(codeOf(error))) throw error;
}

/** `make` refuses a name that is taken. */
async function makeBeside<T>(target: string, make: (partial: string) => Promise<T>) {
  // What cannot be removed takes room alone.
  await removePartials(path.dirname(target), path.basename(target)).catch(() => {});
  return makeOwn((owner) => `${target}.partial-${owner}`, make);
}

/** Removes what unfinished writes left of one target in a folder, or of all. Errors: as the system throws them. */
export async function removePartials(folder: string, target?: string): Promise<void> {
  for (const name of await fs.readdir(folder)) {
    const [, written, ...owner] = PARTIAL.exec(name) ?? [];
    if (written === undefined || (target !== undefined && target !== written)) continue;
    const partial = path.join(folder, name);
    if (await isAbandoned(partial, owner)) await fs.rm(partial, { recursive: true, force: true });
  }
}

async function isAbandoned(partial: string, inName: readonly (string | undefined)[]): Promise<boolean> {
  const owner = identityIn(inName);
  if (isGone(owner)) return true;
  if (owner.place === SELF.place) return false;
  const stat = await fs.stat(partial).catch(() => undefined);
  return stat !== undefined && Date.now() - stat.mtimeMs > DAY_MS;
}
