// The words of a run's summary on what it waited for and moved: each names the setting that would change it, and how far.

import { expect, test } from 'vitest';
import { advice } from '../../src/report/advice.ts';
import type { Alternative } from '../../src/train/plan/what-if.ts';
import type { MemoryRecord } from '../../src/train/run/memory-record.ts';

const BYTES = { h2d: 1e6, d2h: 1e6, diskRead: 0, diskWrite: 0 };
const record = (change: Partial<MemoryRecord>): MemoryRecord => ({
  gpu: { budget: 3e6, peak: 3e6, predictedPeak: 3e6 },
  host: { budget: 12e6, peak: 12e6 },
  disk: { budget: undefined, peak: 210e6 },
  bytesPerStep: BYTES,
  offloadedPerStep: 0,
  fetchedPerStep: 0,
  total: BYTES,
  recoveryBytesPerStep: 0,
  fit: { slots: 2, chunks: 4, chunkBytes: 1000 },
  waits: { down: 0, up: 0, below: 0, network: 0, diskRead: 0, diskWrite: 0 },
  ...change,
});
const alternative = (flag: string, moved: number, moreArithmetic = 0): Alternative => ({ flag, moved, moreArithmetic });
const ALL_BUSY = { computing: 1, again: 0, waiting: 0 };
const waited = (below: number) => ({ milliseconds: 200, waits: { down: 90, up: 90, below, network: 0 } });

test('a wait for the disk names the host memory that ends it, and how much more that is', () => {
  const whatIf = { time: ALL_BUSY, moved: 0, alternatives: [], hostEnough: 221.4e6 };
  expect(advice(record({ lastStep: waited(62), whatIf }))).toEqual([
    'waiting for disk 31 % of the last step: --host-memory 222MB, 209 MB more, leaves nothing on disk',
  ]);
  // Waits in which the GPU works are none, nor are those too short to notice.
  expect(advice(record({ lastStep: waited(3), whatIf }))).toEqual([]);
  expect(advice(record({ whatIf }))).toEqual([]);
});

test('a wait for the disk names the way to treat activations that moves least, too', () => {
  const alternatives = [alternative('--gpu-memory 9MB', 0), alternative('--activations recompute', 3e6, 0.25)];
  const whatIf = { time: ALL_BUSY, moved: 5e6, alternatives, hostEnough: 221.4e6 };
  expect(advice(record({ lastStep: waited(62), whatIf }))[0]).toBe(
    'waiting for disk 31 % of the last step: --host-memory 222MB, 209 MB more, leaves nothing on disk; or --activations ' +
      'recompute, which moves 3.00 MB a step, not 5.00 MB',
  );
});

test('where the time of a step goes is said where some of it is neither first arithmetic nor hidden', () => {
  const lines = (time: typeof ALL_BUSY) =>
    advice(record({ whatIf: { time, moved: 0, alternatives: [], hostEnough: 0 } }));
  expect(lines({ computing: 0.79, again: 0.08, waiting: 0.21 })).toEqual([
    'time of a step, as planned: 79 % arithmetic, 8 % of the step to make activations again; 21 % waiting for the link ' +
      'between GPU and host memory',
  ]);
  expect(lines({ computing: 0.97, again: 0.01, waiting: 0.03 })).toEqual([
    'time of a step, as planned: 97 % arithmetic; 3 % waiting for the link between GPU and host memory',
  ]);
  expect(lines({ computing: 0.99, again: 0.01, waiting: 0.01 })).toEqual([]);
});

test('without a limit on host memory, or a disk, it says what was waited for and promises nothing', () => {
  const whatIf = { time: ALL_BUSY, moved: 0, alternatives: [], hostEnough: 221e6 };
  const lastStep = waited(20);
  expect(advice(record({ lastStep, whatIf, host: { budget: undefined, peak: 1 } }))).toEqual([
    'waiting for disk 10 % of the last step',
  ]);
  expect(advice(record({ lastStep, whatIf, disk: { budget: undefined, peak: 0 } }))).toEqual([
    'waiting for host memory 10 % of the last step',
  ]);
});

test('what moves has the settings that move less, those that cost more and gain nothing left out', () => {
  const alternatives = [
    alternative('--gpu-memory 9MB', 0, -0.001),
    alternative('--activations spill', 2.5e6, 0.203),
    alternative('--activations recompute', 3e6, 0.25),
    alternative('--activations light', 4e6, 0.01),
  ];
  expect(advice(record({ whatIf: { time: ALL_BUSY, moved: 6.47e6, alternatives, hostEnough: 0 } }))).toEqual([
    'moving 6.47 MB a step: --gpu-memory 9MB would move nothing; --activations spill would move 2.50 MB, with 20 % more ' +
      'arithmetic; --activations light would move 4.00 MB, with 1 % more arithmetic',
  ]);
  expect(advice(record({ whatIf: { time: ALL_BUSY, moved: 6.47e6, alternatives: [], hostEnough: 0 } }))).toEqual([
    'moving 6.47 MB a step: no other setting moves less in this budget',
  ]);
});

test('a plan that was made again says what it saves', () => {
  expect(advice(record({ plannedAgain: { before: 0.2, after: 0.15 } }))).toEqual([
    'planned again by what the first steps took: a step is to take 25 % less than by the plan before',
  ]);
});

test('copies for recovery are named with what goes without them', () => {
  expect(advice(record({ recoveryBytesPerStep: 135e3 }))).toEqual([
    'copying 135 KB more a step, so that a lost GPU costs one step: --recovery checkpoint does without, and goes back to the last checkpoint',
  ]);
});
