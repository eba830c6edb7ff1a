// A budget that changes while a training runs, because it is asked for or because the GPU has less memory than
// it was asked for, changes no bit; one that cannot work changes nothing at all.

import { afterEach, beforeAll, beforeEach, describe, expect, test, vi } from 'vitest';
import type { ChoiceRecord } from '../../src/engine/compile/choices.ts';
import { fitMemory, refitMemory, leastBudget as smallestRefit } from '../../src/engine/compile/fit.ts';
import type { Rates } from '../../src/engine/compile/rates.ts';
import { limitsOf, type MemoryOptions } from '../../src/engine/run/arrangement.ts';
import type { Device } from '../../src/gpu/device.ts';
import type { Trainer } from '../../src/train/step/trainer.ts';
import { HoldfastError } from '../../src/util/errors.ts';
import { chooseVariants } from '../choose-variants.ts';
import { leading } from '../entry.ts';
import { testDevice } from '../harness.ts';
import { type Fragile, fragileDevice } from './fragile.ts';
import {
  batchesOf,
  budgetFor,
  expectSame,
  leastBudget,
  leastHostUnder,
  MODELS,
  memoryDisk,
  type Outcome,
  openTrainer,
  run,
  train,
  type Work,
  workloadOf,
} from './runs.ts';

const work: Work = { model: MODELS['gpt2, untied'], batch: 1, seq: 8, accumulate: 1, steps: 6 };

let real: Device;
let wanted: Outcome;
let choices: ChoiceRecord;
beforeAll(async () => {
  real = await testDevice();
  chooseVariants(1);
  ({ outcome: wanted, choices } = await run(real, work));
});
beforeEach(() => chooseVariants(1));
afterEach(() => {
  vi.restoreAllMocks();
});

async function onFragile(
  memory: MemoryOptions,
  use: (trainer: Trainer, fragile: Fragile) => Promise<void>,
  gpuBytes = Number.POSITIVE_INFINITY,
): Promise<void> {
  const fragile = await fragileDevice(real);
  fragile.memory = gpuBytes;
  const trainer = await openTrainer(fragile.device, work, { memory, choices });
  try {
    await use(trainer, fragile);
  } finally {
    await trainer.destroy();
    expect(fragile.device.allocator.bytes, 'bytes left on the last device').toBe(0);
  }
}

const peakOf = (trainer: Trainer): number => trainer.session.report().gpu.predictedPeak;

/** With tiers below for the fewest chunks that work. */
function aboveDisk(memory: MemoryOptions): MemoryOptions {
  return { ...memory, host: leastHostUnder(real, work, memory), disk: memoryDisk() };
}

describe.each(['step', 'checkpoint'] as const)('asked for, recovery %s', (recovery) => {
  test.each(['host', 'disk'])('down and up again while steps are under way, above %s memory', async (below) => {
    const gpu = budgetFor(real, work, 1 / 2, recovery);
    const memory = below === 'disk' ? aboveDisk({ gpu, recovery }) : { gpu, recovery };
    await onFragile(memory, async (trainer, { device }) => {
      const refused = await trainer.setBudget(1000).catch((error) => error);
      expect(refused).toBeInstanceOf(HoldfastError);
      const least = Number(/needs (\d+) bytes/.exec(refused.message)?.[1]);
      expect(least).toBeLessThan(gpu);
      const before = peakOf(trainer);
      const outcome = await train(trainer, work, async (pair) => {
        if (pair === 0) {
          await trainer.setBudget(least);
          expect(peakOf(trainer)).toBe(least);
        } else if (pair === 1) {
          await expect(trainer.setBudget(least - 1)).rejects.toThrow(`needs ${least} bytes`);
          expect(peakOf(trainer)).toBe(least);
        } else {
          await trainer.setBudget(4 * gpu);
          expect(peakOf(trainer)).toBeGreaterThan(before);
        }
        expect(device.allocator.bytes).toBe(peakOf(trainer));
      });
      expectSame(outcome, wanted, 'changing budgets');
    });
  });
});

