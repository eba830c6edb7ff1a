// Checkpoints through a loss of power: on a disk that may lose whatever was not synced, wherever it happens, the newest
// checkpoint that was reported as saved is found whole, or a later one; and nothing is left for good.

import { describe, expect, test } from 'vitest';
import { checkpointsOf, loadCheckpoint, saveCheckpoint } from '../../src/formats/checkpoint.ts';
import { HoldfastError } from '../../src/util/errors.ts';
import { Random } from '../../src/util/random.ts';
import { EVERY_CASE } from '../host.ts';
import { expectTiny, stepOf, tinyCheckpoint } from './checkpoints.ts';
import { LossyDisk } from './lossy-disk.ts';

/** Steps saved one after the other; the fourth on the third is a run that is resumed at its end. */
const STEPS = [3, 4, 4, 5, 6];
/** What the disk keeps of what is not synced: nothing, all, or any part, drawn anew. */
const DRAWS = EVERY_CASE ? 60 : 6;
const fates = (cut: number): (() => boolean)[] => {
  const random = new Random(cut, 'power');
  const drawn = Array.from({ length: DRAWS }, () => () => random.uniform() < 0.5);
  return [() => false, () => true, ...drawn];
};

/** Saves until the power goes; the last step that was reported as saved. */
async function saveUntilCut(disk: LossyDisk, steps: readonly number[]): Promise<number> {
  let reported = 0;
  for (const step of steps) {
    try {
      await saveCheckpoint(disk, 'runs/run', step, tinyCheckpoint(step));
      reported = step;
    } catch (error) {
      if (!disk.cut) throw error;
      return reported;
    }
  }
  return reported;
}

/** That it goes on from what was reported or later, and that the next save leaves two checkpoints and nothing else. */
async function expectGoesOn(disk: LossyDisk, reported: number): Promise<void> {
  const found = await checkpointsOf(disk, 'runs/run');
  const newest = found.at(-1);
  expect(newest?.step ?? 0, 'the newest checkpoint').toBeGreaterThanOrEqual(reported);
  for (const { step, path } of found) await expectTiny(disk, step, path);
  await saveCheckpoint(disk, 'runs/run', 7, tinyCheckpoint(7));
  expect(stepOf(await loadCheckpoint(disk, 'runs/run'))).toBe(7);
  const expected = newest ? [newest.path, 'runs/run/checkpoint-7'] : ['runs/run/checkpoint-7'];
  expect((await disk.list('runs/run')).map((name) => `runs/run/${name}`)).toEqual(expected);
}

describe('the model of a disk', () => {
  test('keeps what is synced, and may lose anything else', async () => {
    const disk = new LossyDisk();
    await disk.makeFolder('a');
    await disk.writeAtomic('a/synced', 'old');
    await disk.syncFolder('a');
    await disk.writeAtomic('a/synced', 'new');
    await disk.writeAtomic('a/unsynced', 'text');
    await disk.rename('a/unsynced', 'a/moved');
    const names = async (fate: () => boolean) => (await disk.afterPowerLoss(fate)).list('a');
    expect(await names(() => false)).toEqual(['synced']);
    expect(await names(() => true)).toEqual(['moved', 'synced']);
    const textOf = async (fate: () => boolean) =>
      new TextDecoder().decode(await disk.afterPowerLoss(fate).read('a/synced'));
    expect(await textOf(() => false)).toBe('old');
    expect(await textOf(() => true)).toBe('new');
  });

  test('loses the bytes of a file that is not flushed, whose name it keeps', async () => {
    const disk = new LossyDisk();
    await disk.makeFolder('a');
    const stream = await disk.writeStream('a/x');
    await stream.write(new Uint8Array(8).fill(1));
    await disk.syncFolder('a');
    expect(await disk.afterPowerLoss(() => false).read('a/x.partial')).toHaveLength(0);
  });
});

test('wherever the power goes, the newest checkpoint that was saved is found, or a later one', async () => {
  let reportedAtEnd = 0;
  for (let cut = 1; reportedAtEnd === 0; cut++) {
    const disk = new LossyDisk(cut);
    const reported = await saveUntilCut(disk, STEPS);
    if (!disk.cut) reportedAtEnd = reported;
    for (const fate of fates(cut)) await expectGoesOn(disk.afterPowerLoss(fate), reported);
  }
  expect(reportedAtEnd).toBe(6);
});

test('the same where the process had been killed before, and the next one saves', async () => {
  const whole = new LossyDisk();
  await saveUntilCut(whole, STEPS.slice(0, 3));
  const last = whole.changes;
  const first = new LossyDisk();
  await saveUntilCut(first, STEPS.slice(0, 2));
  const every = EVERY_CASE ? 1 : 3;
  // The last of three saves is killed anywhere; what it wrote is there, unsynced. The next is cut off anywhere.
  for (let kill = first.changes + 1; kill <= last; kill += every) {
    for (let cut = 1; ; cut += every) {
      const disk = new LossyDisk(kill);
      const reported = await saveUntilCut(disk, STEPS.slice(0, 3));
      disk.goOn(cut);
      const later = await saveUntilCut(disk, [5]);
      if (later === 0 && !disk.cut) throw new HoldfastError('the save neither failed nor ended');
      for (const fate of fates(cut).slice(0, EVERY_CASE ? 8 : 3))
        await expectGoesOn(disk.afterPowerLoss(fate), Math.max(reported, later));
      if (!disk.cut) break;
    }
  }
});
