// Errors of a program's own handlers while a run trains: the run is saved first, as where it is aborted, and then rejects with that very
// error. What is gone on with afterwards has the bits of a run without them.

import { expect, test } from 'vitest';
import { checkpointsOf } from '../../src/formats/checkpoint.ts';
import { parseConfig } from '../../src/formats/config.ts';
import { trainRun } from '../../src/train/run/run.ts';
import type { RunOptions } from '../../src/train/run/run-events.ts';
import { defaultSettings } from '../../src/train/run/run-settings.ts';
import { savedState } from '../../src/train/run/saved-state.ts';
import { HoldfastError } from '../../src/util/errors.ts';
import { chooseVariants } from '../choose-variants.ts';
import { testDevice } from '../harness.ts';
import { MemoryFiles, memoryHost } from '../memory-files.ts';

chooseVariants(6);

const STEPS = 12;
const config = parseConfig(
  { model_type: 'gpt2', vocab_size: 256, n_positions: 8, n_embd: 16, n_layer: 1, n_head: 2 },
  'test',
);
const settings = defaultSettings({
  ...{ config, data: ['text.txt'], batch: 4, steps: STEPS, warmup: 0, sampleTokens: 2, evalWindows: 2 },
  ...{ evalEvery: 4, saveEvery: 8, sampleEvery: 3 },
});
const fresh = () => new MemoryFiles({ 'text.txt': 'hold fast, hold on; '.repeat(12) });
/** What was measured once: with other kernels, bits would be others. */
const cached = new Map<string, Uint8Array<ArrayBuffer>>();
async function start(files: MemoryFiles, options: RunOptions = {}) {
  for (const [path, bytes] of cached) files.contents.set(path, bytes);
  const device = await testDevice();
  try {
    return await trainRun(memoryHost(files), device, settings, 'run', options);
  } finally {
    for (const [path, bytes] of files.contents) if (path.startsWith('/cache/')) cached.set(path, bytes);
  }
}
const weightsOf = (files: MemoryFiles) => files.read(`run/checkpoint-${STEPS}/model.safetensors`);
const stepsSaved = async (files: MemoryFiles) => (await checkpointsOf(files, 'run')).map(({ step }) => step);

const mine = new TypeError('a chart has no such point');
const fail = (): never => {
  throw mine;
};
/** Throws at a step, and at each behind it. */
const from =
  (least: number) =>
  ({ step, global_step = step }: { step?: number | undefined; global_step?: number | undefined }) =>
    void ((global_step ?? 0) >= least && fail());

/** By what throws: its options, and the steps that are saved then at least and at most. */
const FAILING: Readonly<Record<string, [options: RunOptions, least: number, most: number]>> = {
  'events.step': [{ events: { step: from(4) } }, 5, 7],
  'events.step, later': [
    {
      events: {
        step: async (metrics) => {
          await Promise.resolve();
          from(4)(metrics);
        },
      },
    },
    ...([5, 8] as const),
  ],
  'events.validation': [{ events: { validation: fail } }, 4, 4],
  'events.sample': [{ events: { sample: fail } }, 3, 3],
  'events.saved': [{ events: { saved: fail } }, 8, 8],
  'a callback’s onStepBegin': [{ callbacks: [{ onStepBegin: from(4) }] }, 5, 6],
  'a callback’s onStepEnd': [{ callbacks: [{ onStepEnd: async (state) => from(5)(state) }] }, 5, 5],
  'a callback’s onEvaluate': [{ callbacks: [{ onEvaluate: fail }] }, 4, 4],
  'an intermission': [{ intermission: { wanted: true, run: async () => fail() } }, 0, 0],
  'an observer': [{ observer: { wanted: true, recorded: (step) => void (step === 5 && fail()) } }, 6, 8],
  'events.over': [{ events: { over: fail } }, STEPS, STEPS],
};

test.each(Object.entries(FAILING))('%s: what was trained is saved, and goes on', async (_, [options, least, most]) => {
  const [whole, files] = [fresh(), fresh()];
  await start(whole);
  const later: string[] = [];
  const callbacks = [...(options.callbacks ?? []), { onTrainEnd: () => void later.push('the end') }];
  await expect(start(files, { ...options, callbacks })).rejects.toBe(mine);
  expect(later).toEqual([]);
  const saved = (await stepsSaved(files)).at(-1);
  expect(saved).toBeGreaterThanOrEqual(least);
  expect(saved).toBeLessThanOrEqual(most);
  const { history } = await savedState(memoryHost(files), 'run');
  expect(history.steps.map(({ step }) => step)).toEqual([...Array(saved).keys()]);
  await start(files, { resume: true });
  expect(await weightsOf(files)).toEqual(await weightsOf(whole));
});

test.each<[string, RunOptions]>([
  ['events.ready', { events: { ready: fail } }],
  ['a callback’s onTrainBegin', { callbacks: [{ onTrainBegin: fail }] }],
])(
  '%s: before the first step there is nothing to save, and the folder is free for the next try',
  async (_, options) => {
    const files = fresh();
    await expect(start(files, options)).rejects.toBe(mine);
    expect(await stepsSaved(files)).toEqual([]);
  },
);

test('where it cannot be saved then, both are said', async () => {
  class FullFiles extends MemoryFiles {
    isFull = false;
    override async writeStream(path: string) {
      if (this.isFull) throw new HoldfastError(`${path}: the disk is full`);
      return super.writeStream(path);
    }
  }
  const files = new FullFiles(Object.fromEntries(fresh().contents));
  const step = () => {
    files.isFull = true;
    fail();
  };
  const error = await start(files, { events: { step } }).catch((problem: unknown) => problem);
  expect(error).toBeInstanceOf(HoldfastError);
  expect((error as Error).message).toMatch(
    /: the disk is full; step \d was not saved: .* \(the run ended by an error of the program’s: a chart has no such point\)$/,
  );
  expect((error as Error).cause).toBe(mine);
});
