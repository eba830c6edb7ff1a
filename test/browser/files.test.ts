// Files in the site's private file system, and the slow tier there: what host.ts promises, on what browsers have.

import { afterAll, beforeEach, expect, test } from 'vitest';
import { defaultCorpus } from '../../src/data/corpus.ts';
import { DiskFile } from '../../src/memory/tiers/disk-file.ts';
import { DiskTier } from '../../src/memory/tiers/disk-tier.ts';
import { DiskLink } from '../../src/runtime/browser/disk-link.ts';
import { find, openFolder } from '../../src/runtime/browser/opfs.ts';
import { OpfsFiles } from '../../src/runtime/browser/opfs-files.ts';
import { openBrowserHost } from '../../src/runtime/browser.ts';
import { HoldfastError } from '../../src/util/errors.ts';

const host = await openBrowserHost();
const { files } = host;
const text = async (path: string) => new TextDecoder().decode(await files.read(path));

beforeEach(async () => {
  await files.remove('test');
  await files.makeFolder('test');
});
afterAll(async () => {
  await files.remove('test');
  host.close();
});

test('the page has what the tests are about', async () => {
  expect(crossOriginIsolated).toBe(true);
  expect(host.isolated).toBe(true);
  const adapter = await (await (await host.gpuSources())[0]?.open())?.requestAdapter();
  expect(adapter).toBeTruthy();
});

test('a file is written, read whole and in part, replaced, listed, moved and removed', async () => {
  await files.writeAtomic('test/b.txt', 'first');
  await files.writeAtomic('test/b.txt', 'second, longer');
  await files.writeAtomic('test/a.txt', new Uint8Array());
  expect(await text('test/b.txt')).toBe('second, longer');
  expect(new TextDecoder().decode(await files.readRange('test/b.txt', 8, 6))).toBe('longer');
  expect(await files.list('test')).toEqual(['a.txt', 'b.txt']);
  expect(await files.stat('test/b.txt')).toEqual({ kind: 'file', bytes: 14 });
  expect(await files.stat('test')).toEqual({ kind: 'folder', bytes: 0 });
  expect(await files.stat('test/c.txt')).toBeUndefined();
  expect(await files.stat('test/b.txt/c')).toBeUndefined();
  await files.rename('test/b.txt', 'test/a.txt');
  expect(await files.list('test')).toEqual(['a.txt']);
  expect(await text('test/a.txt')).toBe('second, longer');
  await files.remove('test/a.txt');
  await files.remove('test/a.txt');
  expect(await files.list('test')).toEqual([]);
});

test('an open file is read in part, and its checksum is that of its bytes', async () => {
  const bytes = Uint8Array.from({ length: 200_000 }, (_, i) => i % 253);
  await files.writeAtomic('test/bytes', bytes);
  await files.syncFolder('test');
  const open = await files.open('test/bytes');
  expect(open.bytes).toBe(bytes.length);
  expect(await open.readRange(100_000, 77)).toEqual(bytes.slice(100_000, 100_077));
  await expect(open.readRange(bytes.length, 1)).rejects.toThrow('cannot read test/bytes: it ends at byte 200000');
  await open.close();
  const sum = await files.sha256();
  for (let at = 0; at < bytes.length; at += 70_001) sum.update(bytes.subarray(at, at + 70_001));
  const whole = new Uint8Array(await crypto.subtle.digest('SHA-256', bytes));
  expect(sum.hex()).toBe([...whole].map((byte) => byte.toString(16).padStart(2, '0')).join(''));
  await expect(files.open('test/none')).rejects.toThrow('cannot read test/none: it does not exist');
});

test('what comes in pieces is there when committed, and not at all when aborted', async () => {
  const piece = Uint8Array.from({ length: 100_000 }, (_, i) => i % 251);
  const whole = await files.writeStream('test/whole');
  for (let i = 0; i < 5; i++) await whole.write(piece);
  expect(await files.stat('test/whole')).toBeUndefined();
  await whole.commit();
  expect(await files.readRange('test/whole', 400_000, 100_000)).toEqual(piece);
  const dropped = await files.writeStream('test/dropped');
  await dropped.write(piece);
  await dropped.abort();
  expect(await files.list('test')).toEqual(['whole']);
});

