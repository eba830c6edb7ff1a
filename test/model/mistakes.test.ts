// What a library's user may forget or mix up, without a budget and within one: each is one line that says what to do,
// and the trainer is as it was.

import { beforeAll, beforeEach, describe, expect, test, vi } from 'vitest';
import type { BatchArray } from '../../src/data/batches.ts';
import type { Device } from '../../src/gpu/device.ts';
import { initialWeights } from '../../src/nn/initialise.ts';
import type { Generator } from '../../src/train/inference/generator.ts';
import { Trainer } from '../../src/train/step/trainer.ts';
import { HoldfastError } from '../../src/util/errors.ts';
import { collect, sourceOf, type TensorSource } from '../../src/values/tensor-source.ts';
import { chooseVariants } from '../choose-variants.ts';
import { entry, leading } from '../entry.ts';
import { testDevice } from '../harness.ts';
import { batchesOf, leastBudget, SMALLEST, type Work, write } from './runs.ts';

const work: Work = { model: SMALLEST, batch: 2, seq: 8, accumulate: 2, steps: 1, between: true };

let device: Device;
beforeAll(async () => {
  device = await testDevice();
});
beforeEach(() => chooseVariants(1));

async function expectMistake(mistake: () => unknown, says: RegExp): Promise<void> {
  const error = await (async () => mistake())().then(
    () => undefined,
    (reason) => reason,
  );
  expect(error).toBeInstanceOf(HoldfastError);
  expect(error.message).toMatch(says);
  expect(error.message).not.toMatch(/internal|\n/);
}

describe.each(['without a budget', 'within a budget'])('%s', (kind) => {
  test('weights that were never set, batches of another shape, values that are not there', async () => {
    const { batch, seq, accumulate, model } = work;
    const schedule = { decay: 'constant', peak: 1e-3, min: 0, warmup: 0, steps: 9 } as const;
    const memory = kind === 'within a budget' ? { gpu: leastBudget(device, work) } : {};
    const trainer = await Trainer.create(device, model, { batch, seq, accumulate, schedule, memory, generates: true });
    try {
      const [right] = leading(1, batchesOf(work));
      const [one] = right;
      const evaluate = () => trainer.evaluate(one);
      const noWeights = /^the model has no weights yet \(wte.weight was never set\); .* setWeights$/;
      for (const early of [
        () => trainer.start(right),
        evaluate,
        () => write(trainer.generator as Generator),
        () => (trainer.generator as Generator).next(Int32Array.of(1)),
        () => collect(trainer.values('parameter')),
      ]) {
        await expectMistake(early, noWeights);
      }
      // Some of them are not all.
      const all = await collect(initialWeights(model, 3));
      await trainer.setValues('parameter', sourceOf(new Map([...all].filter(([name]) => name === 'wte.weight'))));
      await expectMistake(() => trainer.start(right), /no weights yet \(wpe.weight was never set\)/);

      await trainer.setWeights(initialWeights(model, 3));
      const before = await evaluate();
      const other = (changes: Record<string, BatchArray | number>) => () =>
        trainer.start([{ ...one, ...changes }, one]);
      await expectMistake(() => trainer.start([one]), /takes 2 micro-batches \(accumulate\), not 1$/);
      await expectMistake(other({ batch: 1 }), /a batch of 1 x 8 tokens: .* for 2 x 8 \(batch, seq\)$/);
      await expectMistake(other({ seq: 4, batch: 4 }), /a batch of 4 x 4 tokens: .* for 2 x 8/);
      await expectMistake(other({ ids: one.ids.subarray(1) }), /a batch of 2 x 8 with 15 ids: give 16$/);
      await expectMistake(other({ targets: Float32Array.from(one.targets) }), /no targets: give them as Int32Array$/);
      await expectMistake(other({ targets: new Int32Array(17) }), /with 17 targets: give 16$/);
      await expectMistake(
        other({ ids: one.ids.map(() => 40) }),
        /has 40 among its ids: for this model, they end at 39$/,
      );
      await expectMistake(other({ targets: one.targets.map(() => -1) }), /has -1 among its targets: .* end at 39$/);
      await expectMistake(() => trainer.evaluate({ ...one, seq: 4, batch: 4 }), /a batch of 4 x 4 tokens/);
      await expectMistake(() => collect(trainer.values('gradient')), /no gradient values now/);
      expect(trainer.step).toBe(0);
      expect(await evaluate()).toBe(before);
      expect((await trainer.start(right)).step).toBe(0);
    } finally {
      await trainer.destroy();
      vi.restoreAllMocks();
    }
  });

  test('tensors of another length, a restore while steps run, anything after the end', async () => {
    const { batch, seq, accumulate, model } = work;
    const schedule = { decay: 'constant', peak: 1e-3, min: 0, warmup: 0, steps: 9 } as const;
    const memory = kind === 'within a budget' ? { gpu: leastBudget(device, work) } : {};
    const trainer = await Trainer.create(device, model, { batch, seq, accumulate, schedule, memory, generates: true });
    const generator = trainer.generator as Generator;
    const [right] = leading(1, batchesOf(work));
    const [one] = right;
    try {
      const all = await collect(initialWeights(model, 3));
      await trainer.setWeights(sourceOf(all));
      const before = await collect(trainer.values('parameter'));
      const size = entry(all, 'ln_f.weight').length;
      const ofLength = (length: number) =>
        sourceOf(
          new Map(
            [...all].map(([name, data]) => [name, new Float32Array(name === 'ln_f.weight' ? length : data.length)]),
          ),
        );
      for (const length of [0, size - 1, size + 1]) {
        const says = new RegExp(`^ln_f\\.weight has ${size} elements, ${length} were given$`);
        await expectMistake(() => trainer.setWeights(ofLength(length)), says);
        await expectMistake(() => trainer.setValues('moment1', ofLength(length)), says);
      }
      expect(await collect(trainer.values('parameter'))).toEqual(before);
      // Of a source that does not know its lengths.
      const piecewise = (length: number): TensorSource => {
        const { read } = ofLength(length);
        return { names: ['ln_f.weight'], read };
      };
      await expectMistake(
        () => trainer.setWeights({ ...piecewise(1), names: [...all.keys()] }),
        / elements, 1 were given$/,
      );
      await expectMistake(() => trainer.setValues('parameter', piecewise(size + 1)), /elements, more were given$/);
      await trainer.setWeights(sourceOf(all));

      const state = await trainer.state();
      const step = trainer.start(right);
      await expectMistake(() => trainer.restore({ ...state, step: 7 }), /^steps are under way; await them .* settle$/);
      expect((await step).step).toBe(0);
      expect(trainer.step).toBe(1);
      await trainer.settle();
      trainer.restore(state);
      expect((await trainer.start(right)).step).toBe(0);

      const parameters = trainer.values('parameter');
      await trainer.destroy();
      for (const late of [
        () => trainer.start(right),
        () => trainer.evaluate(one),
        () => trainer.setWeights(sourceOf(all)),
        () => collect(parameters),
        () => trainer.settle(),
        () => trainer.state(),
        () => trainer.restore(state),
        () => write(generator),
        () => generator.next(Int32Array.of(1)),
        ...(memory.gpu === undefined ? [] : [() => trainer.setBudget(2 * (memory.gpu as number))]),
      ]) {
        await expectMistake(late, /^this trainer or generator was closed; make another$/);
      }
    } finally {
      await trainer.destroy();
      vi.restoreAllMocks();
    }
  });
});
