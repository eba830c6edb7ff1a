// A checkpoint as one file: a zip of its folder, without compression, as weights have nothing to compress. Written a
// piece at a time; read by its table of contents, so that any program's zip will do, compressed or not.
//
// Not a zip library: no folders inside folders, and no file past 4 GB (the classic format's limit).

import { Zip, ZipPassThrough } from 'fflate';
import { type Files, type FolderReader, join, type WriteStream } from '../runtime/host.ts';
import { formatBytes } from '../util/bytes.ts';
import { HoldfastError, messageOf } from '../util/errors.ts';

const PIECE_BYTES = 4 * 2 ** 20;
const MOST_BYTES = 2 ** 32 - 2 ** 20;

/** Zips the files of `folder` into `path`. Errors: HoldfastError where they are too much for one zip. */
export async function writeZip(files: Files, folder: string, path: string): Promise<void> {
  const entries = await Promise.all(
    (await files.list(folder)).map(async (name) => ({ name, stat: await files.stat(join(folder, name)) })),
  );
  const total = entries.reduce((sum, { stat }) => sum + (stat?.bytes ?? 0), 0);
  if (total > MOST_BYTES) {
    throw new HoldfastError(`${folder} has ${formatBytes(total)}, a zip holds at most 4 GB; export it as a folder`);
  }
  const stream = await files.writeStream(path);
  try {
    let made: Uint8Array[] = [];
    const zip = new Zip((error, bytes) => {
      if (error) throw error;
      made.push(bytes);
    });
    const flush = async () => {
      for (const bytes of made) await stream.write(bytes);
      made = [];
    };
    for (const { name, stat } of entries) {
      const entry = new ZipPassThrough(name);
      zip.add(entry);
      for (let at = 0; at < (stat?.bytes ?? 0); at += PIECE_BYTES) {
        const bytes = Math.min(PIECE_BYTES, (stat?.bytes ?? 0) - at);
        entry.push(await files.readRange(join(folder, name), at, bytes));
        await flush();
      }
      entry.push(new Uint8Array(), true);
    }
    zip.end();
    await flush();
    await stream.commit();
  } catch (error) {
    await stream.abort();
    throw error;
  }
}

/** A file out of a zip, or one that was chosen by itself. */
export interface ImportedFile {
  /** Without its folders. */
  readonly name: string;
  readonly bytes: number;
  /** Errors, while it is read: HoldfastError where a zip's file is not what was put into it. */
  open(): ReadableStream<Uint8Array>;
}

/** Bytes that lie somewhere: a Blob, or a file by `bytesAt`. */
export interface ByteSource {
  readonly size: number;
  slice(from: number, to: number): { arrayBuffer(): Promise<ArrayBuffer>; stream(): ReadableStream<Uint8Array> };
}

/** The files in a zip. Errors: HoldfastError for what is none, and for kinds that nobody writes for checkpoints. */
export async function readZip(zip: ByteSource, name: string): Promise<ImportedFile[]> {
  const damaged = () => new HoldfastError(`${name} is damaged: its table of contents makes no sense; get it again`);
  const bytesOf = async (from: number, to: number) => {
    if (from > to || to > zip.size) throw damaged();
    return new DataView(await zip.slice(from, to).arrayBuffer());
  };
  // The end record is 22 bytes and a comment of at most 65,535.
  const start = Math.max(0, zip.size - 22 - 65_535);
  const tail = await bytesOf(start, zip.size);
  let end = tail.byteLength - 22;
  while (end >= 0 && tail.getUint32(end, true) !== 0x06054b50) end--;
  if (end < 0) throw new HoldfastError(`${name} is no zip file, or it is cut short; choose another`);
  const count = tail.getUint16(end + 10, true);
  const directory = tail.getUint32(end + 16, true);
  if (count === 0xffff || directory === 0xffffffff) {
    throw new HoldfastError(`${name} is a zip of the 64-bit kind; unpack it and choose its files`);
  }
  const table = await bytesOf(directory, start + end);
  const found: ImportedFile[] = [];
  for (let i = 0, at = 0; i < count; i++) {
    if (at + 46 > table.byteLength || table.getUint32(at, true) !== 0x02014b50) throw damaged();
    const field16 = (field: number) => table.getUint16(at + field, true);
    const field32 = (field: number) => table.getUint32(at + field, true);
    const [method, crc, packed, bytes, header] = [field16(10), field32(16), field32(20), field32(24), field32(42)];
    const [nameLength, rest] = [field16(28), field16(30) + field16(32)];
    if (at + 46 + nameLength > table.byteLength) throw damaged();
    const path = new TextDecoder().decode(new Uint8Array(table.buffer, at + 46, nameLength));
    at += 46 + nameLength + rest;
    if (path.endsWith('/')) continue;
    if (method !== 0 && method !== 8)
      throw new HoldfastError(`${name}: ${path} is compressed in a way that is not known here; zip it again`);
    // The local header's own name and extra field come before the data.
    const local = await bytesOf(header, header + 30);
    const from = header + 30 + local.getUint16(26, true) + local.getUint16(28, true);
    if (from + packed > zip.size) throw damaged();
    const open = () => {
      const stored = zip.slice(from, from + packed).stream();
      return checked(method === 0 ? stored : unpacked(stored), bytes, crc, `${name}: ${path}`);
    };
    found.push({ name: path.slice(path.lastIndexOf('/') + 1), bytes, open });
  }
  return found;
}

