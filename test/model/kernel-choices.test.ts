// The choice of a kernel's variant: by trial where it is worth it, as recorded where it was made before.

import { afterEach, expect, test, vi } from 'vitest';
import { KernelChoices } from '../../src/engine/compile/choices.ts';
import { Trial } from '../../src/engine/compile/trial.ts';
import { matmul } from '../../src/kernels/matmul.ts';
import type { MatmulProblem } from '../../src/kernels/matmul-problem.ts';
import { Stopped } from '../../src/util/errors.ts';
import { entry } from '../entry.ts';
import { runnable, testDevice } from '../harness.ts';
import { LARGEST, leastBudget, openTrainer, run, type Work } from './runs.ts';

const device = await testDevice();
const hasQuads = device.traits.software && (await runnable(matmul)).some(({ name }) => name === 'quads');

afterEach(() => {
  vi.restoreAllMocks();
});

/** 64 x `size` x 64: two operations for each. */
const product = (size: number): MatmulProblem => ({ layout: 'NN', M: size, N: 64, K: 64 });

/** The variant that is chosen for the product, and those that were tried. */
async function settled(problem: MatmulProblem, recorded = {}) {
  const tried: string[] = [];
  vi.spyOn(Trial.prototype, 'fastest').mockImplementation(async (variants) => {
    tried.push(...variants.map(({ name }) => name));
    return 'quads';
  });
  const choices = new KernelChoices(device, recorded);
  await choices.settle([{ kernel: matmul, whole: problem, problem, operands: {} }]);
  return { choices, tried, variant: choices.variant(matmul, problem, {}).name };
}

test.runIf(hasQuads)('what compiles slowly is tried from a million operations on', async () => {
  const [small, large] = [await settled(product(127)), await settled(product(128))];
  expect([small.variant, small.tried]).toEqual(['block', []]);
  expect([large.variant, large.tried]).toEqual(['quads', ['quads', 'block']]);
});

test.runIf(hasQuads)('a small product keeps the choice that a run has recorded', async () => {
  const { choices } = await settled(product(32));
  const [key = ''] = Object.keys(choices.record());
  expect(choices.record()).toEqual({ [key]: 'block' });
  expect((await settled(product(32), { [key]: 'quads' })).variant).toBe('quads');
});

test.runIf(hasQuads)('measuring ends where it is to, within a trial, and leaves nothing on the device', async () => {
  const stop = new AbortController();
  let trials = 0;
  const { fastest } = Trial.prototype;
  vi.spyOn(Trial.prototype, 'fastest').mockImplementation(function (this: Trial, variants, signal) {
    trials++;
    stop.abort();
    return fastest.call(this, variants, signal);
  });
  const before = device.allocator.bytes;
  const work: Work = { model: LARGEST, batch: 8, seq: 16, accumulate: 1, steps: 1 };
  await expect(openTrainer(device, work, { signal: stop.signal })).rejects.toThrow(
    new Stopped('stopped while kernels were measured, before the first step; start again'),
  );
  expect(trials).toBe(1);
  expect(device.allocator.bytes).toBe(before);
  vi.restoreAllMocks();
  // A trainer that is there goes on: another budget may need other kernels.
  const { choices } = await run(device, work);
  const early = new AbortController();
  const trainer = await openTrainer(device, work, {
    ...{ choices, signal: early.signal },
    memory: { gpu: 2 * leastBudget(device, work) },
  });
  early.abort();
  await trainer.setBudget(trainer.session.leastBudget);
  await trainer.destroy();
});

test('what the device computes otherwise than the reference is never tried, and not taken as recorded', async () => {
  const block = entry(new Map(matmul.variants.map((variant) => [variant.name, variant])), 'block');
  const proof = { problem: { layout: 'NN', M: 8, N: 8, K: 8 }, reach: { a: 8, b: 8 } } as const;
  const right: typeof block = { ...block, name: 'right', provenOn: proof };
  // Without the last step of the sum.
  const wrong: typeof block = {
    ...right,
    name: 'wrong',
    dispatch: (p, traits) => block.dispatch({ ...p, K: p.K - 1, aStride: p.K }, traits),
  };
  const kernel = { ...matmul, variants: [block, right, wrong] };
  const problem = product(8);
  const tried: string[][] = [];
  vi.spyOn(Trial.prototype, 'fastest').mockImplementation(async (variants) => {
    tried.push(variants.map(({ name }) => name));
    return 'right';
  });
  const settle = async (recorded = {}) => {
    const choices = new KernelChoices(device, recorded);
    await choices.settle([{ kernel, whole: problem, problem, operands: {} }]);
    return choices.record();
  };
  const found = await settle();
  const [key = ''] = Object.keys(found);
  expect(found).toEqual({ [key]: 'right' });
  expect(await settle({ [key]: 'right' })).toEqual(found);
  expect(tried).toEqual([['block', 'right']]);
  expect(await settle({ [key]: 'wrong' })).toEqual(found);
  expect(tried).toEqual([
    ['block', 'right'],
    ['block', 'right'],
  ]);
});

test('a GPU compiles the shaders of all its choices before the first trial', async () => {
  const compiled: string[] = [];
  const others: Partial<Record<string | symbol, unknown>> = {
    traits: { software: false, subgroupSize: 0 },
    pipelines: { get: async (label: string) => compiled.push(label) },
  };
  const gpu = new Proxy(device, { get: (target, key) => others[key] ?? Reflect.get(target, key, target) });
  const found: string[][] = [];
  vi.spyOn(Trial.prototype, 'fastest').mockImplementation(async () => {
    found.push([...compiled]);
    return 'tiled';
  });
  const problems = [product(128), product(256)];
  await new KernelChoices(gpu).settle(
    problems.map((problem) => ({ kernel: matmul, whole: problem, problem, operands: {} })),
  );
  const labels = ['tiled', 'tiledUnrolled', 'tiled32x64', 'tiledSmall', 'block'].map((name) => `matmul.${name}`);
  expect(found).toEqual([0, 1].map(() => [...labels, ...labels]));
});
