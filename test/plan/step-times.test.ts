// What the estimates make of times: costs of dispatches and of arithmetic from two steps, and what runs set right. How
// long anything takes is measured in a browser.

import fc from 'fast-check';
import { expect, test } from 'vitest';
import { estimateRun } from '../../src/browser/estimate.ts';
import type { MemorySettings } from '../../src/browser/protocol.ts';
import { typicalRates } from '../../src/engine/compile/rates.ts';
import { stepMs } from '../../src/train/plan/step-probe.ts';
import {
  type Confined,
  costsBy,
  costsOf,
  expectedSeconds,
  type KnownSteps,
  type StepCosts,
  type StepMemory,
  type StepSize,
  stepTime,
  type TimedStep,
  withRun,
} from '../../src/train/plan/step-times.ts';
import { stepWayOf } from '../../src/train/run/kept-time.ts';
import { defaultSettings, type RunSettings } from '../../src/train/run/run-settings.ts';

type Runs = KnownSteps['runs'];
const RATES = typicalRates(true);
const TYPICAL = costsBy(RATES);
const withRunOf = (runs: Runs, settings: RunSettings, timed: TimedStep, memory?: StepMemory): Runs =>
  withRun(runs, stepWayOf(settings), timed, memory && { memory });
const timeOf = (settings: RunSettings, size: StepSize, runs: Runs, costs?: StepCosts, confined?: Confined) =>
  stepTime(stepWayOf(settings), size, { runs, ...(costs && { costs }) }, RATES, confined);

const sized = (dispatches: number, flops: number, cost: { dispatch: number; flop: number }) => {
  return { dispatches, flops, seconds: cost.dispatch * dispatches + cost.flop * flops };
};
const cost = fc.record({
  dispatch: fc.double({ min: 1e-6, max: 1e-2, noNaN: true }),
  flop: fc.double({ min: 1e-13, max: 1e-8, noNaN: true }),
});

test('costs are those that took so long, and tell the time of any other step', () => {
  fc.assert(
    fc.property(
      cost,
      fc.integer({ min: 20, max: 900 }),
      fc.double({ min: 1e6, max: 1e12, noNaN: true }),
      (costs, d, f) => {
        const found = costsOf([sized(57, 4e6, costs), sized(60, 7e8, costs)]);
        const { seconds, ...size } = sized(d, f, costs);
        expect(expectedSeconds(size, [], found, TYPICAL)).toBeGreaterThan(seconds * 0.999);
        expect(expectedSeconds(size, [], found, TYPICAL)).toBeLessThan(seconds * 1.001);
      },
    ),
    { seed: 1 },
  );
});

test('times that no costs explain still give costs that are not negative', () => {
  const time = fc.double({ min: 1e-4, max: 10, noNaN: true });
  fc.assert(
    fc.property(time, time, (small, large) => {
      const { dispatch, flop } = costsOf([
        { dispatches: 57, flops: 4e6, seconds: small },
        { dispatches: 60, flops: 7e8, seconds: large },
      ]);
      expect(dispatch).toBeGreaterThanOrEqual(0);
      expect(flop).toBeGreaterThan(0);
    }),
    { seed: 1 },
  );
});

test('a run tells of those of its way alone: its shape, and what it computes in, where and when', () => {
  const size = { dispatches: 100, flops: 1e9 };
  const settings = defaultSettings();
  const ways: Partial<RunSettings>[] = [
    ...([{ dtype: 'bf16' }, { optimizerState: 'bf16' }, { activationDtype: 'bf16' }] as const),
    ...([{ optimizerDevice: 'cpu' }, { update: 'in-backward' }, { update: 'in-backward', clip: 0 }] as const),
    { records: { pack: 'yes' } as RunSettings['records'] & object },
  ];
  const all = [{}, ...ways].map((changes) => ({ ...settings, ...changes }));
  const larger = (one: RunSettings) => ({ ...one, batch: 2 * one.batch });
  for (const one of all) {
    const runs = withRunOf({}, one, { ...size, seconds: 3 });
    for (const other of all) {
      const isSame = other === one;
      expect(timeOf(other, size, runs, undefined)).toEqual(isSame ? { seconds: 3, from: 'run' } : undefined);
      const twice = timeOf(larger(other), { dispatches: 200, flops: 2e9 }, runs, undefined);
      expect(twice).toEqual(isSame ? { seconds: 6, from: 'probe' } : undefined);
    }
  }
  // What is asked for by name is what there is without.
  const named = { ...settings, dtype: 'f32', optimizerDevice: 'gpu', update: 'at-end' } as const;
  expect(timeOf(named, size, withRunOf({}, settings, { ...size, seconds: 3 }), undefined)?.from).toBe('run');
  // And however long a run is, and wherever it splits its optimizer.
  const long = { ...settings, steps: 9, optimizerSplit: 3 };
  expect(timeOf(long, size, withRunOf({}, settings, { ...size, seconds: 3 }), undefined)?.from).toBe('run');
});

