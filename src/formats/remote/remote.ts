// Models from elsewhere: the files of one are brought into a folder of the cache, where they are read like any other's. A
// connection that drops is taken up where it ended, and so is a download whose process has ended.
//
// Invariant: a file counts as there once all of it is, and is the one that was asked for: its size, and its checksum
// where the place says one. Never more than a piece of a file is in memory.

import { type Files, type FolderClaim, FolderHeld, type Host, join, type ResumedFile } from '../../runtime/host.ts';
import { MOST_SETTINGS_BYTES, readJSON, readWhole } from '../../runtime/read-whole.ts';
import { formatBytes } from '../../util/bytes.ts';
import { assert, finishing, HoldfastError, messageOf } from '../../util/errors.ts';
import { accept, namesTo, number, object, parseJSON, text } from '../../util/json.ts';
import { wholeNumber } from '../../util/range.ts';
import { sumOf } from '../checkpoint/checksums.ts';
import { ADAPTER_FILES, COMPANIONS, CONFIG, INDEX, WEIGHTS } from '../checkpoint/folder.ts';
import { weightFiles } from '../checkpoint/tensor-files.ts';
import { parseConfig } from '../config.ts';

/** A file that lies elsewhere. */
export interface RemoteFile {
  /** For messages. */
  readonly place: string;
  readonly bytes: number;
  /** Another where its bytes are others; absent where that is not known. */
  readonly version?: string;
  readonly sha256?: string;
  /** Whether it can be read from another byte on than the first. */
  readonly hasRanges: boolean;
  /** Its bytes from one on, up to another where it has ranges. Errors: Interrupted where trying again may help. */
  read(from: number, to?: number): AsyncIterable<Uint8Array>;
}

/** Files that lie elsewhere. */
export interface RemoteFolder {
  /** For messages. */
  readonly place: string;
  /** Where it lies in the cache, as one name. */
  readonly cacheName: string;
  /** Undefined where there is none of that name. Errors: HoldfastError; Interrupted. */
  find(name: string): Promise<RemoteFile | undefined>;
}

/** The connection was lost, or the server is busy. */
export class Interrupted extends Error {}

/** Whether something failed for the network alone: what has come until then is good. */
export const isCutOff = (error: unknown): boolean => error instanceof Error && error.cause instanceof Interrupted;

/** Told of each piece that arrived. */
export type FetchProgress = (name: string, bytes: number, of: number) => void;

/** Told why a fetch waits: another process brings files into the same folder, a rank of the same run for one. */
export type FetchWait = (why: string) => void;

/** Told before a file is asked for again, and why. */
export type FetchAgain = (file: string, why: string) => void;

/** In a row, without a byte between them. */
const MOST_FAILURES = 6;
/** Of a server that gives a file only from its start. */
const MOST_STARTS = 3;
const RETRY_MS = 100;
/** Until a folder that another process has is asked for again. */
const HELD_MS = 250;
const MOST_RETRY_MS = 5000;
/** The largest of what is not weights. */
const MOST_SMALL_BYTES = 2 ** 28;

const SOURCES = 'sources.json';
const SOURCES_SCHEMA = namesTo(object({ version: text, bytes: number(wholeNumber(0)) }));
type Sources = Record<string, { version: string; bytes: number }>;

type FetchHost = Pick<Host, 'files' | 'cacheFolder' | 'resumeFile' | 'claimFolder'>;

/**
 * Brings a model, or an adapter without its model, into the cache, after any other process that is at it. Returns its folder.
 * Errors: HoldfastError naming the file, and what to do; for a model that is not supported, before its weights are asked for.
 */
