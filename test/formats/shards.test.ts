// Checkpoints that several processes write together: they are read as one that a single process wrote, by our readers and by
// another; and whatever fails in whichever of them, the one before is still there, and nothing half written counts.

import { mkdtempSync, rmSync } from 'node:fs';
import os from 'node:os';
import path from 'node:path';
import fc from 'fast-check';
import { afterAll, describe, expect, test } from 'vitest';
import { importCheckpoint } from '../../src/browser/import.ts';
import {
  checkpointsOf,
  loadCheckpoint,
  loadWeights,
  saveCheckpoint,
  type Writers,
  withWeights,
} from '../../src/formats/checkpoint.ts';
import { headlessHost } from '../../src/runtime/headless.ts';
import type { Files } from '../../src/runtime/host.ts';
import { at } from '../../src/util/at.ts';
import { HoldfastError } from '../../src/util/errors.ts';
import { collect } from '../../src/values/tensor-source.ts';
import { entry } from '../entry.ts';
import { EVERY_CASE } from '../host.ts';
import { MemoryFiles, memoryHost } from '../memory-files.ts';
import { RUN, STEPS, savedRun } from '../saved-run.ts';
import { checkpoint, expectWhole, shapes, stepOf, tinyCheckpoint, valuesOf } from './checkpoints.ts';
import { FaultyFiles } from './faulty-files.ts';
import { hasPython, readByPython } from './python-reader.ts';
import { writersOf } from './writers.ts';

const NAMES = [...shapes.keys()];

const inTurn = (size: number) => writersOf(size, (name) => NAMES.indexOf(name) % size);

/** All of them save a step; what the first to end says. */
const save = (files: (rank: number) => Files, step: number, writers: readonly Writers[], made = checkpoint) =>
  writers.map((each) => saveCheckpoint(files(each.rank), 'run', step, made(step), { writers: each }));

