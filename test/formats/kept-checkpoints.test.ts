// Which folder a name stands for, and which checkpoints stay: whole ones of Holdfast's, the newest and the one before;
// never one of another program's in place of the model beside it, and nothing of another's removed.

import { describe, expect, test } from 'vitest';
import { checkpointsOf, findModel, loadCheckpoint, loadWeights, saveCheckpoint } from '../../src/formats/checkpoint.ts';
import { serialize } from '../../src/formats/safetensors.ts';
import { collect } from '../../src/values/tensor-source.ts';
import { asEarlierVersion } from '../earlier-checkpoint.ts';
import { entry } from '../entry.ts';
import { MemoryFiles } from '../memory-files.ts';
import { checkpoint, config, expectWhole, shapes, valuesOf } from './checkpoints.ts';

/** The files of a model below `folder`, with the weights of a step. */
const model = (folder: string, step: number): Record<string, string | Uint8Array> => ({
  [`${folder}/config.json`]: JSON.stringify(config),
  [`${folder}/model.safetensors`]: serialize(
    [...valuesOf(0, step)].map(([name, data]) => [`transformer.${name}`, { shape: entry(shapes, name), data }]),
    { format: 'pt' },
  ),
});

/** What Hugging Face's Trainer leaves behind. */
const trainerOutput = {
  ...model('out', 9),
  ...model('out/checkpoint-500', 5),
  'out/checkpoint-500/trainer_state.json': '{"epoch": 1.0, "global_step": 500, "log_history": []}',
  'out/checkpoint-500/optimizer.pt': 'PK',
};

const stepIn = async (files: MemoryFiles, folder: string): Promise<number> => {
  const values = entry(await collect((await loadWeights(files, folder)).weights), 'wte.weight');
  return Math.round((values[0] ?? 0) / 10);
};

describe('a name stands for', () => {
  test('the model in the folder of a Hugging Face Trainer, not an earlier checkpoint in it', async () => {
    const files = new MemoryFiles(trainerOutput);
    expect(await stepIn(files, 'out')).toBe(9);
    expect(await stepIn(files, 'out/checkpoint-500')).toBe(5);
    expect(await checkpointsOf(files, 'out')).toEqual([]);
    expect(await findModel(files, 'out')).toEqual({ config, from: 'out' });
  });

  test('the latest of its checkpoints, where the folder holds no model', async () => {
    const files = new MemoryFiles({ ...model('out/checkpoint-60', 6), ...model('out/checkpoint-500', 5) });
    expect(await stepIn(files, 'out')).toBe(5);
    expect(await findModel(files, 'out')).toEqual({ config, from: 'out/checkpoint-500' });
  });

  test('the checkpoint of a run that lies in the folder of its model', async () => {
    const files = new MemoryFiles(trainerOutput);
    await saveCheckpoint(files, 'out', 3, checkpoint(3));
    expect(await stepIn(files, 'out')).toBe(3);
    await expectWhole(files, 3, 'out');
    await saveCheckpoint(files, 'out', 4, checkpoint(4));
    await saveCheckpoint(files, 'out', 5, checkpoint(5));
    expect(await checkpointsOf(files, 'out')).toMatchObject([{ step: 4 }, { step: 5 }]);
    for (const [path, content] of Object.entries(trainerOutput))
      expect(entry(files.contents, path)).toEqual(new MemoryFiles({ path: content }).contents.get('path'));
  });

  test('a model to start from: configuration and weights of one place, or a configuration alone', async () => {
    const files = new MemoryFiles({ 'c/config.json': JSON.stringify(config) });
    expect(await findModel(files, 'c')).toEqual({ config });
    await saveCheckpoint(files, 'run', 3, checkpoint(3));
    expect(await findModel(files, 'run')).toEqual({ config, storedAs: 'f32', from: 'run/checkpoint-3' });
    await expect(findModel(files, 'nowhere')).rejects.toThrow('nowhere: no such folder');
  });
});

test('the state in Hugging Face’s fields is not taken for a run’s, where that is gone, and the sums that name it', async () => {
  const files = new MemoryFiles();
  await saveCheckpoint(files, 'run', 3, checkpoint(3));
  for (const name of ['SHA256SUMS', 'holdfast_state.json']) await files.remove(`run/checkpoint-3/${name}`);
  await expect(loadCheckpoint(files, 'run/checkpoint-3')).rejects.toThrow(
    /trainer_state\.json: has no state of a run, nor is there a holdfast_state\.json beside it/,
  );
});