export function fetchModel(
  host: FetchHost,
  remote: RemoteFolder,
  progress: FetchProgress = () => {},
  waits: FetchWait = () => {},
  again: FetchAgain = () => {},
): Promise<string> {
  return withCache(host, remote, waits, async (folder) => {
    const bring = (name: string) => bringFile(host, folder, remote, name, progress, again);
    const { place } = remote;
    const hasConfig = await bring(CONFIG);
    if (hasConfig) await checkConfig(host.files, folder, place);
    if (!(hasConfig && (await bringWeights(host.files, folder, place, bring))) && !(await bringAdapter(bring))) {
      const missing = hasConfig ? `${WEIGHTS}, and no ${INDEX}` : CONFIG;
      throw nothingAt(place, `${missing}, nor an adapter (${ADAPTER_FILES.join(', ')})`);
    }
    for (const name of COMPANIONS) await bring(name);
    return folder;
  });
}

/** Brings a file; false where there is none of that name. */
type Bring = (name: string) => Promise<boolean>;

/** False where there are none. Errors: HoldfastError where some of several files are missing. */
async function bringWeights(files: Files, folder: string, place: string, bring: Bring): Promise<boolean> {
  if (await bring(WEIGHTS)) return true;
  if (!(await bring(INDEX))) return false;
  for (const name of await weightFiles(files, folder)) if (!(await bring(name))) throw nothingAt(place, name);
  return true;
}

async function bringAdapter(bring: Bring): Promise<boolean> {
  for (const name of ADAPTER_FILES) if (!(await bring(name))) return false;
  return true;
}

const nothingAt = (place: string, missing: string) =>
  new HoldfastError(`${place}: there is no ${missing}; name the folder of a model with its weights`);

async function checkConfig(files: Files, folder: string, place: string): Promise<void> {
  const name = place + CONFIG;
  const bytes = await readWhole(files, join(folder, CONFIG), MOST_SETTINGS_BYTES);
  parseConfig(parseJSON(bytes, name, 'see whether the address is right'), name);
}

/** Brings one file into the cache, a zip for one. Returns its path. Errors: as `fetchModel`. */
export function fetchFile(
  host: FetchHost,
  remote: RemoteFolder,
  name: string,
  progress: FetchProgress = () => {},
  waits: FetchWait = () => {},
  again: FetchAgain = () => {},
): Promise<string> {
  return withCache(host, remote, waits, async (folder) => {
    if (await bringFile(host, folder, remote, name, progress, again)) return join(folder, name);
    throw new HoldfastError(`${remote.place}${name}: there is no such file`);
  });
}

async function withCache<T>(
  host: FetchHost,
  { cacheName }: RemoteFolder,
  waits: FetchWait,
  work: (folder: string) => Promise<T>,
): Promise<T> {
  const folder = join(host.cacheFolder, 'models', cacheName);
  // Made with the lock, where there is one, and gone with it if nothing comes.
  const claim = await claimInTurn(host, folder, waits);
  try {
    await host.files.makeFolder(folder);
    return await work(folder);
  } finally {
    await claim?.release();
  }
}

/** Waits, where another process has the folder, for its end. */
async function claimInTurn(
  { claimFolder }: FetchHost,
  folder: string,
  waits: FetchWait,
): Promise<FolderClaim | undefined> {
  for (let tries = 0; ; tries++) {
    try {
      return await claimFolder?.(folder);
    } catch (error) {
      if (!(error instanceof FolderHeld)) throw error;
      if (tries === 0) waits(error.message);
      await pause(HELD_MS);
    }
  }
}

