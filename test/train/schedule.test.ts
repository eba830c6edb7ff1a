import { readdirSync, readFileSync } from 'node:fs';
import { describe, expect, test } from 'vitest';
import { checkSchedule, type LearningRateSchedule, learningRate } from '../../src/train/step/schedule.ts';
import { HoldfastError } from '../../src/util/errors.ts';

const REFERENCE = new URL('../fixtures/reference/', import.meta.url);
const cases = readdirSync(REFERENCE, { withFileTypes: true })
  .filter((entry) => entry.isDirectory() && entry.name !== 'ops')
  .map((entry) => entry.name);
const base: LearningRateSchedule = { decay: 'cosine', peak: 1e-3, min: 1e-4, warmup: 5, steps: 20 };

describe('learningRate', () => {
  test.each(cases)('repeats the reference schedule of %s', (name) => {
    const { lr, hparams } = JSON.parse(readFileSync(new URL(`${name}/ref.json`, REFERENCE), 'utf8'));
    const { lr_max: peak, lr_min: min, warmup, steps } = hparams;
    const schedule: LearningRateSchedule = { decay: 'cosine', peak, min, warmup, steps };
    expect(lr.length).toBe(steps);
    // The same formula in float64; cos may differ in its last bit between libraries.
    for (let step = 0; step < steps; step++) {
      expect(Math.abs(learningRate(schedule, step) / lr[step] - 1)).toBeLessThanOrEqual(4 * Number.EPSILON);
    }
  });

  test('warms up along a line to the peak, whatever follows', () => {
    for (const decay of ['constant', 'linear', 'cosine'] as const) {
      const rates = [0, 1, 2, 3, 4, 5].map((step) => learningRate({ ...base, decay }, step));
      expect(rates).toEqual([(1e-3 * 1) / 5, (1e-3 * 2) / 5, (1e-3 * 3) / 5, (1e-3 * 4) / 5, 1e-3, 1e-3]);
    }
  });

  test('linear is halfway in the middle, constant stays', () => {
    const schedule: LearningRateSchedule = { ...base, peak: 1, min: 0.5, warmup: 0, steps: 10 };
    expect(learningRate({ ...schedule, decay: 'linear' }, 5)).toBe(0.75);
    expect(learningRate({ ...schedule, decay: 'linear' }, 0)).toBe(1);
    expect(learningRate({ ...schedule, decay: 'constant' }, 10_000)).toBe(1);
  });

  test('ends at the minimum and stays there', () => {
    for (const decay of ['linear', 'cosine'] as const) {
      for (const step of [20, 21, 1e6]) expect(learningRate({ ...base, decay }, step)).toBe(1e-4);
    }
  });

  test('a warm-up as long as the run, or longer, has no decay in it', () => {
    expect(learningRate({ ...base, warmup: 20 }, 19)).toBe(1e-3);
    expect(learningRate({ ...base, warmup: 40 }, 19)).toBe(5e-4);
    expect(learningRate({ ...base, warmup: 20 }, 20)).toBe(1e-4);
  });
});

test('checkSchedule names what is out of range', () => {
  expect(() => checkSchedule(base)).not.toThrow();
  const bad: [Partial<LearningRateSchedule>, string][] = [
    [{ decay: 'step' as 'linear' }, 'schedule "step": choose one of constant, linear, cosine'],
    [{ peak: 0 }, 'learning rate 0'],
    [{ peak: Number.NaN }, 'learning rate NaN'],
    [{ min: 2e-3 }, 'minimum learning rate 0.002: must lie between 0 and the peak, 0.001'],
    [{ min: -1 }, 'minimum learning rate -1'],
    [{ warmup: 1.5 }, 'warm-up of 1.5 steps'],
    [{ steps: 0 }, '0 training steps'],
  ];
  for (const [change, message] of bad) {
    expect(() => checkSchedule({ ...base, ...change })).toThrow(HoldfastError);
    expect(() => checkSchedule({ ...base, ...change })).toThrow(message);
  }
});