describe('a folder named like a checkpoint, without all of its files', () => {
  const names = [
    ...['config.json', 'model.safetensors', 'optimizer.safetensors'],
    ...['holdfast_state.json', 'trainer_state.json'],
  ];

  test('is none, does not shadow the one before, and is not kept in its place', async () => {
    const files = new MemoryFiles();
    await saveCheckpoint(files, 'run', 3, checkpoint(3));
    for (const missing of names) {
      const step = 999 + names.indexOf(missing);
      for (const name of names) {
        if (name === missing) continue;
        const bytes = await files.read(`run/checkpoint-3/${name}`);
        await files.writeAtomic(`run/checkpoint-${step}/${name}`, bytes);
      }
    }
    await files.makeFolder('run/checkpoint-2000');
    await expectWhole(files, 3);
    for (const step of [4, 5]) await saveCheckpoint(files, 'run', step, checkpoint(step));
    await expectWhole(files, 5);
    expect((await files.list('run')).filter((name) => /-\d$/.test(name))).toEqual(['checkpoint-4', 'checkpoint-5']);
    expect(await files.list('run')).toContain('checkpoint-2000');
  });

  test('is none where its one state is another program’s, and stays', async () => {
    const files = new MemoryFiles();
    await saveCheckpoint(files, 'run', 3, checkpoint(3));
    const bytes = await files.read('run/checkpoint-3/optimizer.safetensors');
    const foreign = { ...model('run/checkpoint-9', 9), 'run/checkpoint-9/optimizer.safetensors': bytes };
    for (const [path, content] of Object.entries(foreign)) await files.writeAtomic(path, content);
    await files.writeAtomic('run/checkpoint-9/trainer_state.json', '{"epoch": 1.0, "global_step": 9}');
    await expectWhole(files, 3);
    for (const step of [4, 5]) await saveCheckpoint(files, 'run', step, checkpoint(step));
    expect(await files.list('run')).toEqual(['checkpoint-4', 'checkpoint-5', 'checkpoint-9']);
  });

  test('steps aside where a checkpoint of its step is saved, with what is in it', async () => {
    const files = new MemoryFiles({ 'run/checkpoint-3/notes.txt': 'mine' });
    for (const step of [3, 4, 5]) await saveCheckpoint(files, 'run', step, checkpoint(step));
    expect(await files.list('run')).toEqual(['checkpoint-3.incomplete-1', 'checkpoint-4', 'checkpoint-5']);
    expect(new TextDecoder().decode(await files.read('run/checkpoint-3.incomplete-1/notes.txt'))).toBe('mine');
  });
});

describe('of the checkpoints of a run', () => {
  const stepsOf = async (files: MemoryFiles) => (await checkpointsOf(files, 'run')).map(({ step }) => step);

  test('those of an earlier version, whose states are in one file, are as any other', async () => {
    const files = new MemoryFiles();
    for (const step of [1, 2]) {
      await saveCheckpoint(files, 'run', step, checkpoint(step));
      await asEarlierVersion(files, `run/checkpoint-${step}`);
    }
    await expectWhole(files, 2);
    await saveCheckpoint(files, 'run', 3, checkpoint(3));
    expect(await stepsOf(files)).toEqual([2, 3]);
    await expectWhole(files, 2, 'run/checkpoint-2');
    await saveCheckpoint(files, 'run', 4, checkpoint(4));
    expect(await stepsOf(files)).toEqual([3, 4]);
    await expectWhole(files, 4);
  });

  test('the newest and the one before are kept', async () => {
    const files = new MemoryFiles();
    const kept: number[][] = [];
    for (const step of [1, 2, 5, 5, 9]) {
      await saveCheckpoint(files, 'run', step, checkpoint(step));
      kept.push(await stepsOf(files));
    }
    expect(kept).toEqual([[1], [1, 2], [2, 5], [2, 5], [5, 9]]);
    expect(await files.list('run')).toEqual(['checkpoint-5', 'checkpoint-9']);
    for (const step of [5, 9]) await expectWhole(files, step, `run/checkpoint-${step}`);
  });

  test('the newest two, and the best', async () => {
    const files = new MemoryFiles();
    const kept: number[][] = [];
    for (const [step, best] of [[1], [2, 2], [3, 2], [4, 2], [5, 5], [6, 5], [7, 5], [8, 1]] as const) {
      const path = best === undefined ? undefined : `run/checkpoint-${best}`;
      await saveCheckpoint(files, 'run', step, checkpoint(step), { best: path });
      kept.push(await stepsOf(files));
    }
    expect(kept).toEqual([[1], [1, 2], [2, 3], [2, 3, 4], [4, 5], [5, 6], [5, 6, 7], [7, 8]]);
  });

  test('those of a run that was there before, with later steps, go', async () => {
    const files = new MemoryFiles();
    for (const step of [3, 80]) await saveCheckpoint(files, 'run', step, checkpoint(step));
    await saveCheckpoint(files, 'run', 10, checkpoint(10));
    await expectWhole(files, 10);
    expect(await stepsOf(files)).toEqual([3, 10]);
  });
});