test('what is written in several goes is there after each, and at its path after the last', async () => {
  const bytes = Uint8Array.from({ length: 150_000 }, (_, i) => i % 251);
  const resume = (path = 'test/goes') => host.resumeFile?.(path) ?? Promise.reject(new Error('it cannot be'));
  const first = await resume();
  expect(first.written).toBe(0);
  await first.write(bytes.subarray(0, 100_000));
  // Flushed or not: a closed tab ends no go.
  expect((await files.stat('test/goes.incoming'))?.bytes).toBe(100_000);
  await first.close();
  const second = await resume();
  expect(second.written).toBe(100_000);
  expect(await files.stat('test/goes')).toBeUndefined();
  await second.write(bytes.subarray(100_000));
  await second.commit();
  expect(await files.read('test/goes')).toEqual(bytes);
  const again = await resume();
  await again.write(bytes);
  await again.restart();
  await again.write(bytes.subarray(0, 10));
  await again.commit();
  expect(await files.read('test/goes')).toEqual(bytes.subarray(0, 10));
  expect(await files.list('test')).toEqual(['goes']);
  const message = resume('test/none/goes').then(String, ({ message }) => message);
  expect(await message).toBe('cannot write test/none/goes: it does not exist');
});

test('errors name the path and the reason', async () => {
  await files.writeAtomic('test/file', 'x');
  const message = (work: Promise<unknown>) =>
    work.then(String, (error) => error instanceof HoldfastError && error.message);
  expect(await message(files.read('test/none'))).toBe('cannot read test/none: it does not exist');
  expect(await message(files.readRange('test/file', 0, 9))).toBe('cannot read test/file: it ends at byte 1, before 9');
  expect(await message(files.writeAtomic('test/no/file', ''))).toBe('cannot write test/no/file: it does not exist');
  expect(await message(files.makeFolder('test/file/folder'))).toMatch(
    /^cannot make the folder test\/file\/folder: it, or/,
  );
  expect(await message(files.rename('test/none', 'test/other'))).toMatch(
    /^cannot rename test\/none to test\/other: it/,
  );
});

test('a folder is renamed with all that is in it', async () => {
  await files.makeFolder('test/from/inner');
  await files.writeAtomic('test/from/one', '1');
  await files.writeAtomic('test/from/inner/two', '2');
  await files.rename('test/from', 'test/to');
  expect(await files.list('test')).toEqual(['to']);
  expect(await text('test/to/inner/two')).toBe('2');
  await files.makeFolder('test/from');
  await expect(files.rename('test/from', 'test/to')).rejects.toThrow('test/to is there already');
  const partial = await files.makePartial('test/empty');
  expect(partial).toMatch(/^test\/empty\.partial-/);
  await files.writeAtomic(`${partial}/one`, '1');
  await files.makeFolder('test/empty');
  await files.rename(partial, 'test/empty');
  expect(await files.list('test/empty')).toEqual(['one']);
});

test('what writers that are gone left is removed, what is being written stays', async () => {
  await files.writeAtomic(`test/text.partial-${crypto.randomUUID()}`, 'x');
  await files.writeAtomic('test/notes.partial', 'x');
  const living = await files.writeStream('test/living');
  await living.write(new Uint8Array(10));
  await files.removePartials('test');
  expect(await files.list('test')).toEqual([expect.stringMatching(/^living\.partial-/), 'notes.partial']);
  await living.commit();
  expect(await files.list('test')).toEqual(['living', 'notes.partial']);
});

test('a rename that a closed tab left half-done is done by the next host', async () => {
  await files.makeFolder('test/from');
  await files.writeAtomic('test/from/one', '1');
  await files.writeAtomic('test/from/two', '2');
  // What lies there when the tab ends between the two moves.
  await files.writeAtomic('.renaming', JSON.stringify({ from: 'test/from', to: 'test/to' }));
  await files.makeFolder('test/to');
  await files.rename('test/from/one', 'test/to/one');
  (await openBrowserHost()).close();
  expect(await files.list('test')).toEqual(['to']);
  expect(await files.list('test/to')).toEqual(['one', 'two']);
  expect(await find('.renaming')).toBeUndefined();
});

