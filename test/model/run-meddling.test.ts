// A run that is meddled with while it trains: saved from outside at any moment, its folder moved away. What is in its checkpoints stays whole.

import { expect, test } from 'vitest';
import { parseConfig } from '../../src/formats/config.ts';
import { FolderHeld } from '../../src/runtime/host.ts';
import { trainRun } from '../../src/train/run/run.ts';
import type { ReadyRun, RunOptions } from '../../src/train/run/run-events.ts';
import { defaultSettings } from '../../src/train/run/run-settings.ts';
import { savedState } from '../../src/train/run/saved-state.ts';
import { chooseVariants } from '../choose-variants.ts';
import { expectMistake } from '../expect-mistake.ts';
import { testDevice } from '../harness.ts';
import { MemoryFiles, memoryHost } from '../memory-files.ts';

chooseVariants(6);

const config = parseConfig(
  { model_type: 'gpt2', vocab_size: 256, n_positions: 8, n_embd: 16, n_layer: 1, n_head: 2 },
  'test',
);
const settings = defaultSettings({
  ...{ config, data: ['text.txt'], batch: 4, steps: 6, warmup: 0, sampleTokens: 0, evalWindows: 2 },
  ...{ evalEvery: 0, saveEvery: 2, sampleEvery: 0 },
});
const fresh = () => new MemoryFiles({ 'text.txt': 'hold fast, hold on; '.repeat(12) });
const start = async (files: MemoryFiles, options: RunOptions) =>
  trainRun(memoryHost(files), await testDevice(), settings, 'run', options);

test('it is saved, and its state read, between two steps alone, one save behind the other', async () => {
  const files = fresh();
  let ready: ReadyRun | undefined;
  const meddled: Promise<unknown>[] = [];
  const meddle = () =>
    void meddled.push(expectMistake(() => ready?.save(), /^a run is saved, and its state read, between two steps: /));
  const inside: Promise<unknown>[] = [];
  await start(files, {
    events: {
      ready(run) {
        ready = run;
        meddle();
      },
      step: meddle,
      saved: meddle,
    },
    intermission: {
      get wanted() {
        return ready?.trainer.step === 3 && inside.length === 0;
      },
      // None of it is waited for here.
      run: async () =>
        void inside.push(ready?.save() as Promise<void>, ready?.state() as never, ready?.save() as never),
    },
  });
  meddle();
  await expectMistake(() => ready?.state(), /^a run is saved/);
  await Promise.all(meddled);
  expect(meddled.length).toBeGreaterThan(6);
  expect(await Promise.all(inside)).toMatchObject([undefined, { trainer: { step: 3 } }, undefined]);
  expect((await savedState(memoryHost(files), 'run')).trainer.step).toBe(6);
});

test('behind a folder that was moved away it goes on in a new one, and not where another run has been saved', async () => {
  const files = fresh();
  const release = async () => {};
  let held = 0;
  const hold = async () => held++ !== 1;
  await start(files, {
    claim: { folder: 'run', hold, release },
    events: { saved: () => void (held === 1 && files.remove('run')) },
  });
  expect(held).toBe(3);
  expect((await files.list('run')).sort()).toEqual(['checkpoint-4', 'checkpoint-6']);

  held = 0;
  const before = await files.read('run/checkpoint-6/model.safetensors');
  const claim = { folder: 'run', hold: async () => false, release };
  const others = fresh();
  // Another run, from its beginning to its end.
  const ready = () => {
    for (const [path, bytes] of files.contents) if (path.startsWith('run/')) others.contents.set(path, bytes);
  };
  const error = await start(others, { claim, events: { ready } }).catch((thrown) => thrown);
  expect(error).toBeInstanceOf(FolderHeld);
  expect(error.message).toBe(
    "run: this run's folder was moved away or removed, and another with checkpoints is in its place; step 2 was not saved",
  );
  expect((await others.list('run')).sort()).toEqual(['checkpoint-4', 'checkpoint-6']);
  expect(await others.read('run/checkpoint-6/model.safetensors')).toEqual(before);
});
