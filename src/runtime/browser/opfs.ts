// The browser's private file system (OPFS) as a tree of paths, and the one thing that it lacks: a folder cannot be
// renamed. Here it is done by moving its files one by one, after a note of what is to be done; a note that is found
// later (the tab was closed half-way) is carried out first. So after a crash, too, a
// folder is renamed or it is not.
//
// Invariant: nothing outside the folder `holdfast` of the site's file system is touched.

import { accept, object, type Schema, text } from '../../util/json.ts';

const ROOT = 'holdfast';
/** What is being renamed, at the top of the tree. */
const NOTE = '.renaming';
const LOCK = 'holdfast renames';

export async function openRoot(): Promise<FileSystemDirectoryHandle> {
  return (await navigator.storage.getDirectory()).getDirectoryHandle(ROOT, { create: true });
}

/** The folder that a path is in, and its name there. */
export function splitPath(path: string): [folder: string, name: string] {
  const parts = partsOf(path);
  return [parts.slice(0, -1).join('/'), parts.at(-1) ?? ''];
}

const partsOf = (path: string): string[] => path.split('/').filter((part) => part !== '' && part !== '.');

export async function openFolder(path: string, create = false): Promise<FileSystemDirectoryHandle> {
  let folder = await openRoot();
  for (const part of partsOf(path)) folder = await folder.getDirectoryHandle(part, { create });
  return folder;
}

/** Undefined when nothing is there. */
export async function find(path: string): Promise<FileSystemDirectoryHandle | FileSystemFileHandle | undefined> {
  const [folder, name] = splitPath(path);
  try {
    const parent = await openFolder(folder);
    if (name === '') return parent;
    try {
      return await parent.getFileHandle(name);
    } catch (error) {
      if (errorName(error) !== 'TypeMismatchError') throw error;
      return await parent.getDirectoryHandle(name);
    }
  } catch (error) {
    if (errorName(error) === 'NotFoundError' || errorName(error) === 'TypeMismatchError') return undefined;
    throw error;
  }
}

export function errorName(error: unknown): string {
  return error instanceof Error ? error.name : '';
}

interface Renaming {
  readonly from: string;
  readonly to: string;
}

const RENAMING: Schema<Renaming> = object({ from: text, to: text });

/** `writeNote` writes a small file whole or not at all. */
export async function renameFolder(
  from: string,
  to: string,
  writeNote: (path: string, text: string) => Promise<void>,
): Promise<void> {
  await navigator.locks.request(LOCK, async () => {
    await finish();
    await writeNote(NOTE, JSON.stringify({ from, to } satisfies Renaming));
    await carryOut({ from, to });
  });
}

/** Carries out what a tab that is gone has begun. One that lives still holds the lock. */
export async function finishRenames(): Promise<void> {
  await navigator.locks.request(LOCK, finish);
}

async function finish(): Promise<void> {
  const note = await find(NOTE);
  if (note?.kind !== 'file') return;
  const renaming = readNote(await (await note.getFile()).text());
  if (renaming) await carryOut(renaming);
  else await removeNote();
}

/** Undefined for one that is damaged, as a loss of power may leave it. */
function readNote(json: string): Renaming | undefined {
  try {
    return accept(RENAMING, JSON.parse(json));
  } catch {
    return undefined;
  }
}

const removeNote = async () => (await openRoot()).removeEntry(NOTE);

/** Any number of times, from wherever it was cut off. */
async function carryOut({ from, to }: Renaming): Promise<void> {
  const source = await find(from);
  if (source?.kind === 'directory') {
    await moveAll(source, await openFolder(to, true));
    const [folder, name] = splitPath(from);
    await (await openFolder(folder)).removeEntry(name, { recursive: true });
  }
  await removeNote();
}

async function moveAll(from: FileSystemDirectoryHandle, to: FileSystemDirectoryHandle): Promise<void> {
  // Listed before anything moves: the order of a folder that changes is not defined.
  const entries: (FileSystemDirectoryHandle | FileSystemFileHandle)[] = [];
  for await (const entry of from.values()) entries.push(entry);
  for (const entry of entries) {
    if (entry.kind === 'file') await entry.move(to, entry.name);
    else await moveAll(entry, await to.getDirectoryHandle(entry.name, { create: true }));
  }
}
