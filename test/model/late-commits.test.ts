// The state of a step that arrives late below, when the next step has made gradients anew in the chunks that it was made from: these
// come to lie below behind it, and not before, or the end of the one step would take the gradients of the other with it.

import { afterEach, expect, test, vi } from 'vitest';
import { fitMemory, leastBudget, refitMemory } from '../../src/engine/compile/fit.ts';
import type { Fit } from '../../src/engine/compile/fitted.ts';
import { updatesOf } from '../../src/engine/compile/pass.ts';
import type { Rates } from '../../src/engine/compile/rates.ts';
import { limitsOf } from '../../src/engine/run/arrangement.ts';
import { ChunkCopies } from '../../src/engine/run/copies.ts';
import { Executor } from '../../src/engine/run/executor.ts';
import { priceOf } from '../../src/engine/simulate/price.ts';
import type { TrainingPasses } from '../../src/train/step/training-workload.ts';
import { at } from '../../src/util/at.ts';
import { chooseVariants } from '../choose-variants.ts';
import { testDevice } from '../harness.ts';
import { fragileDevice } from './fragile.ts';
import { expectSame, MODELS, openTrainer, run, train, type Work, workloadOf } from './runs.ts';

afterEach(() => vi.restoreAllMocks());

const work: Work = { model: MODELS['gpt2, tied'], batch: 2, seq: 8, accumulate: 2, steps: 4 };
/** With these moments stay on the GPU while gradients leave it. */
const rates: Rates = {
  ...{ flops: 1e9, upBytes: 1e8, downBytes: 1e8, copies: 'serial' },
  ...{ launchSeconds: 1e-6, copySeconds: 1e-6, answerSeconds: 1e-6 },
};
/** Of what lies between the smallest budget and everything: there some such gradients leave, and none at others. */
const SHARES = [0.2, 0.3, 0.34];

/** Milliseconds that what an update completed takes to come to lie below: as behind a slow disk. */
const LATE = 20;

/** Makes commits late. Returns how many gradients were made anew meanwhile in chunks that the commit frees. */
function lateCommits({ passes: { step } }: Fit<TrainingPasses>): () => number {
  const commitOf = new Map<number, number>();
  for (const { chunks, frees } of updatesOf(step)) for (const gradient of frees) commitOf.set(gradient, at(chunks, 0));
  const late = new Set<number | undefined>();
  let met = 0;
  const { change, put } = ChunkCopies.prototype;
  const { keepBelow } = Executor.prototype;
  vi.spyOn(Executor.prototype, 'keepBelow').mockImplementation(function (this: Executor, chunks, options) {
    late.add(chunks[0]);
    return keepBelow.call(this, chunks, options);
  });
  vi.spyOn(ChunkCopies.prototype, 'change').mockImplementation(function (this: ChunkCopies, chunk) {
    if (late.has(commitOf.get(chunk))) met++;
    change.call(this, chunk);
  });
  vi.spyOn(ChunkCopies.prototype, 'put').mockImplementation(async function (this: ChunkCopies, entries) {
    if (entries.length > 1) await new Promise((resolve) => setTimeout(resolve, LATE));
    await put.call(this, entries);
    late.delete(entries[0]?.chunk);
  });
  return () => met;
}

test.each(['stays', 'is lost'])('no gradient of the next step goes with it, where the device %s', async (device) => {
  const real = await testDevice();
  chooseVariants(1);
  const { outcome: wanted, choices } = await run(real, work);
  const limits = limitsOf(real, { rates });
  const all = fitMemory(workloadOf(work), limits, undefined).peak;
  const gpu = Math.ceil(0.7 * all);
  const first = fitMemory(workloadOf(work), limits, gpu, { recovery: 'step' });
  const least = leastBudget(first, limits, { recovery: 'step' });
  let met = 0;
  for (const share of SHARES) {
    const budget = Math.ceil(least + share * (all - least));
    chooseVariants(1);
    const fragile = await fragileDevice(real);
    const trainer = await openTrainer(fragile.device, work, { memory: { gpu, rates, recovery: 'step' }, choices });
    await trainer.setBudget(budget);
    const count = lateCommits(trainer.session.fit);
    const outcome = await train(trainer, work, async (pair) => {
      if (device === 'is lost' && pair === 1) fragile.lose();
    });
    expectSame(outcome, wanted, `within ${budget} bytes`);
    met += count();
    vi.restoreAllMocks();
    await trainer.destroy();
  }
  expect(met).toBeGreaterThan(0);
});

test('nor on the clock that plans are priced by', () => {
  const limits = { binding: 2 ** 27, buffer: 2 ** 28, rates };
  const workload = workloadOf(work);
  const all = fitMemory(workload, limits, undefined).peak;
  const first = fitMemory(workload, limits, Math.ceil(0.7 * all), { recovery: 'step' });
  const least = leastBudget(first, limits, { recovery: 'step' });
  for (const share of [...SHARES, 0.32, 0.36]) {
    const fit = refitMemory(first, limits, Math.ceil(least + share * (all - least)), { recovery: 'step' });
    expect(priceOf(fit, fit.passes.step, limits).seconds).toBeGreaterThan(0);
  }
});
