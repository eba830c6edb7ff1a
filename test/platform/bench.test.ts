// The profile as data: everything is there, nothing is negative, no time is judged. And the kernels of the peak
// compute what they claim to.

import { afterAll, beforeAll, describe, expect, test, vi } from 'vitest';
import { isDispatch } from '../../src/engine/compile/operations.ts';
import type { Pass } from '../../src/engine/compile/pass.ts';
import { Trial } from '../../src/engine/compile/trial.ts';
import { copy, measurePeak, multiplyAdds } from '../../src/engine/observe/peak.ts';
import { type Profile, profile } from '../../src/engine/observe/profile.ts';
import { parseConfig } from '../../src/formats/config.ts';
import type { Arrays, Kernel } from '../../src/kernels/kernel.ts';
import { makeModel } from '../../src/nn/index.ts';
import { initialWeights } from '../../src/nn/initialise.ts';
import { Trainer } from '../../src/train/step/trainer.ts';
import { field } from '../entry.ts';
import { runKernel, testDevice } from '../harness.ts';

const stepOf = ({ session }: Trainer): Pass => session.fit.passes.step;

describe('profile', () => {
  const config = { model_type: 'gpt2', vocab_size: 17, n_positions: 8, n_embd: 12, n_layer: 1, n_head: 3 };
  let trainer: Trainer;
  let found: Profile;

  beforeAll(async () => {
    const model = makeModel(parseConfig(config, 'test'));
    const schedule = { decay: 'constant', peak: 1e-3, min: 1e-3, warmup: 0, steps: 1 } as const;
    trainer = await Trainer.create(await testDevice(), model, { batch: 2, seq: 8, schedule });
    await trainer.setWeights(initialWeights(model, 1));
    found = await profile(trainer.session, stepOf(trainer), 2);
  });
  afterAll(() => trainer.destroy());

  test('counts every dispatch of the step once, under its kernel', () => {
    const names = stepOf(trainer)
      .operations.filter(isDispatch)
      .map(({ kernel }) => kernel.name);
    for (const { kernel, dispatches } of found.kernels) {
      expect(dispatches, kernel).toBe(names.filter((name) => name === kernel).length);
    }
    expect(found.kernels.reduce((sum, { dispatches }) => sum + dispatches, 0)).toBe(trainer.dispatches);
  });

  test('adds up the work of each kernel', () => {
    for (const { kernel, bytes, flops } of found.kernels) {
      expect(bytes, kernel).toBeGreaterThan(0);
      expect(flops, kernel).toBeGreaterThanOrEqual(0);
    }
    const { flops } = found.kernels.find(({ kernel }) => kernel === 'matmul') ?? { flops: 0 };
    // 2 operations a token and weight: three products of the block's 12 C^2 weights, four of the head's V C,
    // since the backward pass makes the logits again.
    expect(flops).toBe(2 * (2 * 8) * (3 * 12 * 12 * 12 + 4 * 17 * 12));
  });

  test('has a time for each kernel exactly where the adapter has timestamps', () => {
    expect(found.timestamps).toBe(trainer.device.hasTimestamps);
    expect(found.wall).toBeGreaterThan(0);
    expect(found.host).toBeGreaterThan(0);
    for (const { milliseconds } of found.kernels) {
      if (found.timestamps) expect(milliseconds).toBeGreaterThanOrEqual(0);
      else expect(milliseconds).toBeUndefined();
    }
    if (found.timestamps) expect(found.milliseconds).toBeGreaterThan(0);
  });
});

describe('the kernels of the peak', () => {
  /** What the device and the reference make of the same inputs. */
  async function both<P>(kernel: Kernel<P>, problem: P, inputs: Record<string, Float32Array<ArrayBuffer>>) {
    const [variant] = kernel.variants;
    if (!variant) throw new Error(`${kernel.name} has no variant`);
    const y = new Float64Array(field(kernel.operands(problem), 'y').size);
    const expected: Arrays = { y };
    for (const [name, values] of Object.entries(inputs)) expected[name] = Float64Array.from(values);
    kernel.reference(problem, expected);
    const found = field(await runKernel(kernel, variant, problem, inputs), 'y');
    return { found: [...found], expected: [...y] };
  }

  test('the chains of multiply-adds are all computed', async () => {
    const { found, expected } = await both(multiplyAdds, { invocations: 128, rounds: 2 }, {});
    // 16 steps that each shrink the error by 3/4 and add at most 2^-23 of a value of at most 128: under 1e-4.
    for (const [i, value] of found.entries()) expect(Math.abs(value - expected[i]!)).toBeLessThan(1e-4);
  });

  test('the peak is that of the arithmetic, however long the rest of a dispatch takes', async () => {
    const device = await testDevice();
    // Of a slow CPU to a GPU.
    for (const rate of [4, 40, 400, 4000]) {
      const open = vi.spyOn(Trial, 'open').mockImplementation(async (_, kernel, problem) => {
        const { invocations = 0 } = problem as { invocations?: number };
        const time = async () => 0.1 + invocations * 3e-5 + kernel.flops(problem) / (rate * 1e6);
        return { time, close: () => {} } as unknown as Trial;
      });
      const { gflops } = await measurePeak(device);
      open.mockRestore();
      expect(gflops / rate).toBeGreaterThan(0.9);
      expect(gflops / rate).toBeLessThanOrEqual(1);
    }
  });

  test('the copy copies', async () => {
    const x = Float32Array.from({ length: 260 }, (_, i) => i - 7.5);
    const { found, expected } = await both(copy, { size: 260 }, { x });
    expect(found).toEqual(expected);
  });
});
