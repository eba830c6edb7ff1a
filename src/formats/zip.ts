// Zip files: the entries of one that is read by ranges from wherever it lies, and one that is written in a single pass,
// without compression, as weights have nothing to compress. The format itself (64-bit sizes, checksums) is zip.js's.
//
// Not a folder: archive.ts makes one of the entries. Invariant: an entry gives the bytes that were put into it, or
// fails with a HoldfastError naming it; it never gives more than it says it has, nor works on for long after that.

import {
  configure,
  type Entry,
  ERR_BAD_FORMAT,
  ERR_EOCDR_NOT_FOUND,
  ERR_INVALID_CRC32,
  ERR_INVALID_UNCOMPRESSED_SIZE,
  type FileEntry,
  Reader,
  ZipReader,
  ZipWriter,
} from '@zip.js/zip.js/lib/zip-core-custom.js';
import { type Files, join } from '../runtime/host.ts';
import { formatBytes } from '../util/bytes.ts';
import { HoldfastError, messageOf } from '../util/errors.ts';
import { type ByteSource, sourceAt } from './byte-source.ts';

/** Of a file, read at once. */
const PIECE_BYTES = 4 * 2 ** 20;
/** Of an entry, unpacked at once. One compressed byte becomes at most EXPANSION: 16 MiB lie in memory. */
const CHUNK_BYTES = 16 * 2 ** 10;
const EXPANSION = 1032;
/** Of a zip's table of contents, which is in memory as a whole. */
const MOST_TABLE_BYTES = 64 * 2 ** 20;
const MOST_ENTRIES = 20_000;
const STORED = 0;
const DEFLATED = 8;

// Its workers would be scripts from elsewhere; on a page zips are read in a worker already.
configure({ useWebWorkers: false, chunkSize: CHUNK_BYTES });

/** A file in a zip. */
export interface ZipEntry {
  /** As it stands in the zip. */
  readonly path: string;
  /** As the zip says: it has these, or reading it is an error. */
  readonly bytes: number;
  /** All of it. Errors, at once or while it is read: HoldfastError where it is not what was put into the zip. */
  open(): ReadableStream<Uint8Array>;
  /** Where its bytes lie in the zip, checked as `open` does; undefined where they are compressed. */
  place(): Promise<number | undefined>;
}

/** The files in a zip, in the order of its table. Errors: HoldfastError for what is none, or has a senseless table. */
export async function readZip(source: ByteSource, name: string): Promise<ZipEntry[]> {
  const entries: ZipEntry[] = [];
  try {
    const zip = new ZipReader(new RangeReader(source), { checkCrc32: true, filenameValidation: 'tolerant' });
    for await (const entry of zip.getEntriesGenerator()) {
      if (entries.length === MOST_ENTRIES) {
        throw new HoldfastError(`${name} has more than ${MOST_ENTRIES} files; zip the folder of the model alone`);
      }
      if (!entry.directory) entries.push(entryOf(entry, `${name}: ${entry.filename}`));
    }
  } catch (error) {
    throw explain(error, name, {
      [ERR_BAD_FORMAT]: 'is no zip file, or it is cut short; choose another',
      [ERR_EOCDR_NOT_FOUND]: 'is no zip file, or it is cut short; choose another',
      other: 'is damaged: its table of contents makes no sense',
    });
  }
  return entries;
}

