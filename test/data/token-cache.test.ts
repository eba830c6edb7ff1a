// Ids of a text that are too many to be held: they are read from the file of the cache, whatever their width, and are those that
// memory would have, also where another process removes it; where no file can be written they are held all the same.

import { mkdtemp, readdir, rm } from 'node:fs/promises';
import os from 'node:os';
import path from 'node:path';
import { expect, test } from 'vitest';
import { textIn } from '../../src/data/corpus.ts';
import { TokenCache } from '../../src/data/token-cache.ts';
import { MOST_HELD } from '../../src/data/token-files.ts';
import { tokenizedText } from '../../src/data/tokenized-text.ts';
import { ByteTokenizer } from '../../src/data/tokenizer.ts';
import type { Files, Host } from '../../src/runtime/host.ts';
import { HoldfastError } from '../../src/util/errors.ts';
import { EVERY_CASE, testHost } from '../host.ts';
import { MemoryFiles, memoryHost } from '../memory-files.ts';
import { idsOf } from './ids-of.ts';

const identity = { kind: 'huggingface', path: 'tokenizer.json', sha256: '1'.repeat(64) } as const;
const text = { bytes: 9000, sha256: '2'.repeat(64) };
const TRAINED = 900;

const cacheOf = (files: MemoryFiles, vocabulary: number, mostHeld?: number) =>
  TokenCache.at(memoryHost(files), text, 8100, { identity, vocabulary }, mostHeld);

const idsBelow = (vocabulary: number) => Int32Array.from({ length: 1000 }, (_, i) => (i * 7919) % vocabulary);

async function written(cache: TokenCache, ids: Int32Array) {
  const writer = await cache.writer();
  for (let at = 0; at < TRAINED; at += 300) await writer.train(ids.subarray(at, at + 300));
  await writer.validation(ids.subarray(TRAINED));
  return writer.finish();
}

test.each([
  [256, 1],
  [65_536, 2],
  [65_537, 4],
])('of a vocabulary of %i they have %i bytes each, in memory as in the file', async (vocabulary, width) => {
  const ids = idsBelow(vocabulary);
  const bytes = 1000 * width;
  for (const mostHeld of [bytes, bytes - 1]) {
    const files = new MemoryFiles();
    const parts = [await written(await cacheOf(files, vocabulary, mostHeld), ids)];
    const again = await (await cacheOf(files, vocabulary, mostHeld)).read();
    expect(again).toBeDefined();
    for (const { train, validation } of [...parts, ...(again ? [again] : [])]) {
      expect([...(await idsOf(train)), ...(await idsOf(validation))]).toEqual([...ids]);
      const [middle] = await validation.read([[40, 60]]);
      expect(Array.from(middle ?? [])).toEqual([...ids.subarray(TRAINED + 40, TRAINED + 60)]);
    }
    expect(files.contents.size).toBe(1);
    expect([...files.contents.values()][0]).toHaveLength(bytes + 512);
    // What is in memory needs no file any more, and what is open no name.
    files.contents.clear();
    for (const { train } of parts) expect(Array.from((await train.read([[0, 1]]))[0] ?? [])).toEqual([ids[0]]);
  }
});

test('where the file cannot be read any more, it says what to do', async () => {
  const files = new MemoryFiles();
  const open = files.open.bind(files);
  let isGone = false;
  files.open = async (path) => {
    const file = await open(path);
    const readRange: typeof file.readRange = async (...range) => {
      if (isGone) throw new HoldfastError(`cannot read ${path}: the disk is gone`);
      return file.readRange(...range);
    };
    return { ...file, readRange };
  };
  const { train } = await written(await cacheOf(files, 300, 0), idsBelow(300));
  isGone = true;
  await expect(train.read([[0, 1]])).rejects.toThrow(
    /the disk is gone: the tokens of the data were in this file of the cache; go on from the last checkpoint/,
  );
});

/** Hosts of processes that share a cache on the disk, whose files count as so many more bytes than there are. */
async function sharingCache(work: (hostWith: (more: () => number) => Host, names: () => Promise<string[]>) => unknown) {
  const cacheFolder = await mkdtemp(path.join(os.tmpdir(), 'holdfast-tokens-'));
  const hostWith = (more: () => number): Host => {
    const stat: Files['stat'] = async (path) => {
      const found = await testHost.files.stat(path);
      return found?.kind === 'file' ? { ...found, bytes: found.bytes + more() } : found;
    };
    return { ...testHost, cacheFolder, files: { ...testHost.files, stat } };
  };
  try {
    await work(hostWith, () => readdir(path.join(cacheFolder, 'tokens')));
  } finally {
    await rm(cacheFolder, { recursive: true, force: true });
  }
}

const cacheAt = (host: Host, bytes: number, mostHeld?: number) =>
  TokenCache.at(host, { ...text, bytes }, 1, { identity, vocabulary: 300 }, mostHeld);