test.each(['', '{"from":5}', '{"from":"test/from"', 'null'])(
  'a note of a rename that is damaged (%j) is removed',
  async (note) => {
    await files.makeFolder('test/from');
    await files.writeAtomic('.renaming', note);
    (await openBrowserHost()).close();
    expect(await files.list('test')).toEqual(['from']);
    expect(await find('.renaming')).toBeUndefined();
  },
);

test('a block file holds what was written where it was written, many moves at once', async () => {
  const count = 20;
  const bytes = 7_000;
  const file = await host.openBlockFile('test/tier', count * bytes);
  const part = (i: number) => new Uint8Array(bytes).fill(i + 1);
  await Promise.all(
    Array.from({ length: count }, async (_, i) => expect(await file.write(i * bytes, part(i))).toBe(bytes)),
  );
  await Promise.all(
    Array.from({ length: count }, async (_, i) => {
      const into = new Uint8Array(bytes);
      expect(await file.read(i * bytes, into)).toBe(bytes);
      expect(into).toEqual(part(i));
    }),
  );
  expect(await file.read(count * bytes - 10, new Uint8Array(30))).toBe(10);
  await file.remove();
  expect(await files.list('test/tier')).toEqual([]);
});

test('the files of workers that are gone are removed, those of living ones stay', async () => {
  await files.makeFolder('test/tier');
  await files.writeAtomic('test/tier/holdfast-tier-gone.bin', 'x');
  await files.writeAtomic('test/tier/notes.txt', 'x');
  const living = await host.openBlockFile('test/tier', 16);
  const other = await host.openBlockFile('test/tier', 16);
  expect((await files.list('test/tier')).length).toBe(3);
  expect(await living.write(0, new Uint8Array(16))).toBe(16);
  await living.remove();
  await other.remove();
  expect(await files.list('test/tier')).toEqual(['notes.txt']);
});

test('damage on disk is found by the checksum', async () => {
  const file = await host.openBlockFile('test/tier', 2048);
  const tier = new DiskTier(new DiskFile(file), 1024, 2);
  const block = tier.take() as number;
  await tier.write(block, 7, new Uint8Array(1024).fill(3));
  await file.write(block * 1024 + 100, new Uint8Array([4]));
  await expect(tier.read(block, 7, new Uint8Array(1024))).rejects.toThrow(
    /chunk 7 \(block 0 of test\/tier\/holdfast-tier-.*checksum/,
  );
  await tier.file.remove();
});

test('a tier that is larger than the site may keep is refused with what would fit', async () => {
  const { quota } = await host.room();
  const error = await host.openBlockFile('test/tier', quota + 1).catch((thrown) => thrown);
  expect(error).toBeInstanceOf(HoldfastError);
  expect(error.message).toMatch(
    /^this site may keep .* \(\d+ bytes\) here and .* are in use: .* would fit, the disk tier needs .* lower disk limit/,
  );
  expect(await files.list('test/tier')).toEqual([]);
});

test('the example text is the default corpus', async () => {
  const { bytes } = await defaultCorpus(host);
  expect(bytes.length).toBe(3_784_293);
  expect(new TextDecoder().decode(bytes.subarray(0, 2000))).toContain('Microsoft');
  expect(await openFolder('')).toBeTruthy();
});

test('a worker for files that cannot be loaded is an error of each write, until it can be', async () => {
  const link = new DiskLink();
  const unreachable = new OpfsFiles(link);
  const { Worker } = globalThis;
  globalThis.Worker = class extends Worker {
    constructor() {
      super('/not-there.js', { type: 'module' });
    }
  };
  try {
    for (const name of ['a', 'b']) {
      await expect(unreachable.writeAtomic(`test/${name}.txt`, name)).rejects.toThrow(
        /^the worker that writes files did not start.*; reload the page$/,
      );
    }
  } finally {
    globalThis.Worker = Worker;
  }
  await unreachable.writeAtomic('test/c.txt', 'written');
  expect(await text('test/c.txt')).toBe('written');
  link.close();
});
