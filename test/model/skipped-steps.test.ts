// Checkpoints of runs whose steps are skipped: none is of a skipped step, whatever saves it, and nothing is lost: weights and
// moments behind skipped steps are those from before them, and a run goes on from there to the same bits.

import { beforeAll, expect, test } from 'vitest';
import { parseConfig } from '../../src/formats/config.ts';
import { LARGEST_SCALE, SCALER } from '../../src/kernels/step-control.ts';
import type { TrainerCallback } from '../../src/train/run/callbacks.ts';
import { trainRun } from '../../src/train/run/run.ts';
import type { ReadyRun, RunEvents, RunOptions } from '../../src/train/run/run-events.ts';
import { defaultSettings, type RunSettings } from '../../src/train/run/run-settings.ts';
import { savedState } from '../../src/train/run/saved-state.ts';
import { chooseVariants } from '../choose-variants.ts';
import { testDevice } from '../harness.ts';
import { MemoryFiles, memoryHost } from '../memory-files.ts';

chooseVariants(6);

const TEXT = 'hold fast, hold on; '.repeat(12);
const config = parseConfig(
  { model_type: 'gpt2', vocab_size: 256, n_positions: 8, n_embd: 16, n_layer: 1, n_head: 2 },
  'test',
);
const settings = (changes: Partial<RunSettings> = {}) =>
  defaultSettings({
    ...{ config, data: ['text.txt'], batch: 4, steps: 14, warmup: 0, sampleTokens: 4, evalWindows: 2 },
    ...{ evalEvery: 0, saveEvery: 0, sampleEvery: 0, dtype: 'f16', seed: 3, ...changes },
  });
/** Steps before the scale of gradients is so large that they overflow. */
const BEFORE = 4;

class Run {
  readonly files = new MemoryFiles({ 'text.txt': TEXT });
  readonly skipped: boolean[] = [];
  readonly saved: number[] = [];
  ready: ReadyRun | undefined;

  /** As BEFORE says, unless it goes on from there or behind it. */
  async train(changes: Partial<RunSettings> = {}, { events, ...options }: RunOptions = {}) {
    for (const [path, bytes] of measured) this.files.contents.set(path, bytes);
    const overflowing: TrainerCallback = {
      onStepBegin: async () => {
        const trainer = this.ready?.trainer;
        if (trainer?.step !== BEFORE) return;
        const { step, control } = await trainer.state();
        control[SCALER.gradientScale] = LARGEST_SCALE;
        trainer.restore({ step, control });
      },
      onSave: (_, __, path) => void this.saved.push(Number(/\d+$/.exec(path)?.[0])),
    };
    const heard: RunEvents = {
      ...events,
      ready: (ready) => {
        this.ready = ready;
      },
      step: ({ skipped }) => void this.skipped.push(skipped),
    };
    const callbacks = [...(options.callbacks ?? []), overflowing];
    const all = { ...options, callbacks, events: heard };
    const summary = await trainRun(memoryHost(this.files), await testDevice(), settings(changes), 'run', all);
    for (const [path, bytes] of this.files.contents) if (path.startsWith('/cache/')) measured.set(path, bytes);
    return summary;
  }

  state() {
    return savedState(memoryHost(this.files), 'run');
  }

  async folders() {
    return (await this.files.list('run')).filter((name) => name.startsWith('checkpoint'));
  }

  /** All that is in the checkpoint, times apart. */
  async contents(step: number) {
    const read = (name: string) => this.files.read(`run/checkpoint-${step}/${name}`);
    const { history, ...state } = JSON.parse(new TextDecoder().decode(await read('holdfast_state.json')));
    const steps = history.steps.map(({ tokensPerSecond, ...figures }: Record<string, number>) => figures);
    return [state, { ...history, steps }, await read('model.safetensors'), await read('optimizer.safetensors')];
  }
}
/** What was measured once: with other kernels, bits would be others. */
const measured = new Map<string, Uint8Array<ArrayBuffer>>();

/** Left alone. */
let whole: Run;
/** Steps done behind the last skipped one. */
let after: number;
beforeAll(async () => {
  whole = new Run();
  await whole.train();
  after = whole.skipped.lastIndexOf(true) + 1;
});

