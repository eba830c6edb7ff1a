// Updates in place below the GPU: a chunk that is asked for meanwhile comes with its new value, what was on disk of it is
// stale, and work that fails leaves no value behind.

import { expect, test } from 'vitest';
import { Backing } from '../../src/memory/tiers/backing.ts';
import { leastDiskChunks, leastHostChunks } from '../../src/memory/tiers/tier-limits.ts';
import type { BlockFile } from '../../src/runtime/host.ts';
import { at } from '../../src/util/at.ts';
import { Random } from '../../src/util/random.ts';
import { MemoryBlockFile } from '../memory-files.ts';
import { CountingFile, turns } from './block-files.ts';

const BYTES = 1024;
const GROUPS = 5;
const CHUNKS = 4 * GROUPS;
const SLOTS = leastHostChunks(CHUNKS, true, 4);

function open() {
  const random = new Random(3, 'delays');
  const blocks = leastDiskChunks(CHUNKS, SLOTS);
  const file = new CountingFile(new MemoryBlockFile('/tier', blocks * BYTES), () => turns(random.below(5)));
  return new Backing({ chunks: CHUNKS, chunkBytes: BYTES, hostLimit: SLOTS * BYTES, disk: file, updates: 4 });
}

const valueIn = (chunk: number, version: number) => new Uint8Array(BYTES).fill(16 * version + chunk);
/** Of a group, the first is read and the others change. */
const group = (index: number) => [0, 1, 2, 3].map((i) => ({ chunk: 4 * index + i, kept: i === 0 }));

test('updates side by side, with fetches, puts and reads ahead between them, each on the value before it', async () => {
  const backing = open();
  const random = new Random(1, 'updates');
  const version = new Uint8Array(CHUNKS);
  for (let chunk = 0; chunk < CHUNKS; chunk++) await backing.putAll([{ chunk, bytes: valueIn(chunk, 0) }]);
  for (let round = 1; round <= 8; round++) {
    const first = random.below(CHUNKS);
    backing.setOrder((chunk) => (chunk - first + CHUNKS) % CHUNKS);
    const work = Array.from({ length: GROUPS }, async (_, index) => {
      const chunks = group(index);
      if (random.below(2) === 0) backing.prefetch(at(chunks, 1).chunk);
      const updated = backing.update(chunks, async (bytes) => {
        chunks.forEach(({ chunk }, i) => {
          expect(at(bytes, i), `chunk ${chunk} in round ${round}`).toEqual(valueIn(chunk, at(version, chunk)));
        });
        await turns(random.below(4));
        for (const { chunk, kept } of chunks) if (!kept) version[chunk] = at(version, chunk) + 1;
        bytes.slice(1).forEach((part, i) => {
          part.set(valueIn(at(chunks, i + 1).chunk, round));
        });
      });
      await turns(random.below(4));
      const { chunk } = at(chunks, random.below(4));
      const seen = backing.fetch(chunk).then((bytes) => [...bytes.subarray(0, 2)]);
      await updated;
      const kept = at(chunks, 0).chunk;
      // Before the update or behind it, never in between.
      expect(
        [valueIn(chunk, round), valueIn(chunk, chunk === kept ? 0 : round - 1)].map((v) => [...v.subarray(0, 2)]),
      ).toContainEqual(await seen);
    });
    await Promise.all(work);
    backing.check();
    for (let chunk = 0; chunk < CHUNKS; chunk++) {
      const expected = valueIn(chunk, at(version, chunk));
      expect(
        (await backing.fetch(chunk)).every((byte, i) => byte === expected[i]),
        `chunk ${chunk}`,
      ).toBe(true);
    }
  }
  await backing.close();
});

test('zeros are updated, and what was changed is zeros no more', async () => {
  const backing = open();
  for (const { chunk } of group(0)) backing.setZero(chunk);
  await backing.update(group(0), (bytes) => {
    for (const part of bytes.slice(1)) part.fill(7);
  });
  expect(group(0).map(({ chunk }) => backing.where(chunk))).toEqual(['zero', 'host', 'host', 'host']);
  expect((await backing.fetch(1))[5]).toBe(7);
  expect((await backing.fetch(0))[5]).toBe(0);
  backing.check();
  await backing.close();
});

