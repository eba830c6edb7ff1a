// Plans that are made again by what the first steps of a run take: the rates that timed groups and late steps show, and a run that
// begins with others. On the adapter under test; no time is a reason for another bit.

import { afterEach, beforeAll, beforeEach, describe, expect, test, vi } from 'vitest';
import type { ChoiceRecord } from '../../src/engine/compile/choices.ts';
import { fitMemory } from '../../src/engine/compile/fit.ts';
import { typicalRates } from '../../src/engine/compile/rates.ts';
import { Adaptation } from '../../src/engine/run/adaptation.ts';
import { limitsOf, type MemoryOptions } from '../../src/engine/run/arrangement.ts';
import { HELD_AGAINST, ratesFrom, ratesOfLate, slowedBy, type TimedGroup } from '../../src/engine/run/learned-rates.ts';
import { computeSeconds, machineOf } from '../../src/engine/simulate/machine.ts';
import { priceOf } from '../../src/engine/simulate/price.ts';
import type { Device } from '../../src/gpu/device.ts';
import type { Trainer } from '../../src/train/step/trainer.ts';
import { chooseVariants } from '../choose-variants.ts';
import { testDevice } from '../harness.ts';
import { fragileDevice } from './fragile.ts';
import {
  budgetFor,
  expectSame,
  MODELS,
  memoryDisk,
  type Outcome,
  openTrainer,
  run,
  train,
  type Work,
  workloadOf,
} from './runs.ts';

const work: Work = { model: MODELS['gpt2, tied'], batch: 2, seq: 16, accumulate: 1, steps: 14 };
let device: Device;
let wanted: Outcome;
let choices: ChoiceRecord;
beforeAll(async () => {
  device = await testDevice();
  chooseVariants(1);
  ({ outcome: wanted, choices } = await run(device, work));
});
beforeEach(() => chooseVariants(1));
afterEach(() => {
  vi.restoreAllMocks();
});

describe('the rates that groups of operations show', () => {
  const rates = { ...typicalRates(false), memoryBytes: 1e11, answerSeconds: 1e-3, copySeconds: 2e-5 };
  const { operations } = fitMemory(workloadOf(work), { binding: 2 ** 27, buffer: 2 ** 28, rates }, undefined).passes
    .step;
  const groupsOf = (arithmetic: number, link: number, bytesOf: (group: number) => number): TimedGroup[] =>
    Array.from({ length: 8 }, (_, i) => {
      const own = operations.slice(i * 5, i * 5 + 5);
      const [upBytes, downBytes, transfers] = [bytesOf(i), 2 * bytesOf(i), bytesOf(i) > 0 ? i : 0];
      const moving = upBytes / rates.upBytes + downBytes / rates.downBytes + transfers * rates.copySeconds;
      const seconds = 1e-3 + arithmetic * computeSeconds(machineOf({ rates }), own) + link * moving;
      return { operations: own, seconds, upBytes, downBytes, transfers };
    });
  const times = (groups: readonly TimedGroup[]) => {
    const found = ratesFrom(groups, rates);
    expect(found.memoryBytes).toBeCloseTo((rates.memoryBytes * found.flops) / rates.flops, 0);
    expect(found.answerSeconds).toBe(rates.answerSeconds);
    return [rates.flops / found.flops, rates.upBytes / found.upBytes];
  };

  test.each([
    [1, 1],
    [3, 0.5],
    [0.25, 20],
  ])('arithmetic that takes %f times as long, and a link that does %f times', (arithmetic, link) => {
    const [a = 0, b = 0] = times(groupsOf(arithmetic, link, (i) => (i % 3) * 40_000));
    expect(a / arithmetic).toBeCloseTo(1, 9);
    expect(b / link).toBeCloseTo(1, 9);
  });

  test('where nothing moves, or all in proportion, both are slower alike', () => {
    const [a = 0, b = 0] = times(groupsOf(3, 1, () => 0));
    expect([a, b]).toEqual([expect.closeTo(3, 9), expect.closeTo(3, 9)]);
  });

  test('no rate is further off than 64 times, and without arithmetic they stay', () => {
    expect(times(groupsOf(1e6, 1e6, (i) => (i % 3) * 40_000))).toEqual([expect.closeTo(64, 9), expect.closeTo(64, 9)]);
    expect(ratesFrom([], rates)).toBe(rates);
    expect(ratesFrom([{ operations: [], seconds: 1, upBytes: 1e6, downBytes: 0, transfers: 1 }], rates)).toBe(rates);
  });
});

