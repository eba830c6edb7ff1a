// Random placements of everything at once: budget, order of micro-batches, treatment of activations, tiers, recovery, policy and
// reading ahead. Each has the bits of the run that had all memory, and the peak that was predicted, to the byte.

import fc from 'fast-check';
import { expect, test } from 'vitest';
import { needBelow } from '../../src/engine/compile/candidate.ts';
import { fitMemory } from '../../src/engine/compile/fit.ts';
import { smallestBudget } from '../../src/engine/compile/least.ts';
import { limitsOf, type MemoryOptions, optionsOf } from '../../src/engine/run/arrangement.ts';
import { ACTIVATION_MODES } from '../../src/graph/activations.ts';
import { ORDERS } from '../../src/memory/plan/policies.ts';
import { bytesBelow, leastHostBytes } from '../../src/memory/tiers/shares.ts';
import { traceStep } from '../../src/train/step/step-programs.ts';
import { trainingWorkload } from '../../src/train/step/training-workload.ts';
import { chooseVariants } from '../choose-variants.ts';
import { testDevice } from '../harness.ts';
import { EVERY_CASE } from '../host.ts';
import { randomOrder } from '../plan/random-order.ts';
import { expectSame, MODELS, memoryDisk, run, type Work } from './runs.ts';

const named = fc.constantFrom('planned' as const, ...(Object.keys(ORDERS) as (keyof typeof ORDERS)[]));
const share = fc.double({ min: 0, max: 1, noNaN: true });

const placements = fc.record({
  name: fc.constantFrom('gpt2, tied' as const, 'llama, grouped heads' as const),
  accumulate: fc.integer({ min: 1, max: 4 }),
  batch: fc.integer({ min: 1, max: 3 }),
  seq: fc.integer({ min: 1, max: 9 }),
  accumulateOrder: fc.constantFrom('batch' as const, 'layer' as const, 'auto' as const),
  activations: fc.constantFrom(...ACTIVATION_MODES, 'auto' as const),
  recovery: fc.constantFrom('step' as const, 'checkpoint' as const),
  policy: fc.oneof(named, fc.integer({ min: 0, max: 0x7fffffff }).map(randomOrder)),
  prefetch: fc.boolean(),
  // Small budgets more often.
  above: share.map((x) => x ** 2),
  // What of that which lies below is in host memory; without it there is no disk.
  onHost: fc.option(share),
});

/** Bytes: no chunks are planned smaller. */
const SMALLEST_SIZE = 16 * 1024;

// Each case is a training of its own.
const CASES = EVERY_CASE ? 400 : 6;

test(`${CASES} random placements`, async () => {
  chooseVariants(4);
  const device = await testDevice();
  const limits = limitsOf(device);
  const references = new Map<string, Awaited<ReturnType<typeof run>>>();
  const moved = new Set<number>();
  await fc.assert(
    fc.asyncProperty(placements, async ({ name, accumulate, batch, seq, above, onHost, ...placed }) => {
      const work: Work = { model: MODELS[name], batch, seq, accumulate, steps: 2 };
      const key = JSON.stringify([name, accumulate, batch, seq]);
      const reference = references.get(key) ?? (await run(device, work));
      references.set(key, reference);
      const { activations, accumulateOrder, recovery } = placed;
      const options = { activations, accumulateOrder };
      const workload = trainingWorkload(work.model, traceStep(work.model, batch, seq), accumulate, undefined, options);
      const least = smallestBudget(workload, limits, { recovery });
      const all = fitMemory(workload, limits, undefined).peak;
      const gpu = Math.floor(least + above * Math.max(0, all - least));
      const need = needBelow(fitMemory(workload, limits, gpu, optionsOf({ recovery })));
      // Beside a disk chunks may be of another size, of those that there are for so small a model.
      const leastHost = leastHostBytes({ ...need, chunkBytes: Math.max(need.chunkBytes, SMALLEST_SIZE) }, true);
      const host =
        onHost === null ? undefined : leastHost + Math.ceil(onHost * Math.max(0, bytesBelow(need) - leastHost));
      const memory: MemoryOptions = { ...placed, gpu, ...(host !== undefined && { host, disk: memoryDisk() }) };
      device.allocator.restartPeak();
      const { outcome, report } = await run(device, work, { memory, choices: reference.choices });
      expectSame(outcome, reference.outcome, JSON.stringify({ key, ...memory }));
      expect(report.gpu.predictedPeak).toBeLessThanOrEqual(gpu);
      expect(device.allocator.peak).toBe(report.gpu.predictedPeak);
      expect(report.host.peak).toBeLessThanOrEqual(host ?? Number.POSITIVE_INFINITY);
      moved.add(report.link.h2dBytes);
    }),
    { seed: 7, numRuns: CASES, endOnFailure: true },
  );
  // They were not all the same.
  expect(moved.size).toBeGreaterThan(CASES / 4);
});
