// The zip format: what is in a zip comes out of it, whatever program wrote it; one that lies about its sizes is stopped early; and
// another program reads what is written here.

import { unzipSync, zipSync } from 'fflate';
import { describe, expect, test, vi } from 'vitest';
import { openZip as openAny, storeFile } from '../../src/formats/archive.ts';
import { type ByteSource, blobSource, sourceAt } from '../../src/formats/byte-source.ts';
import type { ListedFolder } from '../../src/formats/listed-folder.ts';
import { type Files, join, type WriteStream } from '../../src/runtime/host.ts';
import { HoldfastError } from '../../src/util/errors.ts';
import { entry, field, only } from '../entry.ts';
import { MemoryFiles } from '../memory-files.ts';
import { deflated, type RawEntry, rawZip } from './raw-zip.ts';

const MB = 2 ** 20;
let inflated = 0;
const Original = globalThis.DecompressionStream;
/** Counts what is inflated. zip.js takes the global one when it is loaded, with the first zip. */
class Counting {
  readonly readable: ReadableStream<Uint8Array>;
  readonly writable: WritableStream<BufferSource>;

  constructor(format: CompressionFormat) {
    const { readable, writable } = new Original(format);
    this.writable = writable;
    this.readable = readable.pipeThrough(
      new TransformStream<Uint8Array, Uint8Array>({
        transform(piece, controller) {
          inflated += piece.length;
          controller.enqueue(piece);
        },
      }),
    );
  }
}
vi.stubGlobal('DecompressionStream', Counting);

const text = (content: string) => new TextEncoder().encode(content);
const openZip = (source: ByteSource, path: string) => openAny(source, path, () => new MemoryFiles().sha256());
const openBytes = (bytes: Uint8Array) =>
  openZip(sourceAt(new MemoryFiles({ 'my.zip': bytes }), 'my.zip', bytes.length), 'my.zip');

/** The files of a zip by their paths in it. */
async function contentsOf(zip: ListedFolder, folder = zip.path): Promise<Record<string, Uint8Array>> {
  const found: Record<string, Uint8Array> = {};
  for (const name of await zip.list(folder)) {
    const path = join(folder, name);
    if ((await zip.stat(path))?.kind === 'folder') Object.assign(found, await contentsOf(zip, path));
    else found[path.slice(zip.path.length + 1)] = await zip.read(path);
  }
  return found;
}

function expectSame(found: Record<string, Uint8Array>, expected: Record<string, Uint8Array>): void {
  expect(Object.keys(found).sort()).toEqual(Object.keys(expected).sort());
  for (const [path, bytes] of Object.entries(expected)) {
    expect(Buffer.compare(field(found, path), bytes), path).toBe(0);
  }
}

const failure = (work: Promise<unknown>): Promise<string> =>
  work.then(
    () => 'nothing was wrong',
    (error) => {
      if (error instanceof HoldfastError) return error.message;
      throw error;
    },
  );

const some = { 'a.json': text('{"a": 1}'), 'b/c.bin': Uint8Array.from({ length: 300_000 }, (_, i) => (i * i) >> 7) };

describe('what is in a zip', () => {
  test.each([
    ['stored', zipSync(some, { level: 0 })],
    ['deflated', zipSync(some, { level: 6 })],
    ['with a comment behind it', zipSync(some, { comment: 'made by another program' })],
    ['behind other bytes', Uint8Array.from([...text('#!/bin/sh\nexit\n'), ...zipSync(some)])],
  ])('%s', async (_, bytes) => {
    const zip = await openBytes(bytes);
    expectSame(await contentsOf(zip), some);
    expect(await zip.readRange('my.zip/b/c.bin', 299_990, 10)).toEqual(some['b/c.bin'].slice(299_990));
    expect(await failure(zip.readRange('my.zip/b/c.bin', 299_990, 11))).toBe(
      'my.zip/b/c.bin ends at byte 300000, before 300001',
    );
  });

  test.each([false, true])('of the 64-bit kind (its end too: %s), stored and deflated', async (zip64) => {
    const entries: RawEntry[] = [
      { name: 'a.json', data: some['a.json'], zip64: true },
      { ...deflated('b/c.bin', some['b/c.bin']), zip64: true },
    ];
    expectSame(await contentsOf(await openBytes(rawZip(entries, { zip64 }))), some);
  });

  test('of a stored file no more is in memory than what is asked for', async () => {
    const content = new Uint8Array(20 * MB).map((_, i) => i >> 5);
    const bytes = zipSync({ big: content }, { level: 0 });
    let largest = 0;
    const files = new MemoryFiles({ 'my.zip': bytes });
    const source: ByteSource = {
      size: bytes.length,
      read(offset, count) {
        largest = Math.max(largest, count);
        return files.readRange('my.zip', offset, count);
      },
    };
    const zip = await openZip(source, 'my.zip');
    expect(await zip.readRange('my.zip/big', 19 * MB, 100)).toEqual(content.slice(19 * MB, 19 * MB + 100));
    expect(largest).toBeLessThanOrEqual(4 * MB);
  });
});

