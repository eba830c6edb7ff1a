// Does it matter to a run in which order its micro-batches go through the model? Not to a bit of its losses, norms and
// weights, within any budget and with any activations; and layer by layer parameters move once a step.

import { assert, beforeAll, describe, expect, it } from 'vitest';
import type { ChoiceRecord } from '../../src/engine/compile/choices.ts';
import { fitMemory, leastBudget, refitMemory } from '../../src/engine/compile/fit.ts';
import { smallestBudget } from '../../src/engine/compile/least.ts';
import { limitsOf } from '../../src/engine/run/arrangement.ts';
import { parseConfig } from '../../src/formats/config.ts';
import type { Device } from '../../src/gpu/device.ts';
import { ACTIVATION_MODES, type ActivationMode } from '../../src/graph/activations.ts';
import type { AccumulateOrder } from '../../src/graph/layer-major.ts';
import { lastingKinds } from '../../src/memory/layout/kinds.ts';
import { makeModel } from '../../src/nn/index.ts';
import { traceStep } from '../../src/train/step/step-programs.ts';
import type { Trainer } from '../../src/train/step/trainer.ts';
import { trainingWorkload } from '../../src/train/step/training-workload.ts';
import { collect, sourceOf } from '../../src/values/tensor-source.ts';
import { chooseVariants } from '../choose-variants.ts';
import { testDevice } from '../harness.ts';
import { EVERY_CASE } from '../host.ts';
import { fragileDevice } from './fragile.ts';
import {
  batchesOf,
  expectSame,
  LARGEST,
  type Micros,
  MODELS,
  memoryDisk,
  type Outcome,
  openTrainer,
  run,
  train,
  type Work,
  workloadOf,
} from './runs.ts';

const SAMPLED = ['gpt2 with low-rank updates', 'llama, grouped heads'];
const models = Object.entries(MODELS).filter(([name]) => EVERY_CASE || SAMPLED.includes(name));
const modes: readonly ActivationMode[] = EVERY_CASE ? ACTIVATION_MODES : ['spill'];

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

/** Parameters weigh more than what is computed with them. */
const WIDE = makeModel(
  parseConfig({ model_type: 'gpt2', n_layer: 2, n_embd: 256, n_head: 4, n_positions: 4, vocab_size: 60 }, 'test'),
);

describe('in the middle of a run', () => {
  const work: Work = { model: LARGEST, batch: 1, seq: 1, accumulate: 4, steps: 4 };
  let device: Device;
  let wanted: Outcome;
  let choices: ChoiceRecord;

  beforeAll(async () => {
    chooseVariants(5);
    device = await testDevice();
    ({ outcome: wanted, choices } = await run(device, work, { memory: { accumulateOrder: 'batch' } }));
  });

  it('another budget may change the order, and changes no bit', async () => {
    const wide: Work = { ...work, model: WIDE };
    const { outcome, choices } = await run(device, wide, { memory: { accumulateOrder: 'batch' } });
    const all = fitMemory(workloadOf(wide), limitsOf(device), undefined).peak;
    const trainer = await openTrainer(device, wide, { memory: { gpu: Math.floor(all / 2) }, choices });
    try {
      const { fit } = trainer.session;
      const least = leastBudget(fit, limitsOf(device));
      const orderIn = (gpu: number) => refitMemory(fit, limitsOf(device), gpu).workload.order?.order;
      const budgets = [0, 0.05, 0.1, 0.2, 0.4, 0.6, 1].map((share) => Math.floor(least + share * (all - least)));
      const [byLayer, byBatch] = (['layer', 'batch'] as const).map((order) =>
        budgets.find((gpu) => orderIn(gpu) === order),
      );
      assert(byLayer !== undefined && byBatch !== undefined, 'both orders pay, each within some budget');
      const found = await train(trainer, wide, async (pair) => {
        await trainer.setBudget(pair === 0 ? byLayer : byBatch);
        expect(trainer.session.fit.workload.order?.order).toBe(pair === 0 ? 'layer' : 'batch');
        expect(device.allocator.bytes).toBe(trainer.session.fit.peak);
      });
      expectSame(found, outcome, 'changing budgets');
    } finally {
      await trainer.destroy();
    }
  });

  it('a run goes on in another order from what it saved', async () => {
    const batches = batchesOf(work);
    const numbers: unknown[] = [];
    const steps = async (trainer: Trainer, some: readonly Micros[]) => {
      for (const micros of some) {
        const { loss, gradNorm, skipped } = await trainer.start(micros);
        numbers.push([loss, gradNorm, skipped]);
      }
    };
    const before = await openTrainer(device, work, { memory: { accumulateOrder: 'batch' }, choices });
    await steps(before, batches.slice(0, 2));
    const state = await before.state();
    const [parameter, ...moments] = await Promise.all(lastingKinds('f32').map((kind) => collect(before.values(kind))));
    assert(parameter);
    await before.destroy();
    const memory = { gpu: smallestBudget(workloadOf(work), limitsOf(device)) * 2, accumulateOrder: 'layer' } as const;
    const after = await openTrainer(device, work, { memory, choices, weights: sourceOf(parameter) });
    for (const [i, values] of moments.entries())
      await after.setValues(i === 0 ? 'moment1' : 'moment2', sourceOf(values));
    after.restore(state);
    await steps(after, batches.slice(2));
    expect(numbers).toEqual(wanted.steps);
    expect(await collect(after.values('parameter'))).toEqual(wanted.parameter);
    await after.destroy();
  });

  it('a lost device costs no bit, with activations of all micro-batches below', async () => {
    const few: Work = { ...work, steps: 2 };
    const { outcome } = await run(device, few, { memory: { accumulateOrder: 'batch' }, choices });
    const options = { accumulateOrder: 'layer', activations: 'spill' } as const;
    const spilled = trainingWorkload(
      work.model,
      traceStep(work.model, work.batch, work.seq),
      work.accumulate,
      undefined,
      options,
    );
    const gpu = Math.ceil(1.2 * smallestBudget(spilled, limitsOf(device)));
    const memory = { ...options, gpu, recovery: 'step' } as const;
    for (const nth of EVERY_CASE ? [1, 4, 9, 16, 25, 36] : [9]) {
      const fragile = await fragileDevice(device);
      const trainer = await openTrainer(fragile.device, few, { memory, choices });
      let calls = 0;
      fragile.before = (call) => {
        if (call === 'submit' && calls++ === nth) fragile.lose();
      };
      expectSame(await train(trainer, few), outcome, `lost at submit ${nth}`);
      expect(trainer.recoveries).toBe(1);
      fragile.before = undefined;
      await trainer.destroy();
    }
  });
});