test('what another process removes, because the cache is too large, is still read by the run that it is of', () =>
  sharingCache(async (hostWith, names) => {
    const ids = idsBelow(300);
    const own = hostWith(() => 0);
    const runs = [await written(await cacheAt(own, 1, 0), ids)];
    // As a second run of the same text does.
    const again = await (await cacheAt(own, 1, 0)).read();
    if (again) runs.push(again);
    const before = await names();
    await written(
      await cacheAt(
        hostWith(() => 2e9),
        2,
      ),
      ids,
    );
    expect(await names()).toHaveLength(1);
    expect(await names()).not.toEqual(before);
    expect(runs).toHaveLength(2);
    for (const { train, validation } of runs)
      expect([...(await idsOf(train)), ...(await idsOf(validation))]).toEqual([...ids]);
  }));

test('what another process has written meanwhile stays', () =>
  sharingCache(async (hostWith, names) => {
    const ids = idsBelow(300);
    let more = 0;
    const slow = await (
      await cacheAt(
        hostWith(() => more),
        1,
      )
    ).writer();
    for (const bytes of [2, 3])
      await written(
        await cacheAt(
          hostWith(() => 0),
          bytes,
        ),
        ids,
      );
    const before = await names();
    more = 2e9;
    await slow.train(ids);
    await slow.finish();
    expect(await names()).toEqual(expect.arrayContaining(before.filter((name) => name.endsWith('.tokens'))));
    expect(await names()).toHaveLength(3);
  }));

test('when the cache is too large, the oldest file goes, but not one that is read from', async () => {
  for (const mostHeld of [undefined, 0]) {
    const files = new MemoryFiles();
    const [ids, stat] = [idsBelow(300), files.stat.bind(files)];
    const { train } = await written(await cacheOf(files, 300, mostHeld), ids);
    const other = await TokenCache.at(memoryHost(files), { ...text, bytes: 1 }, 1, { identity, vocabulary: 300 });
    const writer = await other.writer();
    await writer.train(ids);
    files.stat = async (path) => {
      const found = await stat(path);
      return found?.kind === 'file' ? { ...found, bytes: 2e9 } : found;
    };
    await writer.finish();
    files.stat = stat;
    expect(files.contents.size).toBe(mostHeld === undefined ? 1 : 2);
    const [first] = await train.read([[0, 1]]);
    expect(Array.from(first ?? [])).toEqual([ids[0]]);
  }
});

test('when the cache is too large, what was just written stays, also in the place of an older file', async () => {
  const files = new MemoryFiles();
  const ids = idsBelow(300);
  await written(await cacheOf(files, 300), ids);
  const [path = ''] = files.contents.keys();
  const other = await TokenCache.at(memoryHost(files), { ...text, bytes: 1 }, 1, { identity, vocabulary: 300 });
  await written(other, ids);
  // It is made again, under the number that it had.
  files.contents.set(path, (await files.read(path)).fill(0, 0, 9));
  const stat = files.stat.bind(files);
  files.stat = async (path) => {
    const found = await stat(path);
    return found?.kind === 'file' ? { ...found, bytes: (files.contents.get(path)?.length ?? 0) + 2e9 } : found;
  };
  const writer = await (await cacheOf(files, 300, 0)).writer();
  await writer.train(ids);
  await writer.finish().catch(() => {});
  expect([...files.contents.keys()]).toContain(path);
});

/** More bytes than are held. */
const LARGE = new Uint8Array(MOST_HELD + 1).map((_, i) => (i * 2_654_435_761) >>> 24);
const large = () => textIn(new Blob([LARGE]));
const border = Math.floor((LARGE.length * 9) / 10);

test('a large text of bytes lies in the cache, as it is, and is found there again', async () => {
  const files = new MemoryFiles();
  const host = memoryHost(files);
  for (let round = 0; round < 2; round++) {
    const found = await tokenizedText(host, large(), new ByteTokenizer());
    expect([found.train.length, found.validation.length]).toEqual([border, LARGE.length - border]);
    expect(files.contents.size).toBe(1);
    const parts = await found.train.read([
      [0, 1000],
      [border - 1000, border],
    ]);
    const [first] = await found.validation.read([[0, 1000]]);
    expect(parts.map((part) => Array.from(part))).toEqual([
      Array.from(LARGE.subarray(0, 1000)),
      Array.from(LARGE.subarray(border - 1000, border)),
    ]);
    expect(Array.from(first ?? [])).toEqual(Array.from(LARGE.subarray(border, border + 1000)));
  }
});

test.each(EVERY_CASE ? [0, 9] : [9])(
  'where the disk is full behind %i writes, it is held all the same',
  async (after) => {
    const files = new MemoryFiles();
    const { writeStream } = MemoryFiles.prototype;
    let writes = 0;
    files.writeStream = async (path) => {
      const stream = await writeStream.call(files, path);
      const write = async (bytes: Uint8Array) => {
        if (writes++ >= after) throw new HoldfastError('the disk is full');
        await stream.write(bytes);
      };
      return { ...stream, write };
    };
    const found = await tokenizedText(memoryHost(files), large(), new ByteTokenizer());
    expect(files.contents.size).toBe(0);
    const [part] = await found.validation.read([[0, 100]]);
    expect(Array.from(part ?? [])).toEqual(Array.from(LARGE.subarray(border, border + 100)));
    expect(found.train.length).toBe(border);
  },
);