test('a run whose gradients overflow skips steps in a row, and then none', () => {
  expect(after - BEFORE).toBeGreaterThanOrEqual(3);
  expect(after).toBeLessThan(BEFORE + 10);
  expect(whole.skipped).toEqual(whole.skipped.map((_, step) => step >= BEFORE && step < after));
  expect(whole.saved).toEqual([14]);
});

test('what is due in a streak is saved behind it', async () => {
  const run = new Run();
  await run.train({ saveEvery: 1 });
  expect(run.saved).toEqual([1, 2, 3, 4, ...Array.from({ length: 14 - after }, (_, i) => after + 1 + i)]);
  const contents = await run.contents(14);
  expect(contents.slice(1)).toEqual((await whole.contents(14)).slice(1));
});

test.each([
  [1, 'steps started ahead', {}],
  [2, 'steps started ahead', {}],
  [2, 'one after the other', { onStepEnd: () => {} }],
] as const)(
  'a run that ends %i steps into a streak (%s) is saved as before it, and goes on to the same bits',
  async (into, _, callback) => {
    const run = new Run();
    const summary = await run.train({}, { until: BEFORE + into, callbacks: [callback] });
    expect(summary).toMatchObject({ steps: BEFORE + into, checkpoint: `run/checkpoint-${BEFORE}` });
    expect(await run.folders()).toEqual([`checkpoint-${BEFORE}`]);
    const { trainer, history } = await run.state();
    expect(trainer.step).toBe(BEFORE);
    expect(history.steps.map(({ step }) => step)).toEqual([0, 1, 2, 3]);
    // Once more, and not at all.
    for (const until of [BEFORE + 2, BEFORE]) await run.train({}, { resume: true, until });
    expect(new Set(run.saved)).toEqual(new Set([BEFORE]));
    await run.train({}, { resume: true });
    expect(await run.contents(14)).toEqual(await whole.contents(14));
  },
);

test('updated inside the backward pass, a run that ends in a streak and goes on has the bits of the update at the end', async () => {
  const [early, late] = [new Run(), new Run()];
  const [inBackward, until] = [{ update: 'in-backward', clip: 0 } as const, BEFORE + 2];
  await early.train(inBackward, { until });
  expect(early.saved).toEqual([BEFORE]);
  await early.train(inBackward, { resume: true });
  await late.train({ clip: 0 });
  expect(early.skipped.filter(Boolean).length).toBeGreaterThan(2);
  expect((await early.contents(14)).slice(1)).toEqual((await late.contents(14)).slice(1));
});

test('a run whose last step is skipped is saved as before the streak, with all that it needs to go on', async () => {
  const [short, long] = [new Run(), new Run()];
  const summary = await short.train({ steps: BEFORE + 2, schedule: 'constant' });
  expect(summary).toMatchObject({ steps: BEFORE + 2, skippedSteps: 2, checkpoint: `run/checkpoint-${BEFORE}` });
  expect(await short.folders()).toEqual([`checkpoint-${BEFORE}`]);
  await long.train({ schedule: 'constant' });
  await short.train({ schedule: 'constant' }, { resume: true });
  expect((await short.contents(14)).slice(1)).toEqual((await long.contents(14)).slice(1));
});

test('a save between two steps, as of a pause, is of the run before the streak', async () => {
  const run = new Run();
  const stopped = new AbortController();
  const intermission = {
    get wanted() {
      return run.skipped.length >= BEFORE + 2;
    },
    async run() {
      for (let time = 0; time < 2; time++) await run.ready?.save();
      stopped.abort();
    },
  };
  await run.train({}, { intermission, signal: stopped.signal });
  expect(run.saved).toEqual([BEFORE]);
  await run.train({}, { resume: true });
  expect(await run.contents(14)).toEqual(await whole.contents(14));
});

test('the best validation, where it is in a streak, is that of the checkpoint before it', async () => {
  const [run, other] = [new Run(), new Run()];
  const best = { keepBest: true, evalEvery: BEFORE + 1 };
  await other.train(best);
  await run.train(best, { until: BEFORE + 2 });
  expect(run.saved).toEqual([BEFORE]);
  // It was found behind the step that is saved.
  expect((await run.state()).history.validations).toEqual([]);
  expect(other.saved[0]).toBe(BEFORE);
  await run.train(best, { resume: true });
  expect(await run.contents(14)).toEqual(await other.contents(14));
});