describe('the link of steps in which something came late', () => {
  const rates = typicalRates(false);
  const secondsBy = ({ upBytes }: { readonly upBytes: number }) => 0.1 + (1e7 / upBytes) * 100;
  const taken = (seconds: number) => Array.from({ length: HELD_AGAINST }, () => seconds);

  test('is slower by as much as explains them', () => {
    for (const times of [2, 7, 40]) {
      const found = ratesOfLate(taken(secondsBy({ upBytes: rates.upBytes / times })), rates, secondsBy);
      const factor = rates.upBytes / (found?.upBytes ?? 0) / times;
      expect(factor).toBeGreaterThanOrEqual(1);
      expect(factor).toBeLessThan(1.1);
      expect(found?.flops).toBe(rates.flops);
    }
  });

  test('is as it was where steps take little longer, or one alone was late', () => {
    const planned = secondsBy(rates);
    expect(ratesOfLate(taken(1.1 * planned), rates, secondsBy)).toBe(undefined);
    expect(ratesOfLate([...taken(planned).slice(1), 50 * planned], rates, secondsBy)).toBe(undefined);
  });

  test('and rates that are slowed by nothing are the same', () => {
    expect(slowedBy(rates, { arithmetic: 1, link: 1 })).toEqual(rates);
  });
});

describe('steps are held against their plan', () => {
  const limits = { binding: 2 ** 27, buffer: 2 ** 28, rates: typicalRates(false) };
  const fit = fitMemory(workloadOf(work), limits, undefined);
  const planned = priceOf(fit, fit.passes.step, limits).seconds;
  /** Which of so many steps, of such times of their plan, show a slower link. */
  const lateAt = (count: number, goesOn: (step: number) => boolean, fitAt: (step: number) => typeof fit) => {
    const adaptation = Adaptation.of({ ...fit, slots: 0 }, { adapts: true }, true);
    adaptation?.warmedUp([], limits.rates);
    return Array.from({ length: count }, (_, i) => i).filter((i) =>
      adaptation?.stepEnded(1000 * i * 3 * planned, goesOn(i), fitAt(i), limits),
    );
  };

  test('once, when enough of them have ended', () => {
    expect(
      lateAt(
        30,
        () => true,
        () => fit,
      ),
    ).toEqual([HELD_AGAINST]);
  });

  test('those alone that were under way when the one before ended, and by one plan', () => {
    const every = (n: number) => (i: number) => i % n !== 0;
    expect(lateAt(30, every(1), () => fit)).toEqual([]);
    expect(lateAt(30, every(3), () => fit)).toEqual([12]);
    const others = { ...fit };
    expect(
      lateAt(
        30,
        () => true,
        (i) => (i < 5 ? others : fit),
      ),
    ).toEqual([5 + HELD_AGAINST]);
  });

  test('nowhere above a disk, beside other ranks, or where nothing is confined', () => {
    const confined = { ...fit, slots: 0 };
    const disk = memoryDisk();
    expect(Adaptation.of(confined, { adapts: true, disk }, true)).toBe(undefined);
    expect(Adaptation.of(confined, { adapts: true }, false)).toBe(undefined);
    expect(Adaptation.of(confined, {}, true)).toBe(undefined);
    expect(Adaptation.of(fit, { adapts: true }, true)).toBe(undefined);
  });
});

const modesOf = ({ session }: Trainer): string => JSON.stringify(session.fit.workload.activations);
const onDevice = async (own: Device, memory: MemoryOptions, use: (trainer: Trainer) => Promise<void>) => {
  const trainer = await openTrainer(own, work, { memory, choices });
  try {
    await use(trainer);
  } finally {
    await trainer.destroy();
  }
};

