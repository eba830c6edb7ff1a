// Does it matter to a run in which order its micro-batches go through the model? Not to a bit of its losses, norms and
// weights, within any budget and with any activations; and layer by layer parameters move once a step.

import { beforeAll, describe, expect, it } from 'vitest';
import { fitMemory, smallestBudget } from '../../src/engine/compile/fit.ts';
import { limitsOf } from '../../src/engine/run/arrangement.ts';
import type { Device } from '../../src/gpu/device.ts';
import type { ActivationMode } from '../../src/graph/activations.ts';
import type { AccumulateOrder } from '../../src/graph/layer-major.ts';
import { traceStep } from '../../src/train/step-programs.ts';
import { trainingWorkload } from '../../src/train/trainer.ts';
import { chooseVariants } from '../choose-variants.ts';
import { testDevice } from '../harness.ts';
import { EVERY_CASE } from '../host.ts';
import { expectSame, MODELS, memoryDisk, type Outcome, run, type Work } from './runs.ts';

const SAMPLED = ['gpt2, tied', 'gpt2 with low-rank updates', 'llama, grouped heads'];
const models = Object.entries(MODELS).filter(([name]) => EVERY_CASE || SAMPLED.includes(name));
const modes: readonly ActivationMode[] = EVERY_CASE
  ? ['keep', 'light', 'recompute', 'spill', 'offload']
  : ['keep', 'spill'];

describe.each(models)('%s', (_, model) => {
  const work: Work = { model, batch: 2, seq: 7, accumulate: 3, steps: 2 };
  let device: Device;
  let wanted: Outcome;
  const workload = (accumulateOrder: AccumulateOrder | 'auto', activations: ActivationMode | 'auto' = 'auto') =>
    trainingWorkload(model, traceStep(model, work.batch, work.seq), work.accumulate, undefined, {
      activations,
      accumulateOrder,
    });

  beforeAll(async () => {
    chooseVariants(5);
    device = await testDevice();
    wanted = (await run(device, work, { memory: { accumulateOrder: 'batch', activations: 'keep' } })).outcome;
  });

  it.each(modes)(
    'has the same bits layer by layer, with --activations %s, resident and in its smallest budget',
    async (activations) => {
      const order = { accumulateOrder: 'layer', activations } as const;
      expectSame((await run(device, work, { memory: order })).outcome, wanted, `${activations}, resident`);
      const gpu = smallestBudget(workload('layer', activations), limitsOf(device));
      const memory = { ...order, gpu, host: 60_000, disk: memoryDisk() };
      device.allocator.restartPeak();
      expectSame((await run(device, work, { memory })).outcome, wanted, `${activations}, in ${gpu} bytes`);
      const fit = fitMemory(workload('layer', activations), limitsOf(device), gpu);
      expect(fit.workload.order?.order).toBe('layer');
      expect(device.allocator.peak).toBe(fit.peak);
    },
  );

  it('takes an order by itself, and the same bits come of it', async () => {
    const least = smallestBudget(workload('auto'), limitsOf(device));
    const gpu = Math.ceil(1.1 * least);
    expectSame((await run(device, work, { memory: { gpu } })).outcome, wanted, `${gpu} bytes`);
  });
});
