// Requests of a callback that one of several ranks has alone: all of them do what it asks for.

import { expect, test } from 'vitest';
import { checkpointsOf } from '../../src/formats/checkpoint.ts';
import type { TrainerCallback, TrainerControl } from '../../src/train/run/callbacks.ts';
import { trainRun } from '../../src/train/run/run.ts';
import { chooseVariants } from '../choose-variants.ts';
import { testDevice } from '../harness.ts';
import { MemoryFiles, memoryHost } from '../memory-files.ts';
import { ranksInProcess } from './in-process.ts';
import { smallRun, smallText } from './small-run.ts';

chooseVariants(1);

const STEPS = 6;
const settings = smallRun({ steps: STEPS, evalEvery: 0, sampleEvery: 0, saveEvery: 0 });

/** What the first rank tells where one of them has this callback, whether each was stopped, and the steps that are saved. */
async function ends(own: number, callback: TrainerCallback) {
  const device = await testDevice();
  const files = smallText();
  const validations: number[] = [];
  let steps = 0;
  const events = { validation: (step: number) => validations.push(step), step: () => steps++ };
  const stopped = await Promise.all(
    ranksInProcess(2, 2).map(async (ranks, rank) => {
      const callbacks = rank === own ? [callback] : [];
      const host = memoryHost(Object.assign(new MemoryFiles(), { contents: files.contents }));
      const options = { callbacks, ranks, ...(rank === 0 && { events }) };
      return (await trainRun(host, device, settings, 'run', options)).stopped ?? false;
    }),
  );
  const saved = (await checkpointsOf(files, 'run')).map(({ step }) => step);
  return { validations, steps, stopped, saved };
}

/** Requests behind the third step, or as it begins. */
const behind = (request: Partial<TrainerControl>): TrainerCallback => ({
  onStepEnd: ({ global_step }, control) => void (global_step === 3 && Object.assign(control, request)),
});
const before = (request: Partial<TrainerControl>): TrainerCallback => {
  let begun = 0;
  return { onStepBegin: (_, control) => void (++begun === 3 && Object.assign(control, request)) };
};

test.each([
  ['of the first', 0],
  ['of another', 1],
] as const)('a callback %s', async (_, rank) => {
  const [none, both] = [Array(2).fill(false), Array(2).fill(true)];
  for (const at of [behind, before]) {
    const stop = await ends(rank, at({ shouldTrainingStop: true }));
    expect(stop).toMatchObject({ validations: [3], steps: 3, stopped: both });
    expect(stop.saved.at(-1)).toBe(3);
    const save = await ends(rank, at({ shouldSave: true }));
    expect(save).toMatchObject({ validations: [STEPS], steps: STEPS, stopped: none });
    expect(save.saved).toContain(3);
    const evaluate = await ends(rank, at({ shouldEvaluate: true }));
    expect(evaluate).toMatchObject({ validations: [3, STEPS], steps: STEPS, stopped: none });
  }
  const stop = (_: unknown, control: TrainerControl) => {
    control.shouldTrainingStop = true;
  };
  expect(await ends(rank, { onTrainBegin: stop })).toMatchObject({ steps: 0, stopped: both });
  const behindValidation = await ends(rank, { ...behind({ shouldEvaluate: true }), onEvaluate: stop });
  expect(behindValidation).toMatchObject({ validations: [3], steps: 3, stopped: both });
});
