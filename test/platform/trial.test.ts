// The time of a variant is that of its dispatches, also where answers come late: on a clock that the test moves, with a
// GPU that takes so long for each dispatch and is looked at only now and then.

import fc from 'fast-check';
import { afterEach, expect, test, vi } from 'vitest';
import { Trial } from '../../src/engine/compile/trial.ts';
import type { Variant } from '../../src/kernels/kernel.ts';
import { matmul } from '../../src/kernels/matmul.ts';
import { tanh } from '../../src/kernels/tanh.ts';
import { at } from '../../src/util/at.ts';
import { Stopped } from '../../src/util/errors.ts';
import { testDevice } from '../harness.ts';

afterEach(() => {
  vi.restoreAllMocks();
});

/** A GPU that takes so long for a dispatch of a variant by its workgroups, and is looked at every so often, in milliseconds. */
async function onGPU<T>(
  dispatchMs: (workgroups: number, now: number) => number,
  pollMs: number,
  use: (trial: Trial) => Promise<T>,
): Promise<{ said: T; took: number }> {
  const device = await testDevice();
  const trial = await Trial.open(device, tanh, { size: 64 });
  let now = 0;
  let submitted: number[] = [];
  const pass = {
    ...{ setPipeline() {}, setBindGroup() {}, end() {} },
    dispatchWorkgroups: (workgroups: number) => submitted.push(workgroups),
  };
  vi.spyOn(device.gpu, 'createCommandEncoder').mockReturnValue({
    beginComputePass: () => pass,
  } as unknown as GPUCommandEncoder);
  vi.spyOn(device, 'submit').mockReturnValue(undefined);
  vi.spyOn(device, 'idle').mockImplementation(async () => {
    const busy = submitted.reduce((sum, workgroups) => sum + dispatchMs(workgroups, now + sum), 0);
    now += (Math.floor(busy / pollMs) + 1) * pollMs;
    submitted = [];
  });
  vi.spyOn(performance, 'now').mockImplementation(() => now);
  const said = await use(trial);
  vi.restoreAllMocks();
  trial.close();
  return { said, took: now };
}

/** The kernel's variant under other names: of so many workgroups each. */
const variants = (...workgroups: number[]): Variant<object>[] =>
  workgroups.map((count) => ({
    name: `of ${count}`,
    dispatch: (problem, traits) => ({
      ...at(tanh.variants, 0).dispatch(problem as never, traits),
      workgroups: [count, 1, 1],
    }),
  }));

/** What a trial says of one variant, and how long it takes. */
const timed = (dispatchMs: number, pollMs: number) =>
  onGPU(
    () => dispatchMs,
    pollMs,
    (trial) => trial.time(at(variants(1), 0)),
  );

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

test('the fastest is found in any order, and what another has clearly beaten has no further round', async () => {
  const took: number[] = [];
  for (const slow of [1.2, 3, 9]) {
    for (const order of [
      [1, 2, 3],
      [3, 2, 1],
      [2, 1, 3],
    ]) {
      const of = (workgroups: number) => [1, 0.9, slow][workgroups - 1] as number;
      const found = await onGPU(of, 0.1, (trial) => trial.fastest(variants(...order)));
      expect(found.said).toBe('of 2');
      took.push(found.took);
    }
  }
  // Of 4 ms a round: three rounds less than where it may be the fastest, but for what its first one took.
  expect(Math.max(...took.slice(6))).toBeLessThan(Math.min(...took.slice(0, 3)) + 2 * 9);
});

test('a GPU that computes slowly at first takes the variant that is the fastest then', async () => {
  for (const order of [
    [1, 2],
    [2, 1],
  ]) {
    const of = (workgroups: number, now: number) => (workgroups === 1 ? 1 : 1.2) * Math.max(1, 4 - now / 10);
    expect((await onGPU(of, 0.1, (trial) => trial.fastest(variants(...order)))).said).toBe('of 1');
  }
});

test('a trial that is stopped says so', async () => {
  const stop = new AbortController();
  const of = () => {
    stop.abort();
    return 1;
  };
  await expect(onGPU(of, 0.1, (trial) => trial.fastest(variants(1, 2), stop.signal))).rejects.toThrow(Stopped);
});

test('a trial whose operands have no room leaves none of their buffers', async () => {
  const { allocator, gpu } = await testDevice();
  const before = allocator.bytes;
  const N = gpu.limits.maxBufferSize;
  const problem = { layout: 'NN', M: 1, N, K: 1 };
  await expect(Trial.open(await testDevice(), matmul, problem)).rejects.toThrow('buffer trial b needs');
  expect(allocator.bytes).toBe(before);
});
