// The choice of what the loss of a device costs (`--recovery auto`): each step's state is kept below the GPU where a step takes at most
// a twentieth longer for that, by the rates that fits go by.

import { describe, expect, test } from 'vitest';
import { fitMemory } from '../../src/engine/compile/fit.ts';
import { smallestBudget } from '../../src/engine/compile/least.ts';
import { type Rates, typicalRates } from '../../src/engine/compile/rates.ts';
import type { Recovery } from '../../src/engine/compile/recovery.ts';
import { DEFAULT_LIMITS } from '../../src/engine/compile/workload.ts';
import { priceOf } from '../../src/engine/simulate/price.ts';
import { configOfShape } from '../../src/formats/shape.ts';
import { makeModel } from '../../src/nn/index.ts';
import { optimizedOn } from '../../src/nn/model.ts';
import { traceStep } from '../../src/train/step/step-programs.ts';
import { trainingWorkload } from '../../src/train/step/training-workload.ts';
import { EVERY_CASE } from '../host.ts';

const MODEL = makeModel(
  configOfShape({ family: 'gpt2', layers: 4, width: 256, heads: 4, context: 64, vocabulary: 2000 }),
);
/** Of little arithmetic beside its parameters, and of much. */
const SHORT = trainingWorkload(MODEL, traceStep(MODEL, 1, 16), 1);
const LONG = trainingWorkload(MODEL, traceStep(MODEL, 64, 64), 1);

const GPU = typicalRates(false);
const DUPLEX: Rates = { ...GPU, copies: 'duplex' };

const within = (workload: typeof SHORT, share: number, rates: Rates, recovery?: Recovery) => {
  const limits = { ...DEFAULT_LIMITS, rates };
  const [least, all] = [smallestBudget(workload, limits), fitMemory(workload, limits, undefined).peak];
  const fit = fitMemory(workload, limits, Math.ceil(least + share * (all - least)), { recovery });
  return { fit, seconds: priceOf(fit, fit.passes.step, limits).seconds };
};

/** Shares of what lies between the smallest budget and everything. */
const SHARES = EVERY_CASE ? [0.3, 0.5, 0.7, 0.9, 1, 1.3] : [0.8, 1.3];

test.each(SHARES)('where copies take turns with little arithmetic, none is kept, in %d of its memory', (share) => {
  const [own, keeping, without] = [undefined, 'step', 'checkpoint'].map((recovery) =>
    within(SHORT, share, GPU, recovery as Recovery | undefined),
  );
  expect(keeping?.seconds).toBeGreaterThan(1.05 * (without?.seconds ?? 0));
  expect(keeping?.fit.durable).toBe(true);
  expect(own?.fit.durable).toBe(false);
  expect(own?.seconds).toBe(without?.seconds);
});

test.each(SHARES)('where arithmetic is most of a step each one is kept, in %d of its memory', (share) => {
  for (const rates of [typicalRates(true), { ...GPU, flops: 1e11 }]) {
    const [own, without] = [within(LONG, share, rates), within(LONG, share, rates, 'checkpoint')];
    expect(own.fit.durable).toBe(true);
    expect(own.seconds).toBeLessThanOrEqual(1.05 * without.seconds);
  }
});

test.each(SHARES)(
  'where copies are beside arithmetic it goes by what they are waited for, in %d of its memory',
  (share) => {
    for (const workload of [SHORT, LONG]) {
      const [own, keeping, without] = [undefined, 'step', 'checkpoint'].map((recovery) =>
        within(workload, share, DUPLEX, recovery as Recovery | undefined),
      );
      const [most = 0, least = 0] = [keeping?.seconds, without?.seconds];
      expect(own?.fit.durable).toBe(most <= 1.05 * least);
      expect(own?.seconds).toBeLessThanOrEqual(most <= 1.05 * least ? most : least);
    }
  },
);

test.each([GPU, DUPLEX])('in little memory a step takes no longer than with either recovery by itself', (rates) => {
  const deep = makeModel(
    configOfShape({ family: 'gpt2', layers: 12, width: 256, heads: 4, context: 128, vocabulary: 256 }),
  );
  const workload = trainingWorkload(deep, traceStep(deep, 1, 128), 1);
  const [own, keeping, without] = [undefined, 'step', 'checkpoint'].map((recovery) =>
    within(workload, 0.02, rates, recovery as Recovery | undefined),
  );
  const [most = 0, least = 0] = [keeping?.seconds, without?.seconds];
  expect(own?.seconds).toBeLessThanOrEqual(own?.fit.durable ? most : Math.min(most, least));
  // By itself it is found about as well: its staging is tried each way.
  expect(least).toBeLessThanOrEqual(1.01 * most);
});

describe('what it is not asked for', () => {
  const limits = { ...DEFAULT_LIMITS, rates: GPU };

  test('the smallest budget is that of steps that are kept, and less is refused', () => {
    const small = makeModel(
      configOfShape({ family: 'gpt2', layers: 2, width: 32, heads: 2, context: 16, vocabulary: 100 }),
    );
    const workload = trainingWorkload(small, traceStep(small, 1, 16), 1);
    const least = smallestBudget(workload, limits);
    expect(least).toBe(smallestBudget(workload, limits, { recovery: 'step' }));
    expect(fitMemory(workload, limits, least).peak).toBeLessThanOrEqual(least);
    expect(() => fitMemory(workload, limits, least - 1)).toThrow(`${least} bytes`);
  });

  test('where the host updates, each step is below anyway', () => {
    const workload = trainingWorkload(optimizedOn(MODEL, 'cpu'), traceStep(optimizedOn(MODEL, 'cpu'), 1, 16), 1);
    expect(within(workload, 1.3, GPU).fit.durable).toBe(true);
  });
});
