// Settings of a run that are none, as a program may give them: refused before anything is made, and so never saved where a
// resume would refuse them.

import { expect, test } from 'vitest';
import { resumedRecord } from '../../src/browser/run-records.ts';
import type { Device } from '../../src/gpu/device.ts';
import type { BrowserHost } from '../../src/runtime/browser.ts';
import { trainerCallback } from '../../src/train/run/callbacks.ts';
import { trainRun } from '../../src/train/run/run.ts';
import { defaultSettings, keptSettings, type RunSettings } from '../../src/train/run/run-settings.ts';
import { check } from '../../src/util/json.ts';
import { expectMistake } from '../expect-mistake.ts';
import { MemoryFiles, memoryHost } from '../memory-files.ts';
import { RUN, SETTINGS, STEPS, savedRun } from '../saved-run.ts';

/** Nothing of it may be asked for. */
const none = new Proxy({} as Device, {
  get: (_, name) => {
    throw new Error(`a device: ${String(name)}`);
  },
});

test.each<[object, RegExp]>([
  [{ saveEvery: 2.5 }, /^the settings: saveEvery is 2.5; it must be a whole number, 0 or more$/],
  [{ steps: Number.NaN }, /^the settings: steps is NaN; it must be/],
  [{ seed: -1 }, /^the settings: seed is -1; it must be/],
  [{ lr: Number.POSITIVE_INFINITY }, /^the settings: lr is Infinity; it must be/],
  [{ epochs: 0 }, /^the settings: epochs is 0; it must be a whole number from 1/],
  [{ sampleTokens: '5' }, /^the settings: sampleTokens is "5"; it must be/],
  [{ batch: undefined }, /^the settings: batch is missing; it must be/],
  [{ dtype: 'f99' }, /^the settings: dtype is "f99"; it must be one of "f32", "bf16", "f16"$/],
  [{ schedule: 'constructor' }, /^the settings: schedule is "constructor"; it must be one of/],
  [{ data: 'text.txt' }, /^the settings: data is "text.txt"; it must be a list$/],
  [{ task: 'constructor' }, /^the settings: task is "constructor"; it must be one of/],
  [{ tokenizer: { kind: 'foo' } }, /^the settings: tokenizer.kind is "foo"; it must be one of "byte", "huggingface"$/],
  [{ lora: { rank: 0 }, from: 'model' }, /^the settings: lora.rank is 0; it must be/],
  [{ config: { model_type: 'foo' } }, /^the settings: config: model_type is "foo"; supported: "gpt2", /],
  [{ earlyStopingPatience: 2 }, /^the settings: no option earlyStopingPatience; there are earlyStoppingPatience, /],
  [{ lora: { rank: 2, base: 'x' }, from: 'model' }, /^the settings: lora: no option base; there are baseDtype, /],
  [{ config: undefined }, /^the settings: config: is missing, not an object/],
])('are refused by name: %j', async (changes, says) => {
  const files = new MemoryFiles({});
  const settings = { ...defaultSettings(), ...changes } as RunSettings;
  await expectMistake(() => trainRun(memoryHost(files), none, settings, 'run'), says);
  expect(await files.stat('run')).toBeUndefined();
});

