// Readers of a run that goes on: whatever its saves replace meanwhile, one whole checkpoint is read, or the error says
// that it has gone.

import { mkdtempSync, rmSync } from 'node:fs';
import os from 'node:os';
import path from 'node:path';
import { expect, test } from 'vitest';
import { loadCheckpoint, loadWeights, saveCheckpoint, withWeights } from '../../src/formats/checkpoint.ts';
import { headlessHost } from '../../src/runtime/headless.ts';
import type { Files } from '../../src/runtime/host.ts';
import { at } from '../../src/util/at.ts';
import { collect, type TensorSource } from '../../src/util/tensor-source.ts';
import { entry } from '../entry.ts';
import { MemoryFiles } from '../memory-files.ts';
import { stepOf, tinyCheckpoint } from './checkpoints.ts';

const save = (files: Files, step: number) => saveCheckpoint(files, 'run', step, tinyCheckpoint(step));

const valuesIn = async (source: TensorSource): Promise<number[]> => [...entry(await collect(source), 'ln_f.bias')];

/** The step whose weights these are: all of one. */
function stepOfWeights(values: readonly number[]): number {
  expect(new Set(values).size).toBe(1);
  return at(values, 0) / 10;
}

const READS = ['read', 'readRange', 'stat', 'list', 'open'] as const;

/** The same files; before its `at`th look at them, `meanwhile` happens. */
function interrupted(files: MemoryFiles, at: number, meanwhile: () => Promise<void>): MemoryFiles & { looks: number } {
  const reader = Object.assign(Object.create(files) as MemoryFiles, { looks: 0 });
  for (const name of READS) {
    const look = files[name].bind(files) as (...args: unknown[]) => Promise<unknown>;
    Object.assign(reader, {
      [name]: async (...args: unknown[]) => {
        if (++reader.looks === at) await meanwhile();
        return look(...args);
      },
    });
  }
  return reader;
}

const readers = {
  withWeights: (files: Files) => withWeights(files, 'run', ({ weights }) => valuesIn(weights)).then(stepOfWeights),
  'loadWeights and read': async (files: Files) =>
    stepOfWeights(await valuesIn((await loadWeights(files, 'run')).weights)),
  loadCheckpoint: async (files: Files) => stepOf(await loadCheckpoint(files, 'run')),
};

/** What a run does between two looks of a reader. */
const saves = Object.entries({
  'one save': [3],
  'two saves': [3, 4],
  'six saves': [3, 4, 5, 6, 7, 8],
  'the same step again': [2],
  'the same step twice, and one more': [2, 2, 3],
});

test.each(
  Object.entries(readers).flatMap(([name, read]) => saves.map(([what, steps]) => ({ name, read, what, steps }))),
)('$name, with $what at any moment', async ({ name, read, steps }) => {
  for (let look = 1; ; look++) {
    const files = new MemoryFiles();
    await save(files, 1);
    await save(files, 2);
    const reader = interrupted(files, look, async () => {
      for (const step of steps) await save(files, step);
    });
    const found = await read(reader).catch((error) => {
      // Sources that are read later, file by file: two saves take their checkpoint away, and they say so.
      expect(name).toBe('loadWeights and read');
      expect(steps.length).toBeGreaterThan(1);
      expect(error.message).toMatch(/^run\/checkpoint-2: was removed while it was read/);
      return 2;
    });
    expect([2, steps.at(-1)]).toContain(found);
    if (reader.looks < look) return expect(look).toBeGreaterThan(10);
  }
});

test('a reader in a loop beside a run that saves every step, on a disk', async () => {
  const folder = mkdtempSync(path.join(os.tmpdir(), 'holdfast-living-'));
  const { files } = headlessHost();
  const run = path.join(folder, 'run');
  let step = 1;
  let over = false;
  try {
    await saveCheckpoint(files, run, step, tinyCheckpoint(step));
    const writer = (async () => {
      while (!over) await saveCheckpoint(files, run, step + 1, tinyCheckpoint(++step));
    })();
    writer.catch(() => {});
    const seen = new Set<number>();
    for (let i = 0; i < 40; i++) {
      const newest = step - 1;
      const found = await withWeights(files, run, async ({ weights }) => {
        // Meanwhile its run saves twice and more.
        for (const now = step; step < now + 3 && i % 4 === 0; ) await new Promise(setImmediate);
        return stepOfWeights(await valuesIn(weights));
      });
      expect(found).toBeGreaterThanOrEqual(newest);
      expect(stepOf(await loadCheckpoint(files, run))).toBeGreaterThanOrEqual(found);
      seen.add(found);
    }
    over = true;
    await writer;
    expect(seen.size).toBeGreaterThan(5);
  } finally {
    over = true;
    rmSync(folder, { recursive: true, force: true });
  }
});

test('a reader of a checkpoint whose run is removed names it', async () => {
  const files = new MemoryFiles();
  await save(files, 1);
  const { weights } = await loadWeights(files, 'run');
  await files.remove('run');
  await expect(valuesIn(weights)).rejects.toThrow('run/checkpoint-1: was removed while it was read');
  expect(await files.stat('run')).toBeUndefined();
});
