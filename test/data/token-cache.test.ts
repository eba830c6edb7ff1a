// Ids of a text that are too many to be held: they are read from the file of the cache, whatever their width, and are those that
// memory would have; where no file can be written they are held all the same.

import { expect, test } from 'vitest';
import { readWindows } from '../../src/data/batches.ts';
import { textIn } from '../../src/data/corpus.ts';
import { readStridedWindows, stridedWindows } from '../../src/data/strided-windows.ts';
import { TokenCache } from '../../src/data/token-cache.ts';
import { MOST_HELD } from '../../src/data/token-files.ts';
import { heldRun, runBehind } from '../../src/data/token-run.ts';
import { tokenizedText } from '../../src/data/tokenized-text.ts';
import { ByteTokenizer } from '../../src/data/tokenizer.ts';
import { HoldfastError } from '../../src/util/errors.ts';
import { EVERY_CASE } from '../host.ts';
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
    // What is in memory needs no file any more; the rest says what to do.
    files.contents.clear();
    const read = parts.map(({ train }) => train.read([[0, 1]]));
    if (mostHeld === bytes) expect(Array.from((await read[0])?.[0] ?? [])).toEqual([ids[0]]);
    else
      await expect(read[0]).rejects.toThrow(
        /tokens of the data were in this file of the cache; go on from the last checkpoint/,
      );
  }
});

test('windows of a file are those of memory, with BOS in front or without', async () => {
  const files = new MemoryFiles();
  const ids = idsBelow(300);
  const { train } = await written(await cacheOf(files, 300, 0), ids);
  const held = heldRun(ids.subarray(0, TRAINED));
  const offsets = [0, 5, 880, 5];
  expect(await readWindows(train, 19, offsets)).toEqual(await readWindows(held, 19, offsets));
  const options = { context: 32, stride: 20, batch: 3 };
  const all = async (run: typeof train) => {
    const batches = [];
    for await (const batch of readStridedWindows(run, options)) batches.push(batch);
    return batches;
  };
  expect(await all(train)).toEqual([...stridedWindows(ids.subarray(0, TRAINED), options)]);
  const behind = Int32Array.from([299, ...ids.subarray(0, TRAINED)]);
  expect(await all(runBehind(299, train))).toEqual([...stridedWindows(behind, options)]);
});

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
