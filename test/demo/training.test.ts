// What the page takes a run to be doing, by what the worker tells of it and by what it answers, in any order.

import { expect, test } from 'vitest';
import { Training } from '../../demo/training.ts';
import type { Holdfast, RunInfo } from '../../src/browser/index.ts';
import { type Deferred, deferred } from '../../src/util/deferred.ts';

type Trainer = Holdfast['trainer'];

/** A worker that answers when the test does. */
function worker() {
  const asked: Record<string, Deferred<unknown>[]> = {};
  const answers = (name: string) => () => {
    const answer = deferred<unknown>();
    asked[name] = [...(asked[name] ?? []), answer];
    return answer.promise;
  };
  const runs = async () => [run('a', 'here')];
  const names = ['start', 'pause', 'unpause', 'stop', 'setMemory', 'history'];
  const trainer = { ...Object.fromEntries(names.map((name) => [name, answers(name)])), runs };
  return { trainer: trainer as unknown as Trainer, asked: (name: string) => asked[name] ?? [] };
}

const run = (id: string, open: RunInfo['open'] = 'no') => ({ id, open }) as RunInfo;
const ready = {
  type: 'ready',
  run: 'a',
  firstStep: 0,
  steps: 10,
  parameters: 1,
  corpusBytes: 1,
  dispatches: 1,
} as const;
const nothing = { steps: [], validations: [], samples: [] };
/** All that follows from what was answered. */
const settled = () => new Promise((resolve) => setTimeout(resolve));

async function trains() {
  const { trainer, asked } = worker();
  const training = new Training(trainer, () => {});
  const started = training.start({ settings: {} } as Parameters<Training['start']>[0]);
  asked('start')[0]?.resolve(run('a', 'here'));
  await started;
  training.take(ready);
  return { training, asked };
}

test('a pause that cannot be saved is one: it can go on, take a step, or be stopped', async () => {
  const { training, asked } = await trains();
  const pausing = training.pause();
  expect(training.phase).toBe('pausing');
  asked('pause')[0]?.reject(new Error('the disk is full'));
  await expect(pausing).rejects.toThrow('the disk is full');
  expect(training.phase).toBe('paused');
});

test('one that was paused is paused again when the last of several budgets is in force', async () => {
  const { training, asked } = await trains();
  training.take({ type: 'paused', run: 'a', step: 3 });
  const moves = [training.setMemory({ gpu: 3 }), training.setMemory({ gpu: 2 })];
  await settled();
  expect(training.phase).toBe('moving');
  asked('setMemory')[0]?.resolve(undefined);
  await moves[0];
  expect(training.phase).toBe('moving');
  asked('setMemory')[1]?.resolve(undefined);
  await moves[1];
  expect(training.phase).toBe('paused');
});

test('one whose pause is saved while it is opened with another budget is paused then', async () => {
  const { training, asked } = await trains();
  void training.pause();
  const moved = training.setMemory({ gpu: 3 });
  await settled();
  training.take({ type: 'paused', run: 'a', step: 3 });
  expect(training.phase).toBe('moving');
  training.take({ type: 'ended', run: 'a', summary: { interrupted: true } } as Parameters<Training['take']>[0]);
  training.take(ready);
  expect(training.phase).toBe('moving');
  asked('setMemory')[0]?.resolve(undefined);
  await moved;
  expect(training.phase).toBe('paused');
});

test('one that is ready by an earlier change of its budgets, while another is under way, cannot be paused yet', async () => {
  const { training, asked } = await trains();
  const first = training.setMemory({ gpu: 3 });
  await settled();
  asked('setMemory')[0]?.resolve(undefined);
  await first;
  const second = training.setMemory({ gpu: 2 });
  await settled();
  training.take(ready);
  expect([training.phase, training.stoppable]).toEqual(['moving', false]);
  asked('setMemory')[1]?.resolve(undefined);
  await second;
  expect(training.phase).toBe('training');
});

test('of two runs that are looked at, the later is shown, whichever is read first', async () => {
  const { trainer, asked } = worker();
  const training = new Training(trainer, () => {});
  const looks = [training.show(run('long')), training.show(run('short'))];
  asked('history')[1]?.resolve(nothing);
  asked('history')[0]?.resolve(nothing);
  await Promise.all(looks);
  expect(training.run?.id).toBe('short');
});

test('one that is prepared can be stopped as soon as the worker has it, and is stopped whatever comes meanwhile', async () => {
  const { trainer, asked } = worker();
  const training = new Training(trainer, () => {});
  const started = training.start({ settings: {} } as Parameters<Training['start']>[0]);
  training.take({ type: 'preparing', run: 'a' });
  expect(training.stoppable).toBe(false);
  asked('start')[0]?.resolve(run('a', 'here'));
  await started;
  expect([training.phase, training.stoppable]).toEqual(['preparing', true]);
  void training.stop();
  training.take(ready);
  expect([training.phase, training.stoppable]).toEqual(['stopping', false]);
  training.take({ type: 'stopped', run: 'a' });
  expect(training.open).toBe(false);
});

test('while one begins, none before it is shown; where it cannot, that one is again', async () => {
  const { trainer, asked } = worker();
  const training = new Training(trainer, () => {});
  const shown = training.show(run('before'));
  asked('history')[0]?.resolve(nothing);
  await shown;
  const started = training.start({ settings: {} } as Parameters<Training['start']>[0]);
  expect(training.run).toBeUndefined();
  asked('start')[0]?.reject(new Error('no room'));
  await expect(started).rejects.toThrow('no room');
  expect(training.run?.id).toBe('before');
});
