// A lock on a folder: a file in it that names the process whose folder it is. Not advice to the operating system,
// which network file systems handle in their own ways: all it takes is that of many links to one name, one is made.
//
// Invariant: of any number of processes, living or killed at any moment, at most one has a folder. A lock is stale
// when its process is gone, and when it came along with a copy of its folder, which has it still. It may be removed only
// under a second lock, whose name holds the stale one's id, and only if the folder's lock still has that id: ids are never
// used again, so what is removed is never another's new lock. The second lock may become stale as well, and is removed in
// the same way.

import { readFileSync, unlinkSync } from 'node:fs';
import * as fs from 'node:fs/promises';
import os from 'node:os';
import path from 'node:path';
import process from 'node:process';
import { setTimeout as sleep } from 'node:timers/promises';
import { HoldfastError } from '../../util/errors.ts';
import { type FolderClaim, FolderHeld, join } from '../host.ts';
import { codeOf, fileError } from './file-errors.ts';
import { makeFolders, type NewFolders, removeEmpty } from './folders.ts';
import { isGone, type ProcessIdentity, SELF } from './processes.ts';

const LOCK = 'run.lock';
/** A lock that another process is about to remove, or that is being written where files cannot be linked. */
const PAUSE_MS = 10;
/** After a second of them a lock that cannot be read is not one that is being written. */
const MOST_PAUSES = 100;
/** Far more than a lock's text has. */
const MOST_LOCK_BYTES = 2 ** 16;
/** No folder has it: from here on a number and the next one may be the same. */
const LAST_NUMBER = Number.MAX_SAFE_INTEGER;

interface Owner extends ProcessIdentity {
  /** Of this one lock, never used again. */
  readonly id: string;
  readonly host: string;
  /** When the lock was taken. */
  readonly since: string;
  /** As it was named then, from the root. Absent in locks of earlier versions. */
  readonly folder?: string;
  /** Its number in its file system, which a copy does not have. Absent in locks of earlier versions. */
  readonly number?: string;
}

/** Locks of this process and their ids, for its end. */
const held = new Map<string, string>();
let isWatched = false;

/**
 * Takes the folder for this process, and makes it if it is missing. Errors: FolderHeld where another process has it;
 * HoldfastError where it cannot be written to, or its lock names no process.
 */
export async function claimFolder(folder: string): Promise<FolderClaim> {
  // A program may go to another folder meanwhile.
  const place = path.resolve(folder);
  const lock = path.join(place, LOCK);
  const made: NewFolders = [];
  const takeIt = async (): Promise<string> => {
    for (let tries = 0; ; tries++) {
      try {
        made.push(...(await makeFolders(place)));
        const id = crypto.randomUUID();
        const other = await take(lock, id);
        if (other) {
          await removeEmpty(made);
          throw isHeld(folder, join(folder, LOCK), other);
        }
        holdUntilEnd(lock, id);
        return id;
      } catch (error) {
        // Another process that made the folder removes it when it ends with nothing in it.
        if (codeOf(error) !== 'ENOENT' || tries === MOST_PAUSES) {
          throw fileError(`cannot write to ${folder}`, error);
        }
      }
    }
  };
  let id = await takeIt();
  let taken = await identityOf(place);
  await removeLeftovers(place);
  return {
    folder,
    async hold() {
      if (await isOf(lock, id)) return true;
      id = await takeIt();
      const before = taken;
      taken = await identityOf(place);
      return taken === before;
    },
    async release() {
      held.delete(lock);
      // One that cannot be removed is stale once this process has ended.
      if (await isOf(lock, id)) await fs.rm(lock, { force: true }).catch(() => {});
      await removeEmpty(made);
    },
  };
}

/** Whether a lock is there, and has this id. */
async function isOf(lock: string, id: string): Promise<boolean> {
  const owner = await ownerOf(lock).catch(() => undefined);
  return owner !== 'unknown' && owner?.id === id;
}

/** Tells folders apart that have had one name. */
async function identityOf(folder: string): Promise<string> {
  const { dev, ino } = await fs.stat(folder, { bigint: true });
  return `${dev}:${ino}`;
}

/** Takes a new folder in `parent`, named `prefix` and the number after the highest there is. */
export async function claimNextFolder(parent: string, prefix: string): Promise<FolderClaim> {
  const made: NewFolders = [];
  for (let number = 1, tries = 0; ; tries++) {
    try {
      made.push(...(await makeFolders(parent)));
      number = Math.max(number, (await highestNumber(parent, prefix)) + 1);
      if (number >= LAST_NUMBER)
        throw new HoldfastError(`${parent}: there is no number after ${prefix}${LAST_NUMBER - 1}; name a folder`);
      const folder = join(parent, `${prefix}${number}`);
      await fs.mkdir(folder);
      made.push(folder);
      const claim = await claimFolder(folder);
      const release = async () => {
        await claim.release();
        await removeEmpty(made);
      };
      return { ...claim, release };
    } catch (error) {
      // Another process was faster, or ended and removed the parent that it had made.
      if (codeOf(error) === 'EEXIST') number++;
      else if (codeOf(error) !== 'ENOENT' || tries > MOST_PAUSES) {
        throw fileError(`cannot make a folder in ${parent}`, error);
      }
    }
  }
}

async function highestNumber(parent: string, prefix: string): Promise<number> {
  const names = (await fs.readdir(parent)).filter((name) => name.startsWith(prefix));
  const numbers = names.map((name) => Number(name.slice(prefix.length))).filter((number) => number < LAST_NUMBER);
  return Math.max(0, ...numbers.filter(Number.isSafeInteger));
}