describe('by auto each budget has the recovery that suits it', () => {
  /** Copies beside arithmetic: at some budgets a step hardly waits for those of its state. */
  const rates: Rates = {
    ...{ flops: 1e9, upBytes: 1e9, downBytes: 1e9, copies: 'duplex' },
    ...{ launchSeconds: 1e-6, copySeconds: 1e-6, answerSeconds: 1e-6 },
  };

  /** Budgets of one run: that it begins with, and of others one where steps are kept and one where they are not. */
  function budgets() {
    const limits = limitsOf(real, { rates });
    const all = fitMemory(workloadOf(work), limits, undefined).peak;
    const first = fitMemory(workloadOf(work), limits, all);
    const least = smallestRefit(first, limits);
    const others = [0.1, 0.3, 0.5, 0.7, 0.8].map((share) => Math.ceil(least + share * (all - least)));
    const within = (durable: boolean) =>
      others.find((budget) => refitMemory(first, limits, budget).durable === durable) ?? 0;
    return { gpu: all, kept: within(true), left: within(false) };
  }

  test('while steps are under way, with the same bits; where they are kept a lost device costs one', async () => {
    const { gpu, kept, left } = budgets();
    await onFragile({ gpu, rates }, async (trainer, fragile) => {
      const found: boolean[] = [];
      const outcome = await train(trainer, work, async (pair) => {
        if (pair === 2) return;
        await trainer.setBudget(pair === 0 ? left : kept);
        found.push(trainer.session.fit.durable);
        if (pair === 1) fragile.lose();
      });
      expect(found).toEqual([false, true]);
      expectSame(outcome, wanted, 'by auto');
      expect(trainer.recoveries).toBe(1);
    });
  });

  test('where they are not, a lost device ends the run with one error that says what to do', async () => {
    const { gpu, left } = budgets();
    await onFragile({ gpu, rates }, async (trainer, fragile) => {
      await trainer.setBudget(left);
      const [batches] = leading(1, batchesOf(work));
      await trainer.start(batches);
      fragile.lose();
      await expect(trainer.start(batches)).rejects.toThrow('resume from the last checkpoint');
      expect(trainer.recoveries).toBe(0);
    });
  });
});

describe('a GPU with less memory than it was asked for', () => {
  test('that shows while running: the rest runs in four fifths of it', async () => {
    const memory = { gpu: budgetFor(real, work, 1), recovery: 'step' } as const;
    await onFragile(memory, async (trainer, fragile) => {
      const before = peakOf(trainer);
      const outcome = await train(trainer, work, async (pair) => {
        if (pair === 1) fragile.runOut();
      });
      expectSame(outcome, wanted, 'out of memory');
      expect(trainer.recoveries).toBe(1);
      expect(peakOf(trainer)).toBeLessThanOrEqual(before * 0.8);
      expect(fragile.device.allocator.peak).toBe(peakOf(trainer));
    });
  });

  test('that shows while running within the smallest budget: one error, which names what is needed', async () => {
    const gpu = leastBudget(real, work);
    await onFragile({ gpu }, async (trainer, fragile) => {
      const [batches] = leading(1, batchesOf(work));
      const step = trainer.start(batches).catch((error) => error);
      fragile.runOut();
      const error = await step;
      expect(error).toBeInstanceOf(HoldfastError);
      expect(error.message).toContain(`needs ${gpu} bytes`);
      await expect(trainer.start(batches)).rejects.toBe(error);
    });
  });

  const whole = () => fitMemory(workloadOf(work), limitsOf(real), undefined).peak;

  test.each(['auto', 'a fixed budget'])('that shows at the start, with %s: what fits is found', async (kind) => {
    const least = leastBudget(real, work);
    const gpuBytes = Math.floor((least + whole()) / 2);
    const gpu = kind === 'auto' ? 'auto' : whole();
    await onFragile(
      { gpu },
      async (trainer, fragile) => {
        expectSame(await train(trainer, work), wanted, kind);
        expect(fragile.device.allocator.bytes).toBe(peakOf(trainer));
        expect(peakOf(trainer)).toBeLessThanOrEqual(gpuBytes);
        expect(peakOf(trainer)).toBeGreaterThan(gpuBytes / 2);
      },
      gpuBytes,
    );
  });

  test.each(['auto', 'a fixed budget'])('that nothing fits into, with %s: one clear error', async (kind) => {
    const gpuBytes = Math.floor(leastBudget(real, work) * 0.9);
    const gpu = kind === 'auto' ? 'auto' : whole();
    const opened = onFragile({ gpu }, async () => {}, gpuBytes);
    await expect(opened).rejects.toBeInstanceOf(HoldfastError);
    await expect(opened).rejects.toThrow(
      kind === 'auto' ? /bytes .* is the smallest budget that works/ : "does not fit into the GPU's memory",
    );
  });
});
