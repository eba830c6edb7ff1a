// The checksums of a checkpoint's files: SHA256SUMS, one line a file, as `sha256sum -c` reads it. They are made of the
// bytes on their way to the disk, and compared with those that come back: what memory, the disk or a copy has changed
// between is found, to the bit. Not a protection against an attacker: the sums can be changed along.
//
// Invariant: where the file is there, it names each file of a checkpoint once, those of its tokenizer too, and nothing else. Folders without one,
// of others and of earlier versions, are not checked.

import { type Files, type FolderReader, join, type Sha256, type WriteStream } from '../../runtime/host.ts';
import { readWhole } from '../../runtime/read-whole.ts';
import { HoldfastError } from '../../util/errors.ts';
import {
  CHECKPOINT_FILES,
  checkpointFiles,
  MOMENTS,
  OTHER_CHECKPOINT,
  OWN_COMPANIONS,
  SUMS,
  WEIGHTS,
} from './folder.ts';
import { INDEX_NAMES, shardNames, type WholeName } from './shard-names.ts';

const PIECE_BYTES = 4 * 2 ** 20;
/** The sums of 30,000 files. */
export const MOST_SUMS_BYTES = 2 ** 22;
const LINES = /^(?:[0-9a-f]{64} {2}[\w.-]+\n)+$/;

export type Sums = ReadonlyMap<string, string>;

/** Writes files into a folder, and sums them up on their way. */
export class SummedFolder {
  readonly #files: Files;
  readonly #folder: string;
  /** Of what was written. */
  readonly sums = new Map<string, string>();

  constructor(files: Files, folder: string) {
    this.#files = files;
    this.#folder = folder;
  }

  /** As `Files.writeStream`. */
  async writeStream(name: string): Promise<WriteStream> {
    const sum = await this.#files.sha256();
    const stream = await this.#files.writeStream(join(this.#folder, name));
    return {
      write: (bytes) => {
        const written = stream.write(bytes);
        // While the disk is at work.
        sum.update(bytes);
        return written;
      },
      commit: async () => {
        await stream.commit();
        this.sums.set(name, sum.hex());
      },
      abort: () => stream.abort(),
    };
  }

  writeText(name: string, text: string): Promise<void> {
    return this.writeBytes(name, new TextEncoder().encode(text));
  }

  async writeBytes(name: string, bytes: Uint8Array): Promise<void> {
    const sum = await this.#files.sha256();
    sum.update(bytes);
    await this.#files.writeAtomic(join(this.#folder, name), bytes);
    this.sums.set(name, sum.hex());
  }

  /** Writes the sums of what was written. */
  finish(): Promise<void> {
    return writeSums(this.#files, this.#folder, this.sums);
  }
}

export async function writeSums(files: Files, folder: string, sums: Sums): Promise<void> {
  const lines = [...sums].sort(([a], [b]) => (a < b ? -1 : 1)).map(([name, sum]) => `${sum}  ${name}\n`);
  await files.writeAtomic(join(folder, SUMS), lines.join(''));
}

/** Undefined where there are none. Errors: HoldfastError for what they should not say. */
export async function readSums(files: FolderReader, folder: string): Promise<Sums | undefined> {
  const path = join(folder, SUMS);
  if (!(await files.stat(path))) return undefined;
  const text = new TextDecoder().decode(await readWhole(files, path, MOST_SUMS_BYTES, { fix: OTHER_CHECKPOINT }));
  const names = CHECKPOINT_FILES.join(', ');
  const refuse = (what: string) =>
    new HoldfastError(`${path}: ${what}; ${OTHER_CHECKPOINT}, or remove ${SUMS} to load the folder unchecked`);
  if (!LINES.test(text)) throw refuse('has lines that are no SHA-256, two spaces and a name');
  const lines = text.trimEnd().split('\n');
  const sums = new Map(lines.map((line) => [line.slice(66), line.slice(0, 64)]));
  const own = [...sums.keys()].filter((name) => !OWN_COMPANIONS.includes(name));
  if (lines.length !== sums.size || checkpointFiles(own)?.length !== own.length)
    throw refuse(`names ${lines.map((line) => line.slice(66)).join(', ')}, a checkpoint's has ${names}`);
  for (const name of sums.keys())
    if ((await files.stat(join(folder, name)))?.kind !== 'file') throw refuse(`names ${name}, which is not there`);
  return sums;
}

/**
 * Reads these files once, or the parts of those that are in parts, and compares them with the folder's sums, if it has any.
 * Errors: HoldfastError naming the file that is another.
 */
export async function checkSums(files: FolderReader, folder: string, names: readonly string[]): Promise<void> {
  const sums = await readSums(files, folder);
  for (const name of sums ? await inParts(files, folder, names, [...sums.keys()]) : []) {
    const path = join(folder, name);
    // What was laid beside a checkpoint later has no sum.
    if (OWN_COMPANIONS.includes(name) && !sums?.has(name)) continue;
    if ((await sumOf(files, path)) === sums?.get(name)) continue;
    throw new HoldfastError(`${path}: its SHA-256 is not the one in ${SUMS}; ${OTHER_CHECKPOINT}`);
  }
}

/** The files that stand for these names. What is there whole is what will be read. */
async function inParts(
  files: FolderReader,
  folder: string,
  names: readonly string[],
  summed: readonly string[],
): Promise<string[]> {
  const found: string[] = [];
  for (const name of names) {
    const shards = isWholeName(name) && !(await files.stat(join(folder, name))) ? shardNames(name, summed) : [];
    found.push(...(isWholeName(name) && shards.length > 0 ? [INDEX_NAMES[name], ...shards] : [name]));
  }
  return found;
}

const isWholeName = (name: string): name is WholeName => name === WEIGHTS || name === MOMENTS;

/** The checksum of a whole file, which is read in pieces. */
export async function sumOf(files: FolderReader, path: string): Promise<string> {
  const size = (await files.stat(path))?.bytes ?? 0;
  const sum: Sha256 = await files.sha256();
  const pieceAt = (at: number) => files.readRange(path, at, Math.min(PIECE_BYTES, size - at));
  let next = size > 0 ? pieceAt(0) : undefined;
  for (let at = PIECE_BYTES; next; at += PIECE_BYTES) {
    const piece: Uint8Array = await next;
    // While the disk is at work on the next one.
    next = at < size ? pieceAt(at) : undefined;
    sum.update(piece);
  }
  return sum.hex();
}
