// A checkpoint as one file: a zip of its folder, without compression, as weights have nothing to compress. Written a
// piece at a time; read by its table of contents, so that any program's zip will do, compressed or not.
//
// Not a zip library: no folders inside folders, and no file past 4 GB (the classic format's limit).

import { Zip, ZipPassThrough } from 'fflate';
import { type Files, join, type WriteStream } from '../runtime/host.ts';
import { formatBytes } from '../util/bytes.ts';
import { HoldfastError } from '../util/errors.ts';

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
  open(): ReadableStream<Uint8Array>;
}

/** The files in a zip. Errors: HoldfastError for what is none, and for kinds that nobody writes for checkpoints. */
export async function readZip(zip: Blob, name: string): Promise<ImportedFile[]> {
  const bytesOf = async (from: number, to: number) => new DataView(await zip.slice(from, to).arrayBuffer());
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
    const [method, packed, bytes] = [
      table.getUint16(at + 10, true),
      table.getUint32(at + 20, true),
      table.getUint32(at + 24, true),
    ];
    const [nameLength, extra, comment] = [28, 30, 32].map((field) => table.getUint16(at + field, true)) as [
      number,
      number,
      number,
    ];
    const header = table.getUint32(at + 42, true);
    const path = new TextDecoder().decode(new Uint8Array(table.buffer, at + 46, nameLength));
    at += 46 + nameLength + extra + comment;
    if (path.endsWith('/')) continue;
    if (method !== 0 && method !== 8)
      throw new HoldfastError(`${name}: ${path} is compressed in a way that is not known here; zip it again`);
    // The local header's own name and extra field come before the data.
    const local = await bytesOf(header, header + 30);
    const from = header + 30 + local.getUint16(26, true) + local.getUint16(28, true);
    const data = zip.slice(from, from + packed);
    const open = () =>
      method === 0 ? data.stream() : data.stream().pipeThrough(new DecompressionStream('deflate-raw'));
    found.push({ name: path.slice(path.lastIndexOf('/') + 1), bytes, open });
  }
  return found;
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
