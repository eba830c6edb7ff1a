// Values that are made beside the old ones below the GPU, in rooms that others give way to, and stowed on disk: until one is put the
// old value is what it was; what is given up takes no room; and a disk that fails costs neither.

import { describe, expect, test } from 'vitest';
import { Backing } from '../../src/memory/tiers/backing.ts';
import type { Stowed } from '../../src/memory/tiers/puts.ts';
import { sparedChunks } from '../../src/memory/tiers/tier-limits.ts';
import type { BlockFile } from '../../src/runtime/host.ts';
import { at } from '../../src/util/at.ts';
import { HoldfastError } from '../../src/util/errors.ts';
import { Random } from '../../src/util/random.ts';
import { MemoryBlockFile } from '../memory-files.ts';
import { CountingFile, FAULTS, type Fault, FaultyFile, turns } from './block-files.ts';

const BYTES = 1024;
const GROUPS = 6;
const CHUNKS = 4 * GROUPS;
const SLOTS = 12;
const LIMITS = { slots: SLOTS, held: CHUNKS, largestPut: 4, updates: 4, beside: 18, chunkBytes: BYTES };
/** All values beside a put, and half of them once more. */
const BLOCKS = CHUNKS + 4 + CHUNKS / 2;

const open = (disk: BlockFile) =>
  new Backing({ chunks: CHUNKS, chunkBytes: BYTES, hostLimit: SLOTS * BYTES, disk, updates: 4 });
const file = () => new MemoryBlockFile('/tier', BLOCKS * BYTES);

const valueIn = (chunk: number, version: number) => new Uint8Array(BYTES).fill(32 * version + chunk);
/** Of a group, the first is read and new ones of the others are made. */
const groupOf = (index: number) => [0, 1, 2, 3].map((i) => 4 * index + i) as [number, number, number, number];

/** New values of a group: in rooms, and then, but for some of them, on disk. */
async function make(backing: Backing, index: number, version: Uint8Array, stow: (chunk: number) => boolean) {
  const chunks = groupOf(index);
  const [, ...changed] = chunks;
  const rooms = await backing.make(chunks, 3, async (bytes, rooms) => {
    await turns(2);
    chunks.forEach((chunk, i) => {
      expect(at(bytes, i), `chunk ${chunk}`).toEqual(valueIn(chunk, at(version, chunk)));
    });
    changed.forEach((chunk, i) => {
      at(rooms, i).set(valueIn(chunk, at(version, chunk) + 1));
    });
  });
  const ends = await Promise.allSettled(
    changed.map(async (chunk, i) => {
      const bytes = at(rooms, i);
      const stowed = stow(chunk) ? await backing.stow(chunk, bytes) : undefined;
      if (stowed) backing.leaveHost(chunk);
      return stowed ? { chunk, stowed } : { chunk, bytes };
    }),
  );
  const made = ends.map((end, i) =>
    end.status === 'fulfilled' ? end.value : { chunk: at(changed, i), bytes: at(rooms, i) },
  );
  const failed = ends.find((end) => end.status === 'rejected');
  return { made, error: failed?.reason as unknown };
}

type Made = Awaited<ReturnType<typeof make>>['made'];
const put = async (backing: Backing, made: Made) => {
  const isStowed = (one: Made[number]): one is { chunk: number; stowed: Stowed } => 'stowed' in one;
  const values = made.flatMap((one) =>
    isStowed(one) ? [] : [{ chunk: one.chunk, bytes: one.bytes as Uint8Array<ArrayBuffer> }],
  );
  if (values.length > 0) await backing.putAll(values);
  for (const one of made) if (isStowed(one)) backing.putStowed(one.chunk, one.stowed);
};
const giveUp = (backing: Backing, made: Made) => {
  for (const one of made) {
    if ('stowed' in one && one.stowed) backing.dropStowed(one.stowed);
    else backing.giveRoomBack(one.bytes as Uint8Array<ArrayBuffer>);
  }
};

async function expectValues(backing: Backing, version: Uint8Array): Promise<void> {
  for (let chunk = 0; chunk < CHUNKS; chunk++) {
    expect(await backing.fetch(chunk), `chunk ${chunk}`).toEqual(valueIn(chunk, at(version, chunk)));
  }
}

test('beside fetches, puts and updates, values are as they were until those that were made are put, and behind what is given up', async () => {
  const random = new Random(5, 'made');
  const backing = open(new CountingFile(file(), () => turns(random.below(5))));
  const version = new Uint8Array(CHUNKS);
  for (let chunk = 0; chunk < CHUNKS; chunk++) await backing.putAll([{ chunk, bytes: valueIn(chunk, 0) }]);
  let stowed = 0;
  for (let round = 0; round < 12; round++) {
    const first = random.below(CHUNKS);
    backing.setOrder((chunk) => (chunk - first + CHUNKS) % CHUNKS);
    const groups = Array.from({ length: GROUPS }, (_, index) => index).filter(() => random.below(3) > 0);
    const made: { readonly index: number; readonly values: Made }[] = [];
    for (const index of groups.slice(0, 2)) {
      const others = Array.from({ length: 3 }, () => random.below(CHUNKS));
      const fetched = others.map((chunk) => backing.fetch(chunk).then((bytes) => [chunk, at(bytes, 0)] as const));
      const zeroth = groupOf((index + 1) % GROUPS)[0];
      const puts = backing.putAll([{ chunk: zeroth, bytes: valueIn(zeroth, 0) }]);
      const { made: values } = await make(backing, index, version, () => random.below(4) > 0);
      stowed += values.filter((one) => 'stowed' in one).length;
      for (const [chunk, byte] of await Promise.all(fetched))
        expect(byte).toBe(at(valueIn(chunk, at(version, chunk)), 0));
      await puts;
      made.push({ index, values });
    }
    await turns(3);
    backing.check();
    for (const { index, values } of made) {
      if (random.below(3) === 0) giveUp(backing, values);
      else {
        await put(backing, values);
        for (const chunk of groupOf(index).slice(1)) version[chunk] = at(version, chunk) + 1;
      }
    }
    backing.check();
    await expectValues(backing, version);
  }
  expect(stowed).toBeGreaterThan(0);
  await turns(3);
  backing.check();
  await backing.close();
});

