// The choice of a kernel's variant: by trial where it is worth it, as recorded where it was made before.

import { expect, test, vi } from 'vitest';
import { KernelChoices, Trial } from '../../src/engine/compile/choices.ts';
import { type MatmulProblem, matmul } from '../../src/kernels/matmul.ts';
import { runnable, testDevice } from '../harness.ts';

const device = await testDevice();
const hasQuads = device.traits.software && (await runnable(matmul)).some(({ name }) => name === 'quads');

/** 64 x `size` x 64: two operations for each. */
const product = (size: number): MatmulProblem => ({ layout: 'NN', M: size, N: 64, K: 64 });

/** The variant that is chosen for the product, and those that were tried. */
async function settled(problem: MatmulProblem, recorded = {}) {
  const tried: string[] = [];
  vi.spyOn(Trial.prototype, 'time').mockImplementation(async ({ name }) => {
    tried.push(name);
    return name === 'quads' ? 1 : 2;
  });
  const choices = new KernelChoices(device, recorded);
  await choices.settle([{ kernel: matmul, whole: problem, problem }]);
  return { choices, tried, variant: choices.variant(matmul, problem).name };
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
