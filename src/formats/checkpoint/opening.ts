// Opening what a run that goes on replaces meanwhile: it is begun again with what is there then. And folders whose files
// stay open, so that what was opened stays readable. What is read of them is load.ts.
//
// Invariant: what is opened is of one checkpoint, and a file that seems not to be there is not in it.

import { type FileStat, type Files, type FolderReader, join, type OpenFile } from '../../runtime/host.ts';
import { readWhole } from '../../runtime/read-whole.ts';
import { finishing, HoldfastError } from '../../util/errors.ts';
import { readerOf } from '../archive.ts';
import { MOST_SUMS_BYTES } from './checksums.ts';
import {
  ADAPTER_FILES,
  adapterFolder,
  COMPANIONS,
  CONFIG,
  hasWeights,
  MOMENTS,
  MOMENTS_INDEX,
  modelFolder,
  RUN_STATE,
  SUMS,
  TRAINER_STATE,
} from './folder.ts';
import { shardNames } from './shard-names.ts';
import { weightFiles } from './tensor-files.ts';

const NO_FILES = { folder: 'a folder', pipe: 'a pipe', other: 'a device' } as const;

/** Checkpoints that may be replaced while they are opened, one after the other. */
const MOST_REPLACED = 20;

/** Where a model was found: a folder of `files`, which may be the inside of a zip. */
export interface FoundFolder {
  readonly files: FolderReader;
  readonly folder: string;
}

/** Opens the folder that a name stands for; where it is replaced or removed meanwhile, the one it stands for then. */
export const opening = <T>(files: FolderReader, name: string, open: (at: string) => Promise<T>): Promise<T> =>
  openingFound(
    files,
    () => modelFolder(files, name),
    (at) => unchanged(files, at, () => open(at)),
  );

/** As `opening`, of an adapter; undefined where the name stands for none. */
export const openingAdapter = <T>(
  files: FolderReader,
  name: string,
  open: (at: string) => Promise<T>,
): Promise<T | undefined> =>
  openingFound(
    files,
    () => adapterFolder(files, name),
    async (at) => (at === undefined ? undefined : unchanged(files, at, () => open(at))),
  );

async function openingFound<T, At extends string | undefined>(
  files: FolderReader,
  find: () => Promise<At>,
  open: (at: At) => Promise<T>,
): Promise<T> {
  for (let attempt = 0; ; attempt++) {
    const at = await find();
    const before = at && (await identity(files, at));
    try {
      return await open(at);
    } catch (error) {
      const same = before !== undefined && before === (at && (await identity(files, at)));
      if (same || attempt === MOST_REPLACED) throw error;
    }
  }
}

/** In a folder that goes while `read` looks at it, files would seem not to be there. Errors: HoldfastError where it has gone. */
async function unchanged<T>(files: FolderReader, folder: string, read: () => Promise<T>): Promise<T> {
  const before = await identity(files, folder);
  const found = await read();
  if (before !== undefined && before === (await identity(files, folder))) return found;
  throw removed(folder);
}

/** Tells two checkpoints of one name apart; undefined where there is none any more. */
async function identity(files: FolderReader, folder: string): Promise<string | undefined> {
  try {
    return new TextDecoder().decode(await readWhole(files, join(folder, SUMS), MOST_SUMS_BYTES));
  } catch {
    return (await files.stat(folder)) ? '' : undefined;
  }
}

/** What `open` makes of the folder that a name stands for, whose files stay open until they are released. */
export async function openHeld<T>(
  from: Files,
  name: string,
  open: (files: FolderReader, folder: string) => Promise<T>,
): Promise<{ opened: T; found: FoundFolder; release: () => Promise<void> }> {
  const files = await readerOf(from, name);
  const openAt = async (folder: string) => {
    const { held, release } = files === from ? await hold(from, folder) : { held: files, release: async () => {} };
    try {
      return { opened: await open(held, folder), found: { files: held, folder }, release };
    } catch (error) {
      return finishing(() => Promise.reject(error), release);
    }
  };
  return openingFound(files, () => modelFolder(files, name), openAt);
}

/** The files of a model or a checkpoint, kept open: a reader of that folder alone, until it is released. */
async function hold(files: Files, folder: string): Promise<{ held: FolderReader; release: () => Promise<void> }> {
  const open = new Map<string, OpenFile>();
  /** What is no file, or, undefined, not there: it is named where it is asked for. */
  const others = new Map<string, FileStat | undefined>();
  let isOver = false;
  const release = () => {
    isOver = true;
    return finishing(async () => {}, ...[...open.values()].map((file) => () => file.close()));
  };
  const openAll = async () => {
    for (const name of await namesToHold(files, folder)) {
      const path = join(folder, name);
      const found = await files.stat(path);
      if (found?.kind === 'file') open.set(path, await files.open(path));
      else others.set(path, found);
    }
  };
  try {
    await unchanged(files, folder, openAll);
  } catch (error) {
    return finishing(() => Promise.reject(error), release);
  }
  const stat = async (path: string): Promise<FileStat | undefined> => {
    const file = open.get(path);
    if (file) return { kind: 'file', bytes: file.bytes };
    return others.has(path) ? others.get(path) : files.stat(path);
  };
  const at = async (path: string) => {
    if (isOver)
      throw new HoldfastError(
        `cannot read ${path}: it was open until the function that it was lent to was over (withModel); read in that what is needed`,
      );
    const file = open.get(path);
    if (file) return file;
    const found = (await stat(path))?.kind;
    const isNone = found === undefined || found === 'file';
    throw new HoldfastError(
      `cannot read ${path}: it ${isNone ? 'does not exist' : `is ${NO_FILES[found]}, not a file; get the file again`}`,
    );
  };
  const held: FolderReader = {
    async read(path) {
      const file = await at(path);
      return file.readRange(0, file.bytes);
    },
    readRange: async (path, ...range) => (await at(path)).readRange(...range),
    stat,
    list: (path) => files.list(path),
    sha256: () => files.sha256(),
  };
  return { held, release };
}

/** All that a model or a checkpoint may have. */
async function namesToHold(files: FolderReader, folder: string): Promise<ReadonlySet<string>> {
  const weights = (await hasWeights(files, folder)) ? await weightFiles(files, folder) : [];
  const moments = [MOMENTS, MOMENTS_INDEX, ...shardNames(MOMENTS, await files.list(folder))];
  return new Set([CONFIG, ...weights, ...ADAPTER_FILES, ...COMPANIONS, ...moments, RUN_STATE, TRAINER_STATE, SUMS]);
}

/** The error of a folder that is not there any more. */
export const removed = (folder: string): HoldfastError =>
  new HoldfastError(
    `${folder}: was removed while it was read, as a run that goes on removes its older checkpoints; load again`,
  );
