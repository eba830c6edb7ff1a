// One scenario, again and again, whose n-th read or write goes wrong, for every n until it runs through: each
// run brings correct data or HoldfastErrors that name the file and the chunk, and loses no value that was not
// damaged on the disk itself.

import { mkdtempSync, rmSync } from 'node:fs';
import os from 'node:os';
import path from 'node:path';
import { afterAll, describe, expect, it } from 'vitest';
import { Backing } from '../../src/memory/tiers/backing.ts';
import { leastDiskChunks } from '../../src/memory/tiers/tier-limits.ts';
import { headlessHost } from '../../src/runtime/headless.ts';
import type { BlockFile } from '../../src/runtime/host.ts';
import { HoldfastError } from '../../src/util/errors.ts';
import { entry, leading } from '../entry.ts';
import { MemoryBlockFile } from '../memory-files.ts';
import { FAULTS, type Fault, FaultyFile } from './block-files.ts';

const BYTES = 4096;
const CHUNKS = 7;
const SLOTS = 3;
const BLOCKS = leastDiskChunks(CHUNKS, SLOTS) + 1;
const ROUNDS = 3;

const folder = mkdtempSync(path.join(os.tmpdir(), 'holdfast-'));
afterAll(() => rmSync(folder, { recursive: true }));

const FILES: readonly [string, () => Promise<BlockFile>][] = Object.entries({
  memory: async () => new MemoryBlockFile('/tier', BLOCKS * BYTES),
  disk: () => headlessHost().openBlockFile(folder, BLOCKS * BYTES),
});

const value = (chunk: number, version: number) =>
  new Uint8Array(new Uint32Array(BYTES / 4).map((_, i) => chunk * 2 ** 24 + version * 2 ** 16 + i).buffer);

/** Every round reads all chunks ahead and puts them in groups; returns the errors on the way. */
async function scenario(file: FaultyFile): Promise<{ errors: unknown[]; lost: number[] }> {
  const errors: unknown[] = [];
  const report = (error: unknown) => {
    errors.push(error);
  };
  const backing = new Backing({ chunks: CHUNKS, chunkBytes: BYTES, hostLimit: SLOTS * BYTES, disk: file });
  const held = new Map<number, Uint8Array>();
  const fetchAll = async (chunks: number[], onError: (error: unknown, chunk: number) => void) => {
    const one = (chunk: number) =>
      backing.fetch(chunk).then(
        (bytes) => expect(Buffer.compare(bytes, entry(held, chunk)), `chunk ${chunk}`).toBe(0),
        (error) => onError(error, chunk),
      );
    await Promise.all(chunks.filter((chunk) => held.has(chunk)).map(one));
  };
  for (let round = 0; round < ROUNDS; round++) {
    for (const group of [[0, 1, 2], [3], [4, 5, 6]]) {
      const [first] = leading(1, group);
      backing.setOrder((chunk) => (chunk - first + CHUNKS) % CHUNKS);
      for (const chunk of group) backing.prefetch((chunk + 1) % CHUNKS);
      await fetchAll(group, report);
      const entries = group.map((chunk) => ({ chunk, bytes: value(chunk, round) }));
      await backing.putAll(entries).then(() => {
        for (const { chunk, bytes } of entries) held.set(chunk, bytes);
      }, report);
      backing.check();
    }
  }
  await fetchAll([...held.keys()], report);
  // With a disk that is well again, only what it damaged is gone.
  file.heal();
  const lost: number[] = [];
  for (const chunk of held.keys()) {
    await fetchAll([chunk], (error, bad) => {
      errors.push(error);
      lost.push(bad);
    });
  }
  backing.check();
  await backing.close();
  return { errors, lost };
}

describe.each(FILES)('in %s, a scenario with one fault', (_, makeFile) => {
  it.each(Object.entries(FAULTS))('%s: %s, brings correct data or a clear error', async (name) => {
    const fault = name as Fault;
    let n = 0;
    let failures = 0;
    for (let fired = true; fired; n++) {
      const file = new FaultyFile(await makeFile(), fault, n);
      const { errors, lost } = await scenario(file);
      fired = file.fired;
      const run = `${fault} at ${n}`;
      for (const error of errors) {
        expect(error, run).toBeInstanceOf(HoldfastError);
        const { message } = error as HoldfastError;
        expect(message, run).toContain(file.path);
        expect(message, run).toMatch(/chunk \d+ \(block \d+ of /);
        expect(message, run).toMatch(MESSAGES[fault]);
      }
      // Damage on the disk is at most the block that was meant and the one that was hit.
      expect(lost.length, run).toBeLessThanOrEqual(fault === 'astray' ? 2 : fault === 'flipped' ? 1 : 0);
      failures += Math.min(1, errors.length);
      if (!fired) expect(errors, run).toEqual([]);
    }
    expect(n).toBeGreaterThan(20);
    if (fault === 'short') expect(failures).toBe(0);
    else expect(failures).toBeGreaterThan(n / 4);
  });
});

const MESSAGES: Record<Fault, RegExp> = {
  short: /never/,
  stuck: /took 2048 of 4096 bytes; make space|gave 2048 of 4096 bytes/,
  full: /the disk is full; make space on it or choose another folder/,
  broken: /EIO: i\/o error; check that disk/,
  flipped: /came back damaged \(checksum mismatch\); check that disk/,
  astray: /came back damaged \(checksum mismatch\); check that disk/,
};
