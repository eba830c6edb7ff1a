// Activations in bf16 and f16: what the forward pass keeps is rounded where it is made, and takes half the memory, on the GPU and
// below it. The same bits whatever becomes of it: kept, made again, or moved, in any budget and either order of micro-batches.

import { beforeAll, describe, expect, test } from 'vitest';
import { fitMemory } from '../../src/engine/compile/fit.ts';
import { limitsOf, type MemoryOptions } from '../../src/engine/run/arrangement.ts';
import { parseConfig } from '../../src/formats/config.ts';
import type { Device } from '../../src/gpu/device.ts';
import { saved } from '../../src/graph/activations.ts';
import { makeModel } from '../../src/nn/index.ts';
import { initialWeights } from '../../src/nn/initialise.ts';
import { traceStep } from '../../src/train/step/step-programs.ts';
import { trainingWorkload } from '../../src/train/step/training-workload.ts';
import { collect, sourceOf } from '../../src/values/tensor-source.ts';
import { chooseVariants } from '../choose-variants.ts';
import { testDevice } from '../harness.ts';
import { EVERY_CASE } from '../host.ts';
import { expectSame, leastBudget, type Micros, MODELS, memoryDisk, openTrainer, run, type Work } from './runs.ts';

let device: Device;
beforeAll(async () => {
  device = await testDevice();
  chooseVariants(5);
});

const SIXTEEN = ['bf16', 'f16'] as const;
const RUNS = EVERY_CASE
  ? (Object.keys(MODELS) as (keyof typeof MODELS)[]).flatMap((name) => SIXTEEN.map((dtype) => [name, dtype] as const))
  : ([
      ['gpt2, tied', 'bf16'],
      ['qwen2, biases', 'f16'],
    ] as const);

describe.each(RUNS)('%s, in %s', (name, activationDtype) => {
  const work: Work = { model: MODELS[name], batch: 2, seq: 8, accumulate: 2, steps: 4, activationDtype };

  test('trains with the same bits whatever becomes of activations, close to f32', async () => {
    const { outcome, choices } = await run(device, work, { memory: { activations: 'keep', accumulateOrder: 'batch' } });
    const memories: MemoryOptions[] = [
      { activations: 'recompute', accumulateOrder: 'batch' },
      { gpu: leastBudget(device, work), host: 60_000, disk: memoryDisk() },
      { activations: 'light' },
      { activations: 'offload', gpu: 2 * leastBudget(device, work) },
      { activations: 'spill', gpu: 2 * leastBudget(device, work) },
    ];
    for (const memory of EVERY_CASE ? memories : memories.slice(0, 2)) {
      const found = await run(device, work, { memory, choices });
      expectSame(found.outcome, outcome, JSON.stringify(memory));
    }
    const once = { ...work, accumulate: 1, steps: 2 };
    const early = await run(device, { ...once, update: 'in-backward' }, { choices });
    expectSame(early.outcome, (await run(device, once, { choices })).outcome, 'updated in the backward pass');
    const wide = await run(device, { ...work, activationDtype: 'f32' }, { choices });
    expect(wide.outcome.steps).not.toEqual(outcome.steps);
    for (const [i, [loss]] of wide.outcome.steps.entries())
      expect(Math.abs((outcome.steps[i]?.[0] ?? 0) / loss - 1), `step ${i}`).toBeLessThan(0.01);
  });
});

test.each(SIXTEEN)('%s: what is kept for the backward pass is half as large, but for what describes rows', (dtype) => {
  const shape = { model_type: 'gpt2', vocab_size: 64, n_positions: 64, n_embd: 64, n_layer: 12, n_head: 4 };
  const model = makeModel(parseConfig(shape, 'test'));
  const limits = limitsOf(device);
  const [wide, narrow] = (['f32', dtype] as const).map((activationDtype) => {
    const programs = traceStep(model, 8, 64, { activationDtype });
    const bytes = saved(programs.first).reduce((sum, each) => sum + each.bytes, 0);
    const rows = saved(programs.first).reduce(
      (sum, { tensor, bytes }) => sum + (tensor.size < 8 * 64 * 32 ? bytes : 0),
      0,
    );
    const { nonModel } = fitMemory(
      trainingWorkload(model, programs, 1, undefined, { activations: 'keep' }),
      limits,
      undefined,
    );
    return { bytes, rows, arenas: nonModel.arenas };
  });
  expect(wide && narrow && narrow.bytes - narrow.rows).toBe(((wide?.bytes ?? 0) - (wide?.rows ?? 0)) / 2);
  expect(narrow?.rows).toBe(wide?.rows);
  expect((narrow?.arenas ?? 0) / (wide?.arenas ?? 0)).toBeLessThan(0.56);
});

test('what f16 has no number for is infinite: the step of such an activation is skipped, others are not', async () => {
  const work: Work = { model: MODELS['gpt2, untied'], batch: 1, seq: 8, accumulate: 1, steps: 1 };
  const { vocabulary, width } = work.model.shape;
  const weights = await collect(initialWeights(work.model, 3));
  const name = 'wte.weight';
  // What this token brings into the residual stream is past the largest half.
  const large = weights.get(name)?.fill(65_520, width * (vocabulary - 1)) as Float32Array<ArrayBuffer>;
  const given = new Map([...weights, [name, large]]);
  const batchOf = (id: number): Micros => {
    const ids = Int32Array.from({ length: 8 }, (_, i) => i);
    return [{ ids: ids.with(3, id), targets: ids, batch: 1, seq: 8 }];
  };
  for (const activationDtype of ['f32', ...SIXTEEN] as const) {
    const trainer = await openTrainer(device, { ...work, activationDtype }, { weights: sourceOf(given) });
    try {
      const isSkipped = activationDtype === 'f16';
      expect((await trainer.start(batchOf(vocabulary - 1))).skipped, activationDtype).toBe(isSkipped);
      if (!isSkipped) continue;
      expect(await collect(trainer.values('parameter'))).toEqual(given);
      expect((await trainer.start(batchOf(3))).skipped).toBe(false);
    } finally {
      await trainer.destroy();
    }
  }
});