describe('shards', () => {
  test('in any number, dealt out in any way, are the checkpoint of one process', async () => {
    const cases = fc.integer({ min: 1, max: 5 }).chain((size) =>
      fc.record({
        size: fc.constant(size),
        ranks: fc.array(fc.nat(size - 1), { minLength: NAMES.length, maxLength: NAMES.length }),
      }),
    );
    await fc.assert(
      fc.asyncProperty(cases, async ({ size, ranks }) => {
        const files = new MemoryFiles();
        const writers = writersOf(size, (name) => at(ranks, NAMES.indexOf(name)));
        const paths = await Promise.all(save(() => files, 3, writers));
        expect(new Set(paths)).toEqual(new Set(['run/checkpoint-3']));
        await expectWhole(files, 3);
        expect(await checkpointsOf(files, 'run')).toHaveLength(1);
        expect(await withWeights(files, 'run', ({ weights }) => collect(weights))).toEqual(valuesOf(0, 3));
        const parts = String(new Set(ranks).size).padStart(5, '0');
        const names = await files.list('run/checkpoint-3');
        expect(names.filter((name) => name.endsWith(`-of-${parts}.safetensors`))).toHaveLength(2 * Number(parts));
        expect(names).toHaveLength(2 * Number(parts) + 6);
      }),
      { seed: 15, numRuns: EVERY_CASE ? 100 : 4 },
    );
  });

  test('take the place of one file, and one file theirs, step by step', async () => {
    const files = new MemoryFiles();
    await saveCheckpoint(files, 'run', 3, checkpoint(3));
    await Promise.all(save(() => files, 4, inTurn(3)));
    await Promise.all(save(() => files, 5, inTurn(2)));
    expect(await files.list('run')).toEqual(['checkpoint-4', 'checkpoint-5']);
    await expectWhole(files, 4, 'run/checkpoint-4');
    await expectWhole(files, 5);
    // The same step again.
    await saveCheckpoint(files, 'run', 5, checkpoint(5));
    await expectWhole(files, 5);
    expect(await files.list('run/checkpoint-5')).toContain('model.safetensors');
  });

  test('of which one is missing are no checkpoint, and one before is resumed from', async () => {
    const files = new MemoryFiles();
    await Promise.all(save(() => files, 3, inTurn(3)));
    await Promise.all(save(() => files, 4, inTurn(3)));
    await files.remove('run/checkpoint-4/optimizer-00002-of-00003.safetensors');
    expect(await checkpointsOf(files, 'run')).toEqual([{ step: 3, path: 'run/checkpoint-3' }]);
    await expectWhole(files, 3);
  });

  const SHARDED = ['00001-of-00002.safetensors', '00002-of-00002.safetensors'];
  const FILES = ['model', 'optimizer'].flatMap((stem) => [
    ...SHARDED.map((end) => `${stem}-${end}`),
    `${stem}.safetensors.index.json`,
  ]);
  test.each([...FILES, 'config.json', 'holdfast_state.json', 'trainer_state.json', 'SHA256SUMS'])(
    'a bit of %s that is another is found',
    async (name) => {
      const files = new MemoryFiles();
      await Promise.all(save(() => files, 1, inTurn(2)));
      const bytes = entry(files.contents, `run/checkpoint-1/${name}`);
      for (const place of [0, bytes.length >> 1, bytes.length - 2]) {
        bytes[place]! ^= 4;
        await expect(loadCheckpoint(files, 'run')).rejects.toThrow(name);
        bytes[place]! ^= 4;
      }
      await expectWhole(files, 1);
    },
  );

  test('beside a file that stands for them: it would be read, so that it is checked', async () => {
    const files = new MemoryFiles();
    await Promise.all(save(() => files, 1, inTurn(2)));
    const folder = 'run/checkpoint-1';
    files.contents.set(
      `${folder}/model.safetensors`,
      entry(files.contents, `${folder}/model-00001-of-00002.safetensors`),
    );
    await expect(loadWeights(files, folder)).rejects.toThrow(`${folder}/model.safetensors: its SHA-256 is not the one`);
  });

  test('are brought to a page, all of them and no others, to go on from', async () => {
    const { files } = await savedRun();
    const { adapter: _, ...loaded } = await loadCheckpoint(files, RUN);
    const writers = writersOf(2, (name) => Number(name.startsWith('h.0')));
    await Promise.all(writers.map((each) => saveCheckpoint(files, 'sharded', STEPS, loaded, { writers: each })));
    const folder = `sharded/checkpoint-${STEPS}`;
    const chosen = async (without = '') =>
      (await files.list(folder))
        .filter((name) => name !== without)
        .map((name) => {
          const bytes = entry(files.contents, `${folder}/${name}`);
          return { name, bytes: bytes.length, open: () => new Blob([bytes]).stream() };
        });
    const into = new MemoryFiles();
    const foreign = { name: 'other.safetensors', bytes: 1, open: () => new Blob(['x']).stream() };
    const found = await importCheckpoint(memoryHost(into), 'imported', { files: [...(await chosen()), foreign] });
    expect(found.savedStep).toBe(STEPS);
    expect(await into.list(`imported/checkpoint-${STEPS}`)).toEqual(await files.list(folder));
    const imported = await loadCheckpoint(into, 'imported');
    expect(await collect(imported.moment2)).toEqual(await collect(loaded.moment2));
    const incomplete = importCheckpoint(memoryHost(new MemoryFiles()), 'imported', {
      files: await chosen('model-00001-of-00002.safetensors'),
    });
    await expect(incomplete).rejects.toThrow('model-00001-of-00002.safetensors is missing');
  });

  test('that the others have written elsewhere are named', async () => {
    const [here, there] = [new MemoryFiles(), new MemoryFiles()];
    const both = save((rank) => (rank === 0 ? here : there), 1, inTurn(2));
    await expect(both[0]).rejects.toThrow('-00002-of-00002.safetensors: rank 1 has written it, and it is not here');
    expect(await here.list('run')).toEqual([]);
  });
});