describe.each(Object.entries(FAULTS) as [Fault, string][])('with a disk that fails once: %s, %s', (fault) => {
  test('at its n-th move there is an error that names the file, and each value is the old one or, once it was put, the new one', async () => {
    let errors = 0;
    for (let n = 0, fired = true; fired; n++) {
      const faulty = new FaultyFile(file(), fault, n);
      const backing = open(faulty);
      const version = new Uint8Array(CHUNKS);
      const told = (error: unknown) => {
        errors++;
        expect(error, `at ${n}`).toBeInstanceOf(HoldfastError);
        expect((error as Error).message).toContain('/tier');
      };
      for (let chunk = 0; chunk < CHUNKS; chunk++) {
        // What is not taken is put again.
        for (let tries = 0; tries < 2; tries++) {
          const isPut = await backing.putAll([{ chunk, bytes: valueIn(chunk, 0) }]).then(() => true, told);
          if (isPut) break;
        }
      }
      for (const index of [0, 3, 5]) {
        try {
          const { made, error } = await make(backing, index, version, () => true);
          if (error !== undefined) told(error);
          if (error !== undefined || index === 3) giveUp(backing, made);
          else {
            await put(backing, made);
            for (const chunk of groupOf(index).slice(1)) version[chunk] = 1;
          }
        } catch (error) {
          told(error);
        }
        await turns(3);
        backing.check();
      }
      faulty.heal();
      // What a disk damaged for good is told, never used.
      for (let chunk = 0; chunk < CHUNKS; chunk++) {
        const bytes = await backing.fetch(chunk).catch(told);
        if (bytes) expect(bytes, `chunk ${chunk}, fault at ${n}`).toEqual(valueIn(chunk, at(version, chunk)));
      }
      fired = faulty.fired;
      await backing.close();
    }
    expect(errors > 0).toBe(fault !== 'short');
  });
});

test('there is room beside values where host memory is left, or, under it, where disk is; without a limit up to 2 GiB', () => {
  const unlimited = { slots: Number.POSITIVE_INFINITY, blocks: 0 };
  expect(sparedChunks({ ...LIMITS, ...unlimited })).toEqual({ chunks: 18, slots: 18, onDisk: false });
  expect(sparedChunks({ ...LIMITS, ...unlimited, beside: 0 }).chunks).toBe(0);
  expect(sparedChunks({ ...LIMITS, ...unlimited, chunkBytes: 2 ** 29 }).chunks).toBe(4);
  expect(sparedChunks({ ...LIMITS, slots: CHUNKS + 4, blocks: 0 }).chunks).toBe(0);
  expect(sparedChunks({ ...LIMITS, slots: CHUNKS + 9, blocks: 0 })).toEqual({ chunks: 5, slots: 5, onDisk: false });
  expect(sparedChunks({ ...LIMITS, blocks: BLOCKS })).toEqual({ chunks: 24, slots: 0, onDisk: true });
  expect(sparedChunks({ ...LIMITS, slots: SLOTS - 1, blocks: BLOCKS }).chunks).toBe(0);
  expect(sparedChunks({ ...LIMITS, updates: 0, blocks: BLOCKS }).chunks).toBe(0);
});

test('without a limit the room beside values is there from the first on, or as much of it as there is memory for', async () => {
  const openIn = (most: number) => {
    let left = most;
    const allocate = (bytes: number) => {
      if (left-- <= 0) throw new RangeError('no memory');
      return new Uint8Array(bytes);
    };
    return new Backing({
      ...{ chunks: CHUNKS, chunkBytes: BYTES, hostLimit: Number.POSITIVE_INFINITY, updates: 4, beside: 18, allocate },
    });
  };
  for (const [memory, room] of [
    [100, 18],
    [CHUNKS + 5, 5],
    [CHUNKS, 0],
  ] as const) {
    const backing = openIn(memory);
    expect(backing.spare).toEqual({ chunks: room, slots: room, onDisk: false });
    const peak = (CHUNKS + room) * BYTES;
    expect(backing.ledger.hostPeak).toBe(peak);
    const version = new Uint8Array(CHUNKS);
    for (let chunk = 0; chunk < CHUNKS; chunk++) await backing.putAll([{ chunk, bytes: valueIn(chunk, 0) }]);
    for (let index = 0; 3 * (index + 1) <= room; index++) {
      const { made } = await make(backing, index, version, () => false);
      if (index === 0) giveUp(backing, made);
      else {
        await put(backing, made);
        for (const chunk of groupOf(index).slice(1)) version[chunk] = 1;
      }
    }
    await expectValues(backing, version);
    backing.check();
    expect(backing.ledger.hostPeak).toBe(peak);
    await backing.close();
  }
});