test('within a budget a step takes so many times as long, but where a run in the same one said how long', () => {
  const settings = defaultSettings();
  const size = { dispatches: 100, flops: 1e9 };
  const memory = { gpu: 5e6 };
  const within = (memory: StepMemory, times?: number): Confined => ({
    memory,
    seconds: (resident) => times && times * resident,
  });
  const confined = within(memory, 1.5);
  const resident = withRunOf({}, settings, { ...size, seconds: 2 });
  expect(timeOf(settings, size, resident, undefined, confined)).toEqual({ seconds: 3, from: 'probe' });
  expect(timeOf(settings, size, {}, { dispatch: 0, flop: 1e-9 }, confined)).toEqual({ seconds: 1.5, from: 'probe' });
  // Nothing is said where nothing is known of how much is waited for.
  expect(timeOf(settings, size, resident, undefined, within(memory))).toBe(undefined);
  const runs = withRunOf(resident, settings, { ...size, seconds: 7 }, memory);
  expect(timeOf(settings, size, runs, undefined, confined)).toEqual({ seconds: 7, from: 'run' });
  // It says nothing of another budget, of none, and of other sizes.
  for (const other of [{ gpu: 4e6 }, { gpu: 5e6, host: 1e6 }, { gpu: 5e6, policy: 'LRU' } as const])
    expect(timeOf(settings, size, runs, undefined, within(other, 2))).toEqual({
      seconds: 4,
      from: 'probe',
    });
  expect(timeOf(settings, size, runs, undefined)).toEqual({ seconds: 2, from: 'run' });
  const larger = { ...settings, batch: 2 * settings.batch };
  expect(timeOf(larger, { dispatches: 2 * size.dispatches, flops: 2 * size.flops }, runs, undefined)).toEqual({
    seconds: 4,
    from: 'probe',
  });
});

test('what a run within a budget would take without one tells of other budgets and other sizes, behind a run that had none', () => {
  const settings = defaultSettings();
  const size = { dispatches: 100, flops: 1e9 };
  const timed = { dispatches: 120, flops: 1.1e9, seconds: 3 };
  const runs = withRun({}, stepWayOf(settings), timed, { memory: { gpu: 5e6 }, whole: { ...size, seconds: 2 } });
  const other: Confined = { memory: { gpu: 4e6 }, seconds: (resident) => 1.25 * resident };
  expect(timeOf(settings, size, runs, undefined, other)).toEqual({ seconds: 2.5, from: 'probe' });
  // No run took that without a budget.
  expect(timeOf(settings, size, runs, undefined)).toEqual({ seconds: 2, from: 'probe' });
  const twice = { dispatches: 200, flops: 2e9 };
  expect(timeOf({ ...settings, batch: 2 * settings.batch }, twice, runs, undefined)).toEqual({
    seconds: 4,
    from: 'probe',
  });
  expect(timeOf({ ...settings, dtype: 'bf16' }, size, runs, undefined)).toBe(undefined);
  const both = withRunOf(runs, settings, { ...size, seconds: 1 });
  expect(timeOf(settings, size, both, undefined)).toEqual({ seconds: 1, from: 'run' });
  expect(timeOf({ ...settings, batch: 2 * settings.batch }, twice, both, undefined)).toEqual({
    seconds: 2,
    from: 'probe',
  });
});

test('an estimate says how many times as long a step takes within a budget: the longer the smaller it is', () => {
  const settings = defaultSettings();
  const slowdownIn = (memory: MemorySettings) => estimateRun(settings, memory).fit?.slowdown;
  const { unlimited, smallest } = estimateRun(settings, {});
  expect([slowdownIn({}), slowdownIn({ gpu: 2 * unlimited })]).toEqual([1, 1]);
  const found = [0.5, 0.25, 0].map((share) =>
    slowdownIn({ gpu: smallest + Math.floor(share * (unlimited - smallest)) }),
  );
  for (const [i, slowdown] of found.entries()) expect(slowdown).toBeGreaterThan(found[i - 1] ?? 1);
  // What has no room in host memory lies on a disk, of whose speed nothing is known.
  expect(slowdownIn({ gpu: smallest, host: 1e6 })).toBe(undefined);
});

test('the run that is nearest in arithmetic sets an estimate right; without measured costs typical ones tell its dispatches', () => {
  const costs = { dispatch: 1e-4, flop: 1e-10 };
  const [twice, thrice] = [sized(100, 1e8, costs), sized(200, 1e10, costs)];
  const runs = [
    { ...twice, seconds: 2 * twice.seconds },
    { ...thrice, seconds: 3 * thrice.seconds },
  ];
  const { seconds, ...size } = sized(300, 2e10, costs);
  expect(expectedSeconds(size, runs, costs, TYPICAL)).toBeCloseTo(3 * seconds, 9);
  // 200 dispatches of 0.1 ms and 1e10 operations at 8e9 a second, against 300 and twice as many.
  const ratio = (0.03 + 2.5) / (0.02 + 1.25);
  expect(expectedSeconds(size, runs, undefined, TYPICAL)).toBeCloseTo(3 * thrice.seconds * ratio, 9);
  expect(expectedSeconds(size, [], undefined, TYPICAL)).toBe(undefined);
});

test('a step takes what most steps take, told one by one or several at once, whatever else the machine did meanwhile', () => {
  fc.assert(
    fc.property(
      fc.double({ min: 0.5, max: 400, noNaN: true }),
      fc.constantFrom(1, 2, 4),
      fc.record({ at: fc.nat(19), stall: fc.double({ min: 0, max: 5000, noNaN: true }) }),
      (step, atOnce, { at, stall }) => {
        const told = (i: number) => Math.ceil((i + 1) / atOnce) * atOnce * step + (at <= i ? stall : 0);
        const ends = Array.from({ length: 20 }, (_, i) => told(i));
        expect(stepMs(ends)).toBeGreaterThan(step * 0.999);
        expect(stepMs(ends)).toBeLessThan(step * 1.001);
      },
    ),
    { seed: 1 },
  );
});
