// Folders that are written for others, a model and a tokenizer: wherever the disk fails or the power goes, one is there whole or
// not at all, and one that was reported is there.

import { describe, expect, test } from 'vitest';
import { writeTokenizer } from '../../src/data/train-bpe.ts';
import { saveCheckpoint, withWeights } from '../../src/formats/checkpoint.ts';
import { exportModel } from '../../src/formats/export.ts';
import type { Files } from '../../src/runtime/host.ts';
import { Random } from '../../src/util/random.ts';
import { MemoryFiles } from '../memory-files.ts';
import { checkpoint } from './checkpoints.ts';
import { FaultyFiles } from './faulty-files.ts';
import { LossyDisk } from './lossy-disk.ts';

const source = new MemoryFiles();
await saveCheckpoint(source, 'run', 1, checkpoint(1));

const OUT = 'for others/out';
const TOKENIZER = { 'tokenizer.json': '{"model": {}}', 'tokenizer_config.json': '{"special": "<|endoftext|>"}' };

const ways: Record<string, (files: Files) => Promise<unknown>> = {
  'a model': (files) =>
    withWeights(source, 'run', (weights, found) =>
      exportModel(files, OUT, { weights, ...found }, { dtype: 'bf16', maxShardBytes: 700 }),
    ),
  'a tokenizer': (files) => writeTokenizer(files, OUT, TOKENIZER),
};

/** What is in a folder, by names; undefined where there is none. */
async function contentOf(files: Files): Promise<Record<string, string> | undefined> {
  if (!(await files.stat(OUT))) return undefined;
  const named = (await files.list(OUT)).map(
    async (name) => [name, Buffer.from(await files.read(`${OUT}/${name}`)).toString('latin1')] as const,
  );
  return Object.fromEntries(await Promise.all(named));
}

describe.each(Object.keys(ways))('%s', (what) => {
  const write = ways[what] as (files: Files) => Promise<unknown>;

  test('is there whole or not at all, wherever the power goes', async () => {
    const whole = new MemoryFiles();
    await write(whole);
    const expected = await contentOf(whole);
    expect(Object.keys(expected ?? {}).length).toBeGreaterThan(1);
    for (let cut = 1; ; cut++) {
      const disk = new LossyDisk(cut);
      const reported = await write(disk).then(
        () => true,
        () => false,
      );
      expect(reported).toBe(!disk.cut);
      const random = new Random(cut, 'power');
      for (const kept of [() => false, () => true, () => random.uniform() < 0.5]) {
        const found = await contentOf(disk.afterPowerLoss(kept));
        if (reported || found) expect(found, `cut off at change ${cut}`).toEqual(expected);
      }
      if (reported) return expect(cut).toBeGreaterThan(6);
    }
  });

  test('leaves nothing of it where the disk fails, and can be written again', async () => {
    for (let failAt = 1; ; failAt++) {
      const files = new FaultyFiles();
      files.failAt = failAt;
      const failed = await write(files).then(
        () => false,
        () => true,
      );
      if (!failed) return expect(failAt).toBeGreaterThan(6);
      expect([...files.contents.keys()], `change ${failAt}`).toEqual([]);
      await write(files);
    }
  });
});
