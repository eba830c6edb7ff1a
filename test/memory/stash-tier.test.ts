// Pieces of activations below the GPU: what comes back is what was put, whatever lies on disk and however reads and writes
// dawdle or fail; host memory, the file and what moves are what the pieces have, to the byte.

import fc from 'fast-check';
import { expect, it } from 'vitest';
import { bytesBelow, leastHostBytes, type NeedBelow, sharesOf, stashHomes } from '../../src/memory/tiers/shares.ts';
import { StashTier } from '../../src/memory/tiers/stash-tier.ts';
import { leastDiskChunks, leastHostChunks } from '../../src/memory/tiers/tier-limits.ts';
import { HoldfastError } from '../../src/util/errors.ts';
import { MemoryBlockFile } from '../memory-files.ts';
import { CountingFile, FAULTS, type Fault, FaultyFile, turns } from './block-files.ts';

const FIRST = 5;
const BEGIN = 2048;
const sizes = fc.array(
  fc.integer({ min: 1, max: 40 }).map((words) => 4 * words),
  { minLength: 1, maxLength: 12 },
);
const all = (pieces: readonly number[]): number => pieces.reduce((a, b) => a + b, 0);
const value = (piece: number, step: number, size: number) => new Uint8Array(size).fill(1 + piece + 16 * step);

it('brings back what was put, forward down and backward up, step after step', async () => {
  const cases = fc.record({ pieces: sizes, share: fc.integer({ min: 0, max: 100 }), seed: fc.nat() });
  await fc.assert(
    fc.asyncProperty(cases, async ({ pieces, share, seed }) => {
      const most = Math.max(...pieces);
      const room = { host: Math.floor(most + (share * all(pieces)) / 100), disk: all(pieces) };
      let random = seed;
      const file = new CountingFile(new MemoryBlockFile('/tier/file', BEGIN + room.disk), () => {
        random = (Math.imul(random, 1664525) + 1013904223) >>> 0;
        return turns(random % 4);
      });
      const tier = new StashTier(room, file, BEGIN);
      tier.place(FIRST, pieces);
      const onDisk = stashHomes(pieces, room)?.onDisk ?? 0;
      for (let step = 0; step < 3; step++) {
        const puts = pieces.map((size, i) => tier.put(FIRST + i, value(i, step, size)));
        await Promise.all(puts);
        tier.check();
        for (let i = pieces.length - 1; i >= 0; i--) {
          for (let ahead = i; ahead > Math.max(-1, i - 3); ahead--) tier.prefetch(FIRST + ahead);
          expect(await tier.fetch(FIRST + i)).toEqual(value(i, step, pieces[i] ?? 0));
          tier.check();
          tier.discard(FIRST + i);
          expect(tier.where(FIRST + i)).toBe('nothing');
        }
      }
      await tier.close();
      const { hostPeak, diskPeak, diskBytes, diskReadBytes, diskWriteBytes } = tier.ledger;
      expect(hostPeak).toBeLessThanOrEqual(room.host);
      expect([diskPeak, diskBytes]).toEqual([onDisk, 0]);
      expect([diskReadBytes, diskWriteBytes]).toEqual([3 * onDisk, 3 * onDisk]);
      expect([file.readBytes, file.writtenBytes]).toEqual([3 * onDisk, 3 * onDisk]);
    }),
    { seed: 12, numRuns: 60 },
  );
});

it('brings back what was put part behind part, and begun anew, and writes each part once', async () => {
  const part = fc.integer({ min: 1, max: 6 }).map((words) => 4 * words);
  const texts = fc.array(fc.array(part, { minLength: 1, maxLength: 9 }), { minLength: 1, maxLength: 5 });
  await fc.assert(
    fc.asyncProperty(texts, fc.boolean(), fc.nat(), async (texts, isOnDisk, seed) => {
      const size = 256;
      let random = seed;
      const file = new CountingFile(new MemoryBlockFile('/tier/file', BEGIN + 2 * size), () => {
        random = (Math.imul(random, 1664525) + 1013904223) >>> 0;
        return turns(random % 4);
      });
      // A reader and two pieces, or the pieces alone.
      const tier = new StashTier(isOnDisk ? { host: size, disk: 2 * size } : { host: 2 * size, disk: 0 }, file, BEGIN);
      tier.place(FIRST, [size, size]);
      let written = 0;
      let read = 0;
      for (const [text, parts] of texts.entries()) {
        let at = 0;
        const wanted = new Uint8Array(size);
        for (const [n, bytes] of parts.entries()) {
          wanted.fill(1 + n + 16 * text, at, at + bytes);
          // It may be read ahead, or not yet all of it, when more is put.
          if (n % 2 === 1) tier.prefetch(FIRST);
          await tier.put(FIRST, wanted.slice(at, at + bytes), at);
          at += bytes;
          written += bytes;
          tier.check();
          const before = file.readBytes;
          expect(await tier.fetch(FIRST)).toEqual(wanted.subarray(0, at));
          expect(file.readBytes - before, 'in one read').toBe(isOnDisk ? at : 0);
          read += at;
          tier.release(FIRST);
        }
      }
      await tier.close();
      expect(file.writtenBytes).toBe(isOnDisk ? written : 0);
      expect(file.readBytes).toBe(isOnDisk ? read : 0);
      expect(tier.ledger.diskBytes).toBe(isOnDisk ? size : 0);
    }),
    { seed: 3, numRuns: 60 },
  );
});

