// A device that its user has closed: all that is opened on it, or still asked of what was, says that it is closed; and what was is
// closed behind it without an error.

import { expect, test, vi } from 'vitest';
import { type Device, openDevice } from '../../src/gpu/device.ts';
import { initialWeights } from '../../src/nn/initialise.ts';
import { BatchGenerator } from '../../src/train/inference/batch-generator.ts';
import { Generator } from '../../src/train/inference/generator.ts';
import { Evaluator } from '../../src/train/step/evaluator.ts';
import { Trainer } from '../../src/train/step/trainer.ts';
import { collect } from '../../src/values/tensor-source.ts';
import { chooseVariants } from '../choose-variants.ts';
import { leading } from '../entry.ts';
import { expectMistake } from '../expect-mistake.ts';
import { ADAPTER, testHost } from '../host.ts';
import { batchesOf, leastBudget, SMALLEST, type Work, write } from './runs.ts';

const work: Work = { model: SMALLEST, batch: 2, seq: 8, accumulate: 2, steps: 1 };
const schedule = { decay: 'constant', peak: 1e-3, min: 0, warmup: 0, steps: 9 } as const;

const openOn = (device: Device, gpu: number | undefined) => {
  const { model, batch, seq, accumulate } = work;
  const memory = gpu === undefined ? {} : { gpu };
  const weights = initialWeights(model, 3);
  return {
    trainer: () => Trainer.create(device, model, { batch, seq, accumulate, schedule, memory }),
    generator: () => Generator.open(device, model, weights),
    batchGenerator: () => BatchGenerator.open(device, model, weights, { batch: 2 }),
    evaluator: () => Evaluator.open(device, model, weights, { batch, seq }),
  };
};

test.each(['without a budget', 'within a budget'])('says so, %s', async (kind) => {
  chooseVariants(1);
  const device = await openDevice(testHost, { adapter: ADAPTER });
  try {
    const gpu = kind === 'within a budget' ? leastBudget(device, work) : undefined;
    const open = openOn(device, gpu);
    const trainer = await open.trainer();
    const [generator, evaluator] = [await open.generator(), await open.evaluator()];
    await trainer.setWeights(initialWeights(work.model, 3));
    const [batches] = leading(1, batchesOf(work));
    const [one] = batches;
    await trainer.start(batches);
    device.close();
    expect(device.status).toBe('closed');
    for (const late of [
      ...Object.values(open),
      () => generator.next(Int32Array.of(1)),
      () => write(generator),
      () => evaluator.lossOf(one),
      () => trainer.evaluate(one),
      () => trainer.start(batches),
      () => trainer.state(),
      () => trainer.setWeights(initialWeights(work.model, 3)),
      () => collect(trainer.values('parameter')),
      ...(gpu === undefined ? [] : [() => trainer.setBudget(2 * gpu)]),
      () => device.idle(),
    ]) {
      await expectMistake(late, /^the GPU device was closed; open another one with openDevice$/);
    }
    for (const end of [() => trainer.destroy(), () => generator.close(), () => evaluator.close()]) await end();
    expect(device.allocator.bytes).toBe(0);
  } finally {
    device.close();
    vi.restoreAllMocks();
  }
});