describe('a zip that lies', () => {
  const bomb = deflated('bomb', new Uint8Array(256 * MB));

  test('of 256 MB that are said to be 300 bytes, no more is inflated than its first piece makes', async () => {
    const zip = await openBytes(rawZip([{ ...bomb, bytes: 300 }]));
    inflated = 0;
    const message = 'my.zip: bomb is damaged: it does not have the 300 bytes that it says; get the zip again';
    expect(await failure(zip.read('my.zip/bomb'))).toBe(message);
    const files = new MemoryFiles();
    const file = only(zip.files('my.zip'));
    expect(await failure(storeFile(files, 'stored', file))).toBe(message);
    expect(inflated).toBeGreaterThan(0);
    // Twice 16 KiB that deflate packs at most 1032 to 1.
    expect(inflated).toBeLessThan(2 * 17 * MB);
    expect(files.contents.size).toBe(0);
  });

  test('more than can be in so few bytes is refused before anything is inflated or set aside', async () => {
    inflated = 0;
    const few = deflated('few', new Uint8Array(100));
    for (const bytes of [2 ** 32 - 16, 2 ** 52]) {
      const zip = await openBytes(rawZip([{ ...few, bytes, zip64: true }]));
      expect(await failure(zip.readRange('my.zip/few', 0, 8))).toMatch(/my.zip: few is damaged: it says that it has/);
    }
    const stored = await openBytes(rawZip([{ name: 'few', data: text('ab'), bytes: 3 }]));
    expect(await failure(stored.read('my.zip/few'))).toMatch(/says that it has 3 bytes, its place has at most 2/);
    expect(inflated).toBe(0);
  });

  test.each([
    ['fewer bytes than it says', { ...deflated('x', text('hello')), bytes: 6 }, /x is damaged/],
    ['more', { ...deflated('x', text('hello')), bytes: 4 }, /does not have the 4 bytes/],
    ['more, stored', { name: 'x', data: text('hello'), bytes: 4 }, /does not have the 4 bytes/],
    ['another checksum', { ...deflated('x', text('hello')), crc: 1 }, /its checksum is another/],
    ['another checksum, stored', { name: 'x', data: text('hello'), crc: 1 }, /its checksum is another/],
    ['no deflated data', { ...deflated('x', text('hello')), data: text('hello') }, /x is damaged/],
    ['a way of compression that is not known', { name: 'x', data: text('hello'), method: 93 }, /not known here/],
    ['a link', { name: 'x', data: text('../y'), externalAttributes: 0o120777 * 2 ** 16 }, /is a link to another file/],
  ])('%s: an error, whichever way it is read', async (_, given, message) => {
    const zip = await openBytes(rawZip([given]));
    expect(await failure(zip.read('my.zip/x'))).toMatch(message);
    expect(await failure(zip.readRange('my.zip/x', 0, 1))).toMatch(message);
    const file = only(zip.files('my.zip'));
    expect(await failure(storeFile(new MemoryFiles(), 'stored', file))).toMatch(message);
  });

  test('a table of contents that is said to be larger than any is not read', async () => {
    const bytes = rawZip([{ name: 'x', data: new Uint8Array(80 * MB) }], { zip64: true });
    const end = new DataView(bytes.buffer, bytes.length - 98);
    const [length, at] = [end.getBigUint64(40, true), end.getBigUint64(48, true)];
    end.setBigUint64(40, length + 70n * BigInt(MB), true);
    end.setBigUint64(48, at - 70n * BigInt(MB), true);
    expect(await failure(openBytes(bytes))).toMatch(/my.zip is damaged: its table of contents makes no sense/);
  });

  test('so many files that their list alone would fill memory are refused', async () => {
    const names = Array.from({ length: 20_001 }, (_, i) => ({ name: `${i}`, data: new Uint8Array(), crc: 0 }));
    expect(await failure(openBytes(rawZip(names, { zip64: true })))).toMatch(/has more than 20000 files/);
  });
});