test.each<[object, RegExp]>([
  [{ until: Number.NaN }, /^the options of a run: until is NaN; it must be a whole number, 1 or more$/],
  [{ until: -5 }, /^the options of a run: until is -5; it must be/],
  [{ until: '5' }, /^the options of a run: until is "5"; it must be/],
  [{ resume: 'yes' }, /^the options of a run: resume is "yes"; it must be true or false$/],
  [{ signal: new AbortController() }, /^the options of a run: signal is an object; it must be an AbortSignal$/],
  [{ untill: 5 }, /^the options of a run: no option untill; there are until, /],
  [
    { callbacks: [{}, { onStpeEnd() {} }] },
    /^the options of a run: callbacks\[1\]: no handler onStpeEnd; there are onStepEnd, .* and 3 more$/,
  ],
  [
    { callbacks: [{ onLog() {}, on_step_end() {} }] },
    /^the options of a run: callbacks\[0\]: no handler on_step_end; /,
  ],
  [
    { callbacks: [{ onLog: 5 }] },
    /^the options of a run: callbacks\[0\]: the handler onLog is 5; it must be a function$/,
  ],
  [{ events: { onStep() {} } }, /^the options of a run: events: no handler onStep; there are lastStep, step, /],
  [{ events: { step() {}, finished() {} } }, /^the options of a run: events: no handler finished; there are /],
  [
    { intermission: { wanted: false } },
    /^the options of a run: intermission is an object; it must be an Intermission, /,
  ],
  [{ observer: { record() {} } }, /^the options of a run: observer is an object; it must be an Observer, /],
  [{ memory: { gpus: 1e6 } }, /^the memory options: no option gpus; there are gpu, /],
  [{ memory: { gpu: -1 } }, /^the memory options: gpu is -1; it must be/],
])('and so are options: %j', async (options, says) => {
  const files = new MemoryFiles({});
  await expectMistake(() => trainRun(memoryHost(files), none, defaultSettings(), 'run', options), says);
  expect(await files.stat('run')).toBeUndefined();
});

test.each<[string, object, RegExp?]>([
  [
    'own methods beside handlers',
    new (class {
      onStepEnd() {
        this.draw();
      }
      draw() {}
    })(),
  ],
  ['own figures in a plain one', { steps: 0, onStepEnd() {} }],
  [
    'a handler that is none',
    new (class {
      onStepEnd() {}
      onStepsEnd() {}
    })(),
    /no handler onStepsEnd; there are onStepEnd, /,
  ],
  [
    'no handler at all',
    new (class {
      stepEnd() {}
    })(),
    /no handler stepEnd; there are onStepEnd, /,
  ],
])('a callback of a class may have what is its own, and no handler that would not be called: %s', (_, given, says) => {
  const problem = (() => {
    try {
      check(trainerCallback, given, 'a callback');
    } catch (error) {
      return (error as Error).message;
    }
    return '';
  })();
  expect(problem).toMatch(says ?? /^$/);
});

test('what another version knows is no mistake in settings that were kept', () => {
  const settings = defaultSettings();
  expect(keptSettings({ ...settings, later: 1 })).toEqual(settings);
});

test('and so are those that are missing, and a run without a folder', async () => {
  const host = memoryHost(new MemoryFiles({}));
  const train = trainRun as (...given: unknown[]) => Promise<unknown>;
  await expectMistake(() => train(host, none), /^the folder of the run is missing; it must be a text$/);
  await expectMistake(() => train(host, none, undefined, 'run'), /^the settings is missing; it must be an object$/);
});

test('a folder that holds a run is no place for another one, whose checkpoints would take the place of its', async () => {
  const { files } = await savedRun();
  const before = new Map(files.contents);
  const says = /^run: holds a checkpoint already; go on with resume, or choose another folder$/;
  await expectMistake(() => trainRun(memoryHost(files), none, SETTINGS, RUN), says);
  expect(files.contents).toEqual(before);
});

test('fewer steps than a run has are refused where it goes on, in a page too; as many as it has are none', async () => {
  const { files } = await savedRun();
  const before = new Map(files.contents);
  const goOn = (steps: number) => trainRun(memoryHost(files), none, { ...SETTINGS, steps }, RUN, { resume: true });
  await expectMistake(() => goOn(5), /^run: has 12 steps already, and 5 in all are asked for; give more than 12$/);
  // It gets as far as the device.
  await expect(goOn(STEPS)).rejects.toThrow('a device: ');
  expect(files.contents).toEqual(before);

  const record = { id: 'r', name: 'mine', created: 1, memory: {}, status: 'stopped', savedStep: STEPS } as const;
  const inPage = (options: { steps?: number } = {}) =>
    resumedRecord(memoryHost(files) as BrowserHost, RUN, { ...record, settings: SETTINGS }, options);
  await expectMistake(
    () => inPage({ steps: 5 }),
    /^“mine”: has 12 steps already, and 5 in all are asked for; give more than 12$/,
  );
  expect((await inPage({ steps: STEPS })).settings.steps).toBe(STEPS);
  expect((await inPage()).settings.steps).toBe(SETTINGS.steps);
});