describe('a save of several that fails', () => {
  const last = async (files: FaultyFiles) => {
    files.failAt = Number.POSITIVE_INFINITY;
    for (const { path } of await checkpointsOf(files, 'run')) await loadCheckpoint(files, path);
    return stepOf(await loadCheckpoint(files, 'run'));
  };
  const cases = [
    ['once', false],
    ['for good', true],
  ] as const;
  // On one disk for all: the n-th change of any of them fails.
  test.each(cases)('%s, at any change of the disk, by any of them: the last one is whole', async (_, gone) => {
    for (let failAt = 1; ; failAt += EVERY_CASE ? 1 : 4) {
      const files = new FaultyFiles();
      await Promise.all(save(() => files, 3, inTurn(2), tinyCheckpoint));
      Object.assign(files, { changes: 0, failAt, gone });
      const deal = writersOf(2, () => failAt % 2);
      const all = save(() => files, 4, deal, tinyCheckpoint);
      for (const each of all) each.catch(() => {});
      const failed = await Promise.race([
        Promise.all(all).then(() => false),
        ...all.map((each) =>
          each.then(
            () => new Promise<never>(() => {}),
            () => true,
          ),
        ),
      ]);
      const survived = files.changes < failAt;
      const newest = await last(files);
      if (!failed) expect(newest).toBe(4);
      else expect([3, 4]).toContain(newest);
      // Other ranks go on.
      await Promise.all(save(() => files, 6, inTurn(3), tinyCheckpoint));
      expect(await last(files)).toBe(6);
      expect(await files.list('run')).toHaveLength(2);
      if (survived) {
        expect(failed).toBe(false);
        expect(failAt).toBeGreaterThan(20);
        return;
      }
    }
  });

  test('ends with the reason of the one whose disk is full, and leaves nothing of it', async () => {
    const files = new MemoryFiles();
    await Promise.all(save(() => files, 3, inTurn(3)));
    const full = new Proxy(files, {
      get: (target, name) =>
        name === 'writeStream'
          ? () => Promise.reject(new HoldfastError('no space'))
          : (Reflect.get(target, name).bind?.(target) ?? Reflect.get(target, name)),
    });
    const all = save((rank) => (rank === 1 ? full : files), 4, inTurn(3));
    for (const each of all) each.catch(() => {});
    await expect(Promise.race(all)).rejects.toThrow('no space');
    expect(await Promise.race([all[0], all[2], Promise.resolve('still waiting')])).toBe('still waiting');
    expect(await files.list('run')).toEqual(['checkpoint-3']);
    await expectWhole(files, 3);
  });
});

const folder = mkdtempSync(path.join(os.tmpdir(), 'holdfast-shards-'));
afterAll(() => rmSync(folder, { recursive: true, force: true }));

test.skipIf(!hasPython)(
  'a reader in Python finds the values of all kinds (skipped where there is no python3)',
  async () => {
    const { files } = headlessHost();
    const writers = inTurn(3);
    await Promise.all(writers.map((each) => saveCheckpoint(files, folder, 2, checkpoint(2), { writers: each })));
    const run = path.join(folder, 'checkpoint-2');
    const expected = async (kind: number, prefix: string) => {
      const found: [string, unknown][] = [];
      for (const [name, floats] of valuesOf(kind, 2)) {
        const sum = await files.sha256();
        sum.update(new Uint8Array(floats.buffer));
        found.push([prefix + name, ['F32', shapes.get(name), sum.hex()]]);
      }
      return found;
    };
    expect(readByPython(run)).toEqual(Object.fromEntries(await expected(0, '')));
    expect(readByPython(run, 'optimizer.safetensors')).toEqual(
      Object.fromEntries([...(await expected(1, 'exp_avg.')), ...(await expected(2, 'exp_avg_sq.'))]),
    );
  },
);