describe('a run whose steps show other rates', () => {
  // What it takes is not what the test is about: the rates are given in the place of those that times would show.
  const warmedUp = () => vi.spyOn(Adaptation.prototype, 'warmedUp');
  const stepEnded = () => vi.spyOn(Adaptation.prototype, 'stepEnded');
  const measured = () => limitsOf(device).rates;
  const slowLink = () => slowedBy(measured(), { arithmetic: 1 / 50, link: 50 });
  const memory = (): MemoryOptions => ({ gpu: budgetFor(device, work, 1 / 3), recovery: 'step', rates: slowLink() });

  test('plans again behind warm-up, within its budget, and no bit is another', async () => {
    const asked = warmedUp().mockImplementation(() => measured());
    await onDevice(device, { ...memory(), adapts: true }, async (trainer) => {
      const { session } = trainer;
      const [before, modes] = [session.fit, modesOf(trainer)];
      expect(session.report().plannedAgain).toBe(undefined);
      expectSame(await train(trainer, work), wanted, 'adapted');
      const { plannedAgain, gpu } = session.report();
      expect(plannedAgain?.after).toBeLessThan(0.95 * (plannedAgain?.before ?? 0));
      expect(session.fit).not.toBe(before);
      expect(modesOf(trainer)).not.toBe(modes);
      expect(gpu.predictedPeak).toBeLessThanOrEqual(memory().gpu as number);
      expect(session.memory.rates).toEqual(measured());
      const [[groups, planned] = []] = asked.mock.calls;
      expect(planned).toEqual(slowLink());
      // All that warm-up did is in a group, with what it moved.
      expect(groups?.flatMap(({ operations }) => operations)).toEqual(before.passes.step.operations);
      expect(groups?.every(({ seconds }) => seconds >= 0)).toBe(true);
      const total = (field: 'upBytes' | 'downBytes' | 'transfers') =>
        (groups ?? []).reduce((sum, group) => sum + group[field], 0);
      for (const bytes of [total('upBytes'), total('downBytes')]) {
        expect(bytes).toBeGreaterThan(0);
        expect(bytes).toBeLessThanOrEqual(total('transfers') * before.map.chunkBytes);
      }
    });
  });

  test('and again where steps then have something come late, twice at most', async () => {
    warmedUp().mockImplementation(() => measured());
    const swings = [slowLink(), measured(), slowLink(), measured()];
    let ended = 0;
    stepEnded().mockImplementation(() => (++ended % 3 === 0 ? swings[ended / 3 - 1] : undefined));
    await onDevice(device, { ...memory(), adapts: true }, async (trainer) => {
      expectSame(await train(trainer, work), wanted, 'adapted');
      expect(ended).toBeGreaterThan(9);
      // Behind warm-up, and once more: what is then found leads to no third one.
      expect(trainer.session.memory.rates).toEqual(slowLink());
    });
  });

  test('keeps its plan where it would save little, and where it is not asked to adapt', async () => {
    const asked = warmedUp().mockImplementation((_, rates) => rates);
    for (const adapts of [true, false]) {
      await onDevice(device, { ...memory(), adapts }, async (trainer) => {
        const { fit } = trainer.session;
        expectSame(await train(trainer, work), wanted, 'as planned');
        expect(trainer.session.report().plannedAgain).toBe(undefined);
        expect(trainer.session.fit).toBe(fit);
        expect(trainer.session.memory.rates).toEqual(slowLink());
        expect(asked).toHaveBeenCalledTimes(1);
      });
    }
  });

  test.each([1, 2, 3])('whose device is lost %i steps after it began goes on', async (pair) => {
    warmedUp().mockImplementation(() => measured());
    const fragile = await fragileDevice(device);
    await onDevice(fragile.device, { ...memory(), adapts: true }, async (trainer) => {
      const outcome = await train(trainer, work, async (under) => {
        if (under === pair) fragile.lose();
      });
      expectSame(outcome, wanted, 'adapted');
      expect(trainer.recoveries).toBe(1);
    });
  });

  test('goes on as it was where the GPU has not the memory for the other plan', async () => {
    warmedUp().mockImplementation(() => measured());
    const fragile = await fragileDevice(device);
    await onDevice(fragile.device, { ...memory(), adapts: true }, async (trainer) => {
      const outcome = await train(trainer, work, async (pair) => {
        if (pair === 0) fragile.exhaust();
      });
      expectSame(outcome, wanted, 'as planned');
      expect(trainer.session.over).toBe(undefined);
      expect(trainer.session.report().plannedAgain).toBe(undefined);
      expect(trainer.session.memory.rates).toEqual(slowLink());
    });
  });
});
