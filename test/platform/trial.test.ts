// The time of a variant is that of its dispatches, also where answers come late: on a clock that the test moves, with a
// GPU that takes so long for each dispatch and is looked at only now and then.

import fc from 'fast-check';
import { afterEach, expect, test, vi } from 'vitest';
import { Trial } from '../../src/engine/compile/choices.ts';
import type { Variant } from '../../src/kernels/kernel.ts';
import { matmul } from '../../src/kernels/matmul.ts';
import { tanh } from '../../src/kernels/tanh.ts';
import { testDevice } from '../harness.ts';

afterEach(() => {
  vi.restoreAllMocks();
});

/** What a trial says, and how long it takes, in milliseconds. */
async function timed(dispatchMs: number, pollMs: number, fastest?: number): Promise<{ said: number; took: number }> {
  const device = await testDevice();
  const [variant] = tanh.variants;
  const trial = await Trial.open(device, tanh, { size: 64 });
  let polls = 0;
  let submitted = 0;
  const pass = { setPipeline() {}, setBindGroup() {}, dispatchWorkgroups: () => submitted++, end() {} };
  vi.spyOn(device.gpu, 'createCommandEncoder').mockReturnValue({
    beginComputePass: () => pass,
  } as unknown as GPUCommandEncoder);
  vi.spyOn(device, 'submit').mockReturnValue(undefined);
  vi.spyOn(device, 'idle').mockImplementation(async () => {
    polls += Math.floor((submitted * dispatchMs) / pollMs) + 1;
    submitted = 0;
  });
  vi.spyOn(performance, 'now').mockImplementation(() => polls * pollMs);
  const said = await trial.time(variant as unknown as Variant<object>, fastest);
  vi.restoreAllMocks();
  trial.close();
  return { said, took: polls * pollMs };
}

test('a poll that is longer than a dispatch is no part of its time', async () => {
  const dispatch = fc.double({ min: 0.1, max: 60, noNaN: true });
  const poll = fc.double({ min: 0.05, max: 25, noNaN: true });
  await fc.assert(
    fc.asyncProperty(dispatch, poll, async (dispatchMs, pollMs) => {
      const { said } = await timed(dispatchMs, pollMs);
      // Half of eight polls, with one more or less of them.
      expect(said).toBeGreaterThan(dispatchMs * 0.99);
      expect(said).toBeLessThan(dispatchMs * 1.34);
    }),
    { seed: 1 },
  );
});

test('a trial ends soon, however late answers are and however fast dispatches', async () => {
  for (const pollMs of [0.1, 4, 100]) {
    for (const dispatchMs of [1e-4, 0.01, 1]) {
      const { took } = await timed(dispatchMs, pollMs);
      expect(took).toBeLessThan(4 * 250 + 20 * pollMs + 4 * 1024 * dispatchMs);
    }
  }
});

test('a variant that another has clearly beaten is timed in one round, one that may be the faster in all', async () => {
  const alone = await timed(1, 0.1);
  for (const fastest of [0.8, 1.2]) expect(await timed(1, 0.1, fastest)).toEqual(alone);
  const beaten = await timed(1, 0.1, 0.5);
  expect(beaten.said).toBeLessThan(alone.said * 1.34);
  expect(beaten.took).toBeLessThan(alone.took / 2);
});

test('a trial whose operands have no room leaves none of their buffers', async () => {
  const { allocator, gpu } = await testDevice();
  const before = allocator.bytes;
  const N = gpu.limits.maxBufferSize;
  const problem = { layout: 'NN', M: 1, N, K: 1 };
  await expect(Trial.open(await testDevice(), matmul, problem)).rejects.toThrow('buffer trial b needs');
  expect(allocator.bytes).toBe(before);
});
