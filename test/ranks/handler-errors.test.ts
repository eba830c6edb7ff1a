// Errors of a program's own handlers on one of several ranks: the run ends on all of them, saved where there is something to save, that
// rank's by its own error, the others' by one that names it.

import { expect, test } from 'vitest';
import { checkpointsOf } from '../../src/formats/checkpoint.ts';
import { FailedElsewhere } from '../../src/train/run/ranks.ts';
import { trainRun } from '../../src/train/run/run.ts';
import type { RunOptions } from '../../src/train/run/run-events.ts';
import { HoldfastError } from '../../src/util/errors.ts';
import { chooseVariants } from '../choose-variants.ts';
import { testDevice } from '../harness.ts';
import { MemoryFiles, memoryHost } from '../memory-files.ts';
import { ranksInProcess } from './in-process.ts';
import { smallRun, smallText } from './small-run.ts';

chooseVariants(1);

const STEPS = 4;
const settings = smallRun({ steps: STEPS, evalEvery: 2, sampleEvery: 3 });

const mine = new TypeError('a chart has no such point');
const fail = (): never => {
  throw mine;
};

/** How the run ends on both ranks, where these options are of one of them alone; and the steps that are saved. */
async function ends(own: number, options: RunOptions, filesOf = (_: number) => new MemoryFiles()) {
  const device = await testDevice();
  const files = smallText();
  const errors = await Promise.all(
    ranksInProcess(2, 2).map((ranks, rank) => {
      const host = memoryHost(Object.assign(filesOf(rank), { contents: files.contents }));
      const all = { ...(rank === own && options), ranks };
      return trainRun(host, device, settings, 'run', all).catch((error: unknown) => error);
    }),
  );
  return { errors, saved: (await checkpointsOf(files, 'run')).map(({ step }) => step) };
}

const told = (rank: number) =>
  new FailedElsewhere(`rank ${rank} of 2: the run ended by an error of the program’s: a chart has no such point`);

/** By what throws: its options, the steps that are saved then, and the rank. */
const FAILING: readonly (readonly [string, RunOptions, readonly number[], number])[] = [
  ['events.ready', { events: { ready: fail } }, [], 0],
  ['events.step', { events: { step: fail } }, [1, 2, 3], 0],
  ['events.over', { events: { over: fail } }, [STEPS], 0],
  ['a callback’s onTrainBegin', { callbacks: [{ onTrainBegin: fail }] }, [], 1],
  ['a callback’s onTrainBegin, on the first', { callbacks: [{ onTrainBegin: fail }] }, [], 0],
  ['a callback’s onStepBegin', { callbacks: [{ onStepBegin: fail }] }, [1, 2], 1],
  ['a callback’s onEvaluate', { callbacks: [{ onEvaluate: async () => fail() }] }, [2], 1],
  ['a callback’s onTrainEnd', { callbacks: [{ onTrainEnd: fail }] }, [STEPS], 1],
  ['an intermission', { intermission: { wanted: true, run: async () => fail() } }, [0], 1],
  ['an observer', { observer: { wanted: true, recorded: fail } }, [1, 2, 3], 1],
];

test.each(FAILING)('%s', async (_, options, steps, rank) => {
  const { errors, saved } = await ends(rank, options);
  expect(errors[rank]).toBe(mine);
  expect(errors[1 - rank]).toBeInstanceOf(FailedElsewhere);
  expect(errors[1 - rank]).toEqual(told(rank));
  if (steps.length === 0) expect(saved).toEqual([]);
  else expect(steps).toContain(saved.at(-1));
});

test('data that one rank cannot read ends the others, too', async () => {
  class WithoutText extends MemoryFiles {
    override async stat(path: string) {
      return path === 'text.txt' ? undefined : super.stat(path);
    }
  }
  const { errors } = await ends(1, {}, (rank) => (rank === 1 ? new WithoutText() : new MemoryFiles()));
  const [first, second] = errors as [Error, Error];
  expect(second).toBeInstanceOf(HoldfastError);
  expect(second.message).toMatch(/^corpus text\.txt: /);
  expect(first).toEqual(new FailedElsewhere(`rank 1 of 2: ${second.message}`));
});