/** Undefined: the lock is this process's now. Otherwise its owner, or 'unknown' for a file that names none. */
async function take(lock: string, id: string): Promise<Owner | 'unknown' | undefined> {
  const folder = path.dirname(lock);
  const number = await numberOf(folder);
  const self: Owner = { ...SELF, id, host: os.hostname(), since: new Date().toISOString(), folder, number };
  for (let pauses = 0; ; ) {
    if (await createWhole(lock, `${JSON.stringify(self)}\n`, self.id)) return undefined;
    const owner = await ownerOf(lock);
    if (owner === 'unknown' || owner === undefined) {
      if (++pauses > MOST_PAUSES) return 'unknown';
      await sleep(PAUSE_MS);
    } else {
      if (!(isGone(owner) || (await isCopied(lock, owner))) || ++pauses > MOST_PAUSES) return owner;
      await removeStale(lock, owner);
    }
  }
}

/**
 * Whether it came along with a copy: the folder that it names has the same lock, or, given back, none of it any more, and is
 * another one. Where that cannot be seen from here, it did not. One folder that is mounted twice has one number on two devices,
 * and one that was moved keeps its number.
 */
async function isCopied(lock: string, { id, place, folder, number }: Owner): Promise<boolean> {
  if (place !== SELF.place || folder === undefined) return false;
  try {
    const first = (await isOf(path.join(folder, path.basename(lock)), id)) ? await numberOf(folder) : number;
    return first !== undefined && first !== (await numberOf(path.dirname(lock)));
  } catch {
    return false;
  }
}

const numberOf = async (folder: string): Promise<string> => `${(await fs.stat(folder, { bigint: true })).ino}`;

async function removeStale(lock: string, stale: Owner): Promise<void> {
  const second = `${lock}.${stale.id}`;
  if (await take(second, crypto.randomUUID())) {
    await sleep(PAUSE_MS);
    return;
  }
  try {
    const now = await ownerOf(lock);
    if (now !== 'unknown' && now?.id === stale.id) await fs.rm(lock, { force: true });
  } finally {
    await fs.rm(second, { force: true });
  }
}

/**
 * Makes a file that has all its text from the first moment on, or none: false where there is one. Errors: as the
 * system throws them.
 */
async function createWhole(file: string, text: string, id: string): Promise<boolean> {
  const partial = `${file}.${id}.new`;
  try {
    const handle = await fs.open(partial, 'wx');
    try {
      await handle.writeFile(text);
      await handle.sync();
    } finally {
      await handle.close();
    }
    await fs.link(partial, file);
    return true;
  } catch (error) {
    const code = codeOf(error);
    if (code === 'EEXIST') return false;
    if (!/^(EPERM|ENOSYS|ENOTSUP|EOPNOTSUPP|EMLINK)$/.test(code)) throw error;
    // A file system without hard links.
    return createInPlace(file, text);
  } finally {
    await fs.rm(partial, { force: true });
  }
}

async function createInPlace(file: string, text: string): Promise<boolean> {
  try {
    await fs.writeFile(file, text, { flag: 'wx', flush: true });
    return true;
  } catch (error) {
    if (codeOf(error) === 'EEXIST') return false;
    throw error;
  }
}

/** Undefined where nothing has the name. */
async function ownerOf(lock: string): Promise<Owner | 'unknown' | undefined> {
  let text: string;
  try {
    // Not what a link leads to: where that is nothing, the name is taken all the same. And a pipe would be waited for.
    const stat = await fs.lstat(lock);
    if (!stat.isFile() || stat.size > MOST_LOCK_BYTES) return 'unknown';
    text = await fs.readFile(lock, 'utf8');
  } catch (error) {
    if (codeOf(error) === 'ENOENT') return undefined;
    throw error;
  }
  try {
    const owner = JSON.parse(text) as Owner;
    const isOne = /^[0-9a-f-]{36}$/.test(owner.id) && Number.isSafeInteger(owner.pid) && owner.pid > 0;
    const strings = [owner.place, owner.started, owner.host, owner.since];
    const isWhole = isOne && strings.every((value) => typeof value === 'string');
    const mayHave = [owner.folder, owner.number].every((value) => /^(string|undefined)$/.test(typeof value));
    return isWhole && mayHave ? owner : 'unknown';
  } catch {
    return 'unknown';
  }
}

function isHeld(folder: string, lock: string, other: Owner | 'unknown'): HoldfastError {
  if (other === 'unknown') {
    return new HoldfastError(
      `${folder}: ${lock} names no process; remove that file if no process trains there, or choose another folder`,
    );
  }
  const { pid, host, since, place, started } = other;
  const seen = place === SELF.place && started !== '';
  const unseen = seen ? '' : `; if that process is gone, which cannot be seen from here, remove ${lock}`;
  return new FolderHeld(
    `${folder}: process ${pid} on ${host} has it since ${since}; wait for its end or choose another folder${unseen}`,
  );
}

/** What processes left that were killed while they took or removed a lock. Only for the folder's owner. */
async function removeLeftovers(folder: string): Promise<void> {
  for (const name of await fs.readdir(folder)) {
    if (!name.startsWith(`${LOCK}.`)) continue;
    const owner = await ownerOf(path.join(folder, name));
    if (owner === 'unknown' || (owner && isGone(owner))) await fs.rm(path.join(folder, name), { force: true });
  }
}

/** A process that ends in the middle, by an error or a second interrupt, leaves no lock behind. */
function holdUntilEnd(lock: string, id: string): void {
  if (!isWatched) process.once('exit', removeHeld);
  isWatched = true;
  held.set(lock, id);
}

function removeHeld(): void {
  for (const [lock, id] of held) {
    try {
      if (readFileSync(lock, 'utf8').includes(id)) unlinkSync(lock);
    } catch {
      // It is stale in a moment.
    }
  }
}
