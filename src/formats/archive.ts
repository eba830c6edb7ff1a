// A zip as a folder: its files by their paths, so that what is taken from a zip is chosen as it is in a real folder. And
// files that come one by one, from a zip or chosen by themselves, on their way into a folder.
//
// Not the zip format (zip.ts), nor the folder (listed-folder.ts).

import { type Files, type FolderReader, type Host, join, type WriteStream } from '../runtime/host.ts';
import { formatBytes } from '../util/bytes.ts';
import { finishing, HoldfastError, messageOf } from '../util/errors.ts';
import { type ByteSource, sourceAt } from './byte-source.ts';
import { sumOf } from './checkpoint/checksums.ts';
import { CONFIG } from './checkpoint/folder.ts';
import { isGGUF, openGGUF } from './gguf/open.ts';
import { type ImportedFile, ListedFolder, type ListWords } from './listed-folder.ts';
import type { ZipEntry } from './zip.ts';

const WORDS: ListWords = { verb: 'zip', wanted: "give the zip of a run, a checkpoint, or a model's files" };

/** What a GGUF file is called in a folder of its own, which then is its model's. */
export const KEPT_GGUF = 'model.gguf';

export const isZip = (path: string): boolean => /\.zip$/i.test(path);

/**
 * What weights are read through: `files`, or where the path is a zip, a GGUF file or a folder that keeps one (KEPT_GGUF, and no
 * model beside it), what is in it, read when it is asked for.
 */
export async function readerOf<F extends FolderReader>(files: F, path: string): Promise<F | ListedFolder> {
  const file = isZip(path) || isGGUF(path) ? path : join(path, KEPT_GGUF);
  const stat = await files.stat(file);
  if (stat?.kind !== 'file' || (file !== path && (await files.stat(join(path, CONFIG))))) return files;
  const source = sourceAt(files, file, stat.bytes);
  return isZip(path) ? openZip(source, path, () => files.sha256()) : openGGUF(source, path, () => files.sha256());
}

/** The zip at `path` as a folder of that path. Errors: HoldfastError for what is no zip, and as ListedFolder. */
export async function openZip(source: ByteSource, path: string, sha256: Files['sha256']): Promise<ListedFolder> {
  const { readZip } = await import('./zip.ts');
  const places = new Map<string, Promise<number | undefined>>();
  const unpacked = new Map<string, Promise<Uint8Array<ArrayBuffer>>>();
  const files = (await readZip(source, path)).map((entry) => ({
    path: entry.path,
    bytes: entry.bytes,
    open: () => entry.open(),
    whole: (name: string) => wholeOf(entry, name),
    /** Of a file that is not compressed, no more than these bytes are in memory. */
    async readRange(name: string, offset: number, bytes: number) {
      const at = await remembered(places, entry.path, () => entry.place());
      if (at !== undefined) return source.read(at + offset, bytes);
      const whole = await remembered(unpacked, entry.path, () => wholeOf(entry, name));
      return whole.slice(offset, offset + bytes);
    },
  }));
  return new ListedFolder(path, files, sha256, WORDS);
}

function remembered<V>(known: Map<string, Promise<V>>, key: string, make: () => Promise<V>): Promise<V> {
  const made = known.get(key) ?? make();
  known.set(key, made);
  return made;
}

async function wholeOf({ bytes, open }: ZipEntry, path: string): Promise<Uint8Array<ArrayBuffer>> {
  // What it cannot have is refused before room is made for it.
  const pieces = open();
  let all: Uint8Array<ArrayBuffer>;
  try {
    all = new Uint8Array(bytes);
  } catch (error) {
    throw new HoldfastError(
      `${path} has ${formatBytes(bytes)} and is compressed: too much for memory (${messageOf(error)}); unpack the zip`,
    );
  }
  let at = 0;
  for await (const piece of pieces) {
    all.set(piece, at);
    at += piece.length;
  }
  return all;
}

/** Told of bytes that were stored. */
export type StoreProgress = (bytes: number) => void;

/** Writes a file to `path`; all of it, or an error and nothing. No more is written than the bytes that it says it has. */
export async function storeFile(
  files: Files,
  path: string,
  file: ImportedFile,
  progress?: StoreProgress,
): Promise<void> {
  const stream: WriteStream = await files.writeStream(path);
  try {
    await copy(file, file.open(), 0, (bytes) => stream.write(bytes), progress);
    await stream.commit();
  } catch (error) {
    await stream.abort();
    throw error;
  }
}

/**
 * As `storeFile`, but a file that can be read from another byte on is written in several goes: what an earlier one
 * stored at `path` is not asked for again, and what this one did stays beside it where it fails. Errors: HoldfastError
 * also where its SHA-256 is known and is another; nothing of it stays then.
 */
export async function storeRest(
  { files, resumeFile }: Pick<Host, 'files' | 'resumeFile'>,
  path: string,
  file: ImportedFile,
  progress: StoreProgress = () => {},
): Promise<void> {
  const { openFrom } = file;
  if (!openFrom || !resumeFile) return storeFile(files, path, file, progress);
  if ((await files.stat(path))?.bytes === file.bytes) return progress(file.bytes);
  const target = await resumeFile(path);
  const there = target.written > file.bytes ? 0 : target.written;
  const sum = there === 0 && file.sha256 !== undefined ? await files.sha256() : undefined;
  const write = (bytes: Uint8Array) => {
    const written = target.write(bytes);
    // While the disk is at work.
    sum?.update(bytes);
    return written;
  };
  let open = true;
  await finishing(
    async () => {
      if (there < target.written) await target.restart();
      progress(there);
      await copy(file, openFrom(there), there, write, progress);
      if (sum && sum.hex() !== file.sha256) {
        await target.restart();
        throw anotherSum(file);
      }
      open = false;
      await target.commit();
    },
    () => open && target.close(),
  );
  // A go that was cut off flushed nothing: where the power went with it, other bytes may lie there.
  if (sum || file.sha256 === undefined || (await sumOf(files, path)) === file.sha256) return;
  await files.remove(path);
  throw anotherSum(file);
}

const anotherSum = ({ name }: ImportedFile) =>
  new HoldfastError(`${name}: what arrived has another SHA-256 than it should; bring it again`);

async function copy(
  { name, bytes: all }: ImportedFile,
  pieces: ReadableStream<Uint8Array>,
  from: number,
  write: (bytes: Uint8Array) => Promise<void>,
  progress?: StoreProgress,
): Promise<void> {
  let written = from;
  for await (const bytes of pieces) {
    written += bytes.length;
    if (written > all) break;
    await write(bytes);
    progress?.(bytes.length);
  }
  if (written !== all) {
    throw new HoldfastError(
      `${name} has ${written > all ? 'more than' : `${written} bytes, not`} the ${all} bytes that it says it has; it is damaged, choose another file`,
    );
  }
}