test('a file on its way into a folder is stopped where it goes on after its end', async () => {
  let pulled = 0;
  const endless = new ReadableStream<Uint8Array>({
    pull(controller) {
      controller.enqueue(new Uint8Array(100));
      pulled += 100;
      if (pulled > 100_000) controller.close();
    },
  });
  const files = new MemoryFiles();
  const file = { name: 'text', bytes: 250, open: () => endless };
  expect(await failure(storeFile(files, 'stored', file))).toMatch(/text has more than the 250 bytes/);
  expect(pulled).toBeLessThan(1000);
  expect(files.contents.size).toBe(0);
});

/** After the global above. */
const { writeZip } = await import('../../src/formats/zip.ts');

describe('writeZip', () => {
  test('another program reads it; folders inside are left out', async () => {
    const files = new MemoryFiles({ 'run/a': text('one'), 'run/b': new Uint8Array(9 * MB).map((_, i) => i >> 3) });
    await files.writeAtomic('run/folder/c', 'three');
    await writeZip(files, 'run', 'out.zip');
    const zip = entry(files.contents, 'out.zip');
    const expected = { a: entry(files.contents, 'run/a'), b: entry(files.contents, 'run/b') };
    expectSame(unzipSync(zip), expected);
    const read = await openZip(blobSource(new Blob([zip]), 'z'), 'z');
    expectSame(await contentsOf(read), expected);
  });

  test('where the disk is full, its error is passed on and nothing is left', async () => {
    class Full extends MemoryFiles {
      override async writeStream(path: string): Promise<WriteStream> {
        const stream = await super.writeStream(path);
        let written = 0;
        return {
          ...stream,
          async write(bytes) {
            written += bytes.length;
            if (written > 5 * MB) throw new HoldfastError('the disk is full');
            await stream.write(bytes);
          },
        };
      }
    }
    const files = new Full({ 'run/a': new Uint8Array(9 * MB) });
    expect(await failure(writeZip(files, 'run', 'out.zip'))).toBe('the disk is full');
    expect([...files.contents.keys()]).toEqual(['run/a']);
  });

  test.runIf(process.env['HOLDFAST_TESTS'] === 'all')('past 4 GB: it comes back out of it', async () => {
    const size = 2 ** 32 + 12_345;
    const kept: { at: number; bytes: Uint8Array }[] = [];
    let written = 0;
    // Of the zip, what is not zeros: the file in it is.
    const files = {
      list: async () => ['small', 'zeros'],
      stat: async (path: string) => ({ kind: 'file' as const, bytes: path.endsWith('zeros') ? size : 5 }),
      readRange: async (path: string, _: number, bytes: number) =>
        path.endsWith('zeros') ? new Uint8Array(bytes) : text('small'),
      writeStream: async () => ({
        async write(bytes: Uint8Array) {
          if (bytes.some((byte) => byte !== 0)) kept.push({ at: written, bytes: bytes.slice() });
          written += bytes.length;
        },
        async commit() {},
        async abort() {},
      }),
    } as unknown as Files;
    await writeZip(files, 'run', 'out.zip');
    expect(written).toBeGreaterThan(size);
    const source: ByteSource = {
      size: written,
      async read(offset, count) {
        const found = new Uint8Array(count);
        for (const { at, bytes } of kept) {
          const from = Math.max(0, offset - at);
          const part = bytes.subarray(from, Math.max(from, offset + count - at));
          if (at + from < offset + count) found.set(part, at + from - offset);
        }
        return found;
      },
    };
    const zip = await openZip(source, 'my.zip');
    expect(await zip.read('my.zip/small')).toEqual(text('small'));
    expect(await zip.stat('my.zip/zeros')).toEqual({ kind: 'file', bytes: size });
    expect(await zip.readRange('my.zip/zeros', size - 3, 3)).toEqual(new Uint8Array(3));
  });
});