/** False where there is no such file there. */
async function bringFile(
  host: FetchHost,
  folder: string,
  remote: RemoteFolder,
  name: string,
  progress: FetchProgress,
  again: FetchAgain,
): Promise<boolean> {
  const { files, resumeFile } = host;
  assert(resumeFile, 'files from elsewhere are kept by a host that can go on with one');
  const path = join(folder, name);
  const file = await persistently(remote.place, name, () => remote.find(name), again);
  if (!file) {
    // One of an earlier version of the model.
    await files.remove(path);
    return false;
  }
  if (!/\.(?:safetensors|zip|gguf)$/i.test(name) && file.bytes > MOST_SMALL_BYTES) {
    throw new HoldfastError(
      `${file.place} has ${formatBytes(file.bytes)}, such a file has at most ${formatBytes(MOST_SMALL_BYTES)}`,
    );
  }
  const sources = await readSources(files, folder);
  const known = sources[name];
  const isSame = known !== undefined && known.version === file.version && known.bytes === file.bytes;
  if (isSame && (await files.stat(path))?.bytes === file.bytes) return true;
  const target = await resumeFile(path);
  let open = true;
  await finishing(
    async () => {
      if (!isSame) {
        await target.restart();
        const { [name]: _, ...others } = sources;
        const { version, bytes } = file;
        const now = version === undefined ? others : { ...others, [name]: { version, bytes } };
        // Before the first byte: what lies there is never taken for another version's.
        await files.writeAtomic(join(folder, SOURCES), JSON.stringify(now));
      }
      const there = isSame ? target.written : 0;
      const tells = {
        progress: (written: number) => progress(name, written, file.bytes),
        again: (why: string) => again(file.place, why),
      };
      await download(file, target, there, tells);
      open = false;
      await target.commit();
    },
    () => open && target.close(),
  );
  if (file.sha256 !== undefined && (await sumOf(files, path)) !== file.sha256) {
    await files.remove(path);
    throw new HoldfastError(`${file.place}: what arrived has another SHA-256 than it should; try again`);
  }
  return true;
}

async function readSources(files: Files, folder: string): Promise<Sources> {
  try {
    return accept(SOURCES_SCHEMA, await readJSON(files, join(folder, SOURCES), '')) ?? {};
  } catch {
    return {};
  }
}

async function download(
  file: RemoteFile,
  target: ResumedFile,
  there: number,
  { progress, again }: { progress: (written: number) => void; again: (why: string) => void },
): Promise<void> {
  let written = there;
  let starts = 0;
  const startOver = async () => {
    await target.restart();
    written = 0;
  };
  if (written > file.bytes || (written > 0 && !file.hasRanges)) await startOver();
  for (let failures = 0; written < file.bytes; ) {
    const before = written;
    try {
      for await (const piece of file.read(written)) {
        if (written + piece.length > file.bytes) {
          await startOver();
          throw new HoldfastError(
            `${file.place}: more arrived than the ${file.bytes} bytes that it says it has; the server is wrong, get the file in another way`,
          );
        }
        await target.write(piece);
        written += piece.length;
        progress(written);
      }
      if (written < file.bytes) throw new Interrupted(`it ended at byte ${written} of ${file.bytes}`);
    } catch (error) {
      if (!(error instanceof Interrupted)) throw error;
      failures = written > before ? 1 : failures + 1;
      if (failures > MOST_FAILURES) {
        throw new HoldfastError(
          `${file.place}: ${error.message}, ${failures} times in a row; try again, it goes on from there`,
        );
      }
      if (!file.hasRanges) {
        if (++starts === MOST_STARTS) {
          throw new HoldfastError(
            `${file.place}: ${error.message}, and the server sends it only from its start (it takes no range requests); download it in another way and name its folder`,
          );
        }
        await startOver();
      }
      again(error.message);
      await retryPause(failures);
    }
  }
}

/** Tries again where that may help. Errors: HoldfastError where it did not. */
export async function persistently<T>(
  place: string,
  name: string,
  work: () => Promise<T>,
  again: FetchAgain = () => {},
): Promise<T> {
  for (let failures = 1; ; failures++) {
    try {
      return await work();
    } catch (error) {
      if (!(error instanceof Interrupted)) throw error;
      if (failures === MOST_FAILURES) {
        throw new HoldfastError(
          `${place}: cannot get ${name} (${messageOf(error)}); see whether the address is right and can be reached from here`,
        );
      }
      again(`${place}${name}`, messageOf(error));
      await retryPause(failures);
    }
  }
}

/** Longer after each failure. */
export const retryPause = (failures: number): Promise<void> =>
  pause(Math.min(MOST_RETRY_MS, RETRY_MS * 2 ** (failures - 1)));

const pause = (ms: number): Promise<void> => new Promise((resolve) => setTimeout(resolve, ms));
