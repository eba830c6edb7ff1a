// Random placements of everything at once: budget, order of micro-batches, treatment of activations, tiers, recovery, policy and
// reading ahead, of random work: model, widths, where the optimizer runs and when it updates. Each has the bits of the run that had
// all memory, and the peak that was predicted, to the byte.

import fc from 'fast-check';
import { expect, test } from 'vitest';
import { needBelow } from '../../src/engine/compile/candidate.ts';
import { fitMemory } from '../../src/engine/compile/fit.ts';
import { smallestBudget } from '../../src/engine/compile/least.ts';
import { heldByUpdate } from '../../src/engine/compile/workload.ts';
import { limitsOf, type MemoryOptions, optionsOf } from '../../src/engine/run/arrangement.ts';
import { ACTIVATION_MODES } from '../../src/graph/activations.ts';
import { ACTIVATION_DTYPES } from '../../src/graph/narrow-activations.ts';
import { backwardPassesOf } from '../../src/graph/operators/optimizer.ts';
import { trainingDtypeOf } from '../../src/memory/layout/chunk-map.ts';
import { MOMENT_DTYPES, TRAINING_DTYPES } from '../../src/memory/layout/kinds.ts';
import { ORDERS } from '../../src/memory/plan/policies.ts';
import { bytesBelow, leastHostBytes } from '../../src/memory/tiers/shares.ts';
import { computedIn, momentsIn, optimizedOn } from '../../src/nn/model.ts';
import { traceStep } from '../../src/train/step/step-programs.ts';
import { trainingWorkload } from '../../src/train/step/training-workload.ts';
import { chooseVariants } from '../choose-variants.ts';
import { testDevice } from '../harness.ts';
import { EVERY_CASE, testHost } from '../host.ts';
import { randomOrder } from '../plan/random-order.ts';
import { expectSame, MODELS, memoryDisk, run, type Work } from './runs.ts';

const named = fc.constantFrom('planned' as const, ...(Object.keys(ORDERS) as (keyof typeof ORDERS)[]));
const share = fc.double({ min: 0, max: 1, noNaN: true });

const works = fc.record({
  name: fc.constantFrom(...(Object.keys(MODELS) as (keyof typeof MODELS)[])),
  accumulate: fc.integer({ min: 1, max: 4 }),
  batch: fc.integer({ min: 1, max: 3 }),
  seq: fc.integer({ min: 1, max: 9 }),
  dtype: fc.constantFrom(...TRAINING_DTYPES),
  momentDtype: fc.constantFrom(...MOMENT_DTYPES),
  activationDtype: fc.constantFrom(...ACTIVATION_DTYPES),
  optimizerDevice: fc.constantFrom('gpu' as const, 'cpu' as const, 'auto' as const),
  /** Of `auto`: how many tensors are updated on the GPU. */
  split: fc.integer({ min: 0, max: 2 }),
  update: fc.constantFrom('at-end' as const, 'in-backward' as const),
  clip: fc.constantFrom(1, 100),
});

const placements = fc.record({
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
  const moved = new Set<number>();
  await fc.assert(
    fc.asyncProperty(works, placements, async (drawn, { above, onHost, ...placed }) => {
      const { name, dtype, momentDtype, split, ...how } = drawn;
      const { batch, seq, accumulate, activationDtype, optimizerDevice, update, clip } = how;
      const model = momentsIn(computedIn(MODELS[name], dtype), momentDtype);
      const work: Work = { ...how, model, steps: 2, ...(optimizerDevice === 'auto' && { optimizerSplit: split }) };
      const { activations, accumulateOrder, recovery } = placed;
      // These are refused.
      fc.pre(update === 'at-end' || accumulate === 1 || accumulateOrder !== 'batch');
      fc.pre(optimizerDevice !== 'cpu' || recovery === 'step');
      const { threads } = testHost;
      const reference = await run(device, work, { threads });
      const traced = optimizedOn(model, optimizerDevice, split);
      const programs = traceStep(traced, batch, seq, {
        activationDtype,
        passes: backwardPassesOf(update, { clip, dtype: trainingDtypeOf(traced.parameters) }),
      });
      const options = { activations, accumulateOrder };
      const workload = trainingWorkload(traced, programs, accumulate, undefined, options);
      const least = smallestBudget(workload, limits, { recovery });
      const all = fitMemory(workload, limits, undefined).peak;
      const wanted = Math.floor(least + above * Math.max(0, all - least));
      const need = needBelow(fitMemory(workload, limits, wanted, optionsOf({ recovery })));
      // Beside a disk chunks may be of another size, of those that there are for so small a model.
      const leastHost = leastHostBytes({ ...need, chunkBytes: Math.max(need.chunkBytes, SMALLEST_SIZE) }, true);
      const host =
        onHost === null ? undefined : leastHost + Math.ceil(onHost * Math.max(0, bytesBelow(need) - leastHost));
      const below: MemoryOptions = { ...placed, ...(host !== undefined && { host, disk: memoryDisk() }) };
      // In so little host memory not all chunks have room.
      const gpu = Math.max(wanted, smallestBudget(workload, limits, optionsOf(below, heldByUpdate(workload))));
      const memory = { ...below, gpu };
      device.allocator.restartPeak();
      const { outcome, report } = await run(device, work, { memory, choices: reference.choices, threads });
      expectSame(outcome, reference.outcome, `in ${gpu} bytes`);
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