test('work that fails leaves nothing of what it was to change', async () => {
  const backing = open();
  for (const { chunk } of group(0)) await backing.putAll([{ chunk, bytes: valueIn(chunk, 0) }]);
  const failing = backing.update(group(0), async (bytes) => {
    at(bytes, 1).fill(9);
    throw new Error('on purpose');
  });
  await expect(failing).rejects.toThrow('on purpose');
  expect(group(0).map(({ chunk }) => backing.where(chunk))).toEqual(['host', 'nothing', 'nothing', 'nothing']);
  backing.check();
  await backing.close();
});

test('what leaves host memory next is written behind an update: what is read then waits for no write, and little more is written', async () => {
  const order: string[] = [];
  const slots = 10;
  const memory = new MemoryBlockFile('/tier', (CHUNKS + 4) * BYTES);
  const disk: BlockFile = {
    ...{ path: '/tier', bytes: memory.bytes, remove: () => memory.remove() },
    read: async (offset, into) => {
      order.push('read');
      await turns(4);
      return memory.read(offset, into);
    },
    write: async (offset, from) => {
      order.push('write');
      await turns(4);
      return memory.write(offset, from);
    },
  };
  const backing = new Backing({ chunks: CHUNKS, chunkBytes: BYTES, hostLimit: slots * BYTES, disk, updates: 4 });
  for (let chunk = 0; chunk < CHUNKS; chunk++) await backing.putAll([{ chunk, bytes: valueIn(chunk, 0) }]);
  const step = async () => {
    for (let index = 0; index < GROUPS; index++) {
      backing.setOrder((chunk) => (chunk - 4 * index + CHUNKS) % CHUNKS);
      await backing.update(group(index), (bytes) => {
        for (const part of bytes.slice(1)) part[0] = (part[0] ?? 0) + 1;
      });
      // The disk has the time that the next one is waited for.
      await turns(12);
      backing.check();
    }
  };
  await step();
  order.length = 0;
  await step();
  const count = (way: string) => order.filter((one) => one === way).length;
  // Of what is read for an update, all before the first write behind it.
  expect(order.join(' ')).not.toMatch(/write read write read/);
  expect(count('write')).toBeGreaterThan(0);
  // Four are written ahead, and may change before they leave.
  expect(count('write')).toBeLessThanOrEqual(3 * GROUPS + 4);
  await backing.close();
});

test.each([8, 12])(
  'updates three at a time behind reads ahead, over a disk of any delays, lose no value: %i chunks beside them',
  async (more) => {
    const groups = 12;
    const chunks = 4 * groups;
    for (let seed = 0; seed < 24; seed++) {
      const random = new Random(seed, 'pipeline');
      const blocks = random.below(2) === 0 ? chunks + 4 : leastDiskChunks(chunks, 12 + more);
      const file = new CountingFile(new MemoryBlockFile('/tier', blocks * BYTES), () => turns(random.below(6)));
      const hostLimit = (12 + more) * BYTES;
      const backing = new Backing({ chunks, chunkBytes: BYTES, hostLimit, disk: file, updates: 4 });
      for (let chunk = 0; chunk < chunks; chunk++) await backing.putAll([{ chunk, bytes: valueIn(0, 0) }]);
      let first = 0;
      backing.setOrder((chunk) => (chunk - 4 * first + chunks) % chunks);
      const underWay: Promise<void>[] = [];
      for (let n = 0; n < 4 * groups; n++) {
        await underWay[n - 3];
        first = n % groups;
        const done = Math.floor(n / groups);
        underWay.push(
          backing.update(group(first), async (bytes) => {
            await turns(random.below(4));
            for (const part of bytes.slice(1)) {
              expect(part).toEqual(valueIn(done, 0));
              part.fill(done + 1);
            }
          }),
        );
        for (let ahead = 0; ahead < 8; ahead++) backing.prefetch((4 * (first + 1) + ahead) % chunks);
      }
      await Promise.all(underWay);
      await turns(6);
      backing.check();
      await backing.close();
    }
  },
);