it('finds a bit that has changed in any part of a piece', async () => {
  const parts = [12, 4, 16];
  for (const [damaged, bytes] of parts.entries()) {
    const file = new MemoryBlockFile('/tier/file', 64);
    const room = { host: 32, disk: 64 };
    const tier = new StashTier(room, file);
    tier.place(FIRST, [32, 32]);
    const begin = stashHomes([32, 32], room)?.offsets[0] ?? 0;
    let at = 0;
    for (const [n, length] of parts.entries()) {
      await tier.put(FIRST, value(n, 0, length), at);
      at += length;
    }
    const before = parts.slice(0, damaged).reduce((a, b) => a + b, 0);
    await file.write(begin + before + bytes - 1, Uint8Array.of(255));
    await expect(tier.fetch(FIRST)).rejects.toThrow('came back damaged (checksum mismatch)');
    await tier.close();
  }
});

it('takes the newest value of a piece that was read ahead before it was put again', async () => {
  const file = new CountingFile(new MemoryBlockFile('/tier/file', 400), () => turns(4));
  const tier = new StashTier({ host: 400, disk: 400 }, file);
  tier.place(FIRST, [100, 100, 100, 160]);
  await tier.put(FIRST, value(0, 0, 100));
  tier.prefetch(FIRST);
  await tier.put(FIRST, value(0, 1, 100));
  expect(await tier.fetch(FIRST)).toEqual(value(0, 1, 100));
  tier.check();
  await tier.close();
});

it.each(Object.keys(FAULTS) as Fault[])(
  'says what went wrong with a piece whose move was %s, and loses no reader',
  async (fault) => {
    for (let nth = 0; nth < 8; nth++) {
      const file = new FaultyFile(new MemoryBlockFile('/tier/file', 4096), fault, nth);
      const tier = new StashTier({ host: 1024, disk: 4096 }, file);
      const pieces = [1024, 1024, 1024, 1024];
      tier.place(FIRST, pieces);
      const failures: unknown[] = [];
      const told = (error: unknown) => failures.push(error);
      for (let i = 0; i < 4; i++) await tier.put(FIRST + i, value(i, 0, 1024)).catch(told);
      for (let i = 3; i >= 0; i--) {
        if (tier.where(FIRST + i) === 'nothing') continue;
        const bytes = await tier.fetch(FIRST + i).catch(told);
        if (bytes instanceof Uint8Array) expect(bytes).toEqual(value(i, 0, 1024));
        tier.check();
        tier.discard(FIRST + i);
      }
      // What goes astray may damage another piece as well.
      const range = fault === 'short' ? [0, 0] : [1, fault === 'astray' ? 2 : 1];
      expect(failures.length, `${fault} at ${nth}`).toBeGreaterThanOrEqual(range[0] ?? 0);
      expect(failures.length, `${fault} at ${nth}`).toBeLessThanOrEqual(range[1] ?? 0);
      for (const failure of failures) {
        expect(failure).toBeInstanceOf(HoldfastError);
        expect(String(failure)).toMatch(/activations \d \(byte \d+ of \/tier\/file\)/);
      }
      expect(tier.ledger.hostBytes).toBeLessThanOrEqual(1024);
    }
  },
);

it('divides host memory and disk so that both chunks and pieces can work, wherever there is enough', () => {
  const cases = fc.record({
    chunks: fc.integer({ min: 1, max: 40 }),
    kilobytes: fc.integer({ min: 1, max: 8 }),
    pieces: sizes,
    updates: fc.constantFrom(0, 4, 5),
    host: fc.integer({ min: 0, max: 120 }),
    disk: fc.integer({ min: 0, max: 120 }),
  });
  let divided = 0;
  fc.assert(
    fc.property(cases, ({ chunks, kilobytes, pieces, updates, ...shares }) => {
      const chunkBytes = 1024 * kilobytes;
      const need: NeedBelow = { chunks, held: chunks, chunkBytes, largestPut: 4, updates, stashes: pieces };
      const everything = bytesBelow(need);
      const [host, disk] = [Math.floor((shares.host * everything) / 100), Math.floor((shares.disk * everything) / 100)];
      const found = sharesOf(need, { host, disk });
      if (!found) {
        // Beside everything: what is under way, what rounding to whole chunks leaves, a reader.
        const spare = (4 + 2) * chunkBytes + 2 * Math.max(...pieces);
        const isEnough = disk > 0 && host >= leastHostBytes(need, true) && host + disk >= everything + spare;
        expect(isEnough || host >= everything, 'there was enough').toBe(false);
        return;
      }
      divided++;
      expect(found.chunks.host + found.stashes.host).toBeLessThanOrEqual(host);
      expect(found.chunks.disk + found.stashes.disk).toBeLessThanOrEqual(disk);
      const homes = stashHomes(pieces, found.stashes);
      expect(homes).toBeDefined();
      expect((homes?.onHost ?? 0) + (homes?.onDisk ?? 0)).toBe(all(pieces));
      const slots = Math.floor(found.chunks.host / chunkBytes);
      expect(slots).toBeGreaterThanOrEqual(leastHostChunks(chunks, found.chunks.disk > 0, updates));
      expect(Math.floor(found.chunks.disk / chunkBytes)).toBeGreaterThanOrEqual(leastDiskChunks(chunks, slots, 4));
    }),
    { seed: 4, numRuns: 2000 },
  );
  expect(divided).toBeGreaterThan(500);
});