const unpacked = (packed: ReadableStream<Uint8Array>): ReadableStream<Uint8Array> =>
  packed.pipeThrough(new DecompressionStream('deflate-raw') as ReadableWritablePair<Uint8Array, Uint8Array>);

/** The same bytes, or an error at the first that cannot be had, or at the end where they are others. */
function checked(
  from: ReadableStream<Uint8Array>,
  bytes: number,
  crc: number,
  what: string,
): ReadableStream<Uint8Array> {
  const reader = from.getReader();
  let count = 0;
  let sum = 0xffffffff;
  return new ReadableStream({
    async pull(controller) {
      const { done, value } = await reader.read().catch((error) => {
        throw new HoldfastError(`${what} is damaged (${messageOf(error)}); get the zip again`);
      });
      if (!done) {
        count += value.length;
        sum = crc32(value, sum);
        controller.enqueue(value);
        return;
      }
      if (count !== bytes || ~sum >>> 0 !== crc) {
        throw new HoldfastError(`${what} is damaged: its checksum is another; get the zip again`);
      }
      controller.close();
    },
    cancel: (reason) => reader.cancel(reason),
  });
}

const CRC_TABLE = Uint32Array.from({ length: 256 }, (_, byte) => {
  let word = byte;
  for (let bit = 0; bit < 8; bit++) word = word & 1 ? (word >>> 1) ^ 0xedb88320 : word >>> 1;
  return word;
});

function crc32(bytes: Uint8Array, before: number): number {
  let sum = before;
  for (let i = 0; i < bytes.length; i++) {
    sum = (sum >>> 8) ^ (CRC_TABLE[(sum ^ (bytes[i] as number)) & 0xff] as number);
  }
  return sum;
}

// ---- A zip as a folder ---------------------------------------------------------------------------------------

/** What weights are read through: `files`, or where the path is a zip, its files, each unpacked when it is asked for. */
export async function readerOf(files: Files, path: string): Promise<FolderReader> {
  if (!/\.zip$/i.test(path)) return files;
  const stat = await files.stat(path);
  if (stat?.kind !== 'file') return files;
  const found = new Map((await readZip(bytesAt(files, path, stat.bytes), path)).map((file) => [file.name, file]));
  const unpacked = new Map<string, Promise<Uint8Array<ArrayBuffer>>>();
  const nameOf = (inside: string) => inside.slice(path.length + 1);
  const read = (inside: string): Promise<Uint8Array<ArrayBuffer>> => {
    const name = nameOf(inside);
    const file = found.get(name);
    if (!file)
      throw new HoldfastError(`${path} has no ${name} in it; give the zip of a checkpoint, or of a model's files`);
    const known = unpacked.get(name) ?? bytesOf(file);
    unpacked.set(name, known);
    return known;
  };
  return {
    read,
    async readRange(inside, offset, bytes) {
      const all = await read(inside);
      if (offset + bytes <= all.length) return all.slice(offset, offset + bytes);
      throw new HoldfastError(`${inside} ends at byte ${all.length}, before ${offset + bytes}`);
    },
    async stat(inside) {
      if (inside === path) return { kind: 'folder', bytes: 0 };
      const file = found.get(nameOf(inside));
      return file && { kind: 'file', bytes: file.bytes };
    },
    list: async () => [...found.keys()].sort(),
    sha256: () => files.sha256(),
  };
}

async function bytesOf(file: ImportedFile): Promise<Uint8Array<ArrayBuffer>> {
  const all = new Uint8Array(file.bytes);
  let at = 0;
  for await (const piece of file.open()) {
    if (at + piece.length <= all.length) all.set(piece, at);
    at += piece.length;
  }
  return all;
}

function bytesAt(files: Files, path: string, size: number): ByteSource {
  return {
    size,
    slice: (from, to) => ({
      arrayBuffer: async () => (await files.readRange(path, from, to - from)).buffer,
      stream() {
        let at = from;
        return new ReadableStream({
          async pull(controller) {
            const bytes = Math.min(PIECE_BYTES, to - at);
            if (bytes > 0) controller.enqueue(await files.readRange(path, at, bytes));
            at += bytes;
            if (at === to) controller.close();
          },
        });
      },
    }),
  };
}

/** Writes it to `path`; all of it, or an error and nothing. */
export async function storeFile(files: Files, path: string, file: ImportedFile): Promise<void> {
  const stream: WriteStream = await files.writeStream(path);
  try {
    let written = 0;
    for await (const bytes of file.open()) {
      await stream.write(bytes);
      written += bytes.length;
    }
    if (written !== file.bytes)
      throw new HoldfastError(
        `${file.name} has ${written} bytes, not ${file.bytes}; it is damaged, choose another file`,
      );
    await stream.commit();
  } catch (error) {
    await stream.abort();
    throw error;
  }
}