function entryOf(entry: Exclude<Entry, { directory: true }>, what: string): ZipEntry {
  const { filename: path, uncompressedSize: bytes } = entry;
  const failure = (error: unknown) =>
    explain(error, what, {
      [ERR_INVALID_CRC32]: 'is damaged: its checksum is another; get the zip again',
      [ERR_INVALID_UNCOMPRESSED_SIZE]: `is damaged: it does not have the ${bytes} bytes that it says; get the zip again`,
      other: 'is damaged',
    });
  const readInto = async (writable: WritableStream<Uint8Array>) => {
    try {
      await entry.getData(writable, { preventClose: true });
    } catch (error) {
      throw failure(error);
    }
  };
  return {
    path,
    bytes,
    open() {
      checkEntry(entry, what);
      let given = 0;
      const { readable, writable } = new TransformStream<Uint8Array, Uint8Array>({
        transform(piece, controller) {
          given += piece.length;
          // After what is too much, the error comes.
          if (given <= bytes) controller.enqueue(piece);
        },
      });
      readInto(writable)
        .then(
          () => writable.close(),
          (error) => writable.abort(error),
        )
        // It was cancelled: there is no reader any more.
        .catch(() => {});
      return readable;
    },
    async place() {
      checkEntry(entry, what);
      if (entry.compressionMethod !== STORED) return undefined;
      await readInto(new WritableStream());
      return entry.localDirectory?.dataOffset;
    },
  };
}

/** What can be told before its bytes are read. */
function checkEntry(entry: FileEntry, what: string): void {
  const { compressionMethod: method, compressedSize: packed, uncompressedSize: bytes } = entry;
  if (entry.encrypted) throw new HoldfastError(`${what} is encrypted; zip it again without a password`);
  if (entry.symlink) throw new HoldfastError(`${what} is a link to another file; zip the files themselves`);
  if (method !== STORED && method !== DEFLATED) {
    throw new HoldfastError(`${what} is compressed in a way that is not known here; zip it again`);
  }
  const most = method === STORED ? packed : packed * EXPANSION;
  if (bytes > most) {
    throw new HoldfastError(
      `${what} is damaged: it says that it has ${bytes} bytes, its place has at most ${most}; get the zip again`,
    );
  }
}

/** By zip.js's message; `other` is followed by that message. */
function explain(error: unknown, what: string, reasons: Record<string, string> & { other: string }): HoldfastError {
  if (error instanceof HoldfastError) return error;
  const message = messageOf(error);
  const reason = Object.hasOwn(reasons, message)
    ? reasons[message]
    : `${reasons.other} (${message.toLowerCase()}); get it again`;
  return new HoldfastError(`${what} ${reason}`);
}

/** A source of bytes as zip.js reads it. */
class RangeReader extends Reader<ByteSource> {
  readonly #source: ByteSource;

  constructor(source: ByteSource) {
    super(source);
    this.#source = source;
    this.size = source.size;
  }

  /** Parts of the table of contents, whose length is the zip's claim. */
  override async readUint8Array(offset: number, length: number): Promise<Uint8Array<ArrayBuffer>> {
    const bytes = Math.min(length, this.size - offset);
    if (!(offset >= 0 && bytes > 0)) return new Uint8Array();
    if (bytes > MOST_TABLE_BYTES) throw new Error(`it would have ${formatBytes(bytes)}`);
    return this.#source.read(offset, bytes);
  }

  override createReadable(range: { offset?: number; size?: number } = {}): ReadableStream<Uint8Array> {
    let at = range.offset ?? 0;
    const end = Math.min(at + (range.size ?? this.size), this.size);
    return new ReadableStream({
      pull: async (controller) => {
        const bytes = Math.min(PIECE_BYTES, end - at);
        if (bytes > 0) controller.enqueue(await this.#source.read(at, bytes));
        at += Math.max(0, bytes);
        if (at >= end) controller.close();
      },
    });
  }
}

/** Zips the files of `folder` into `path`; the folders in it are left out. Errors: as the files have them. */
export async function writeZip(files: Files, folder: string, path: string): Promise<void> {
  const stream = await files.writeStream(path);
  try {
    const target = new WritableStream<Uint8Array>({ write: (bytes) => stream.write(bytes) });
    const zip = new ZipWriter(target, { level: 0, extendedTimestamp: false });
    for (const name of await files.list(folder)) {
      const inside = join(folder, name);
      const stat = await files.stat(inside);
      if (stat?.kind === 'file') await zip.add(name, new RangeReader(sourceAt(files, inside, stat.bytes)));
    }
    await zip.close();
    await stream.commit();
  } catch (error) {
    await stream.abort();
    throw error;
  }
}
