// Firefox is nudged for as long as something is awaited, and no longer: on a device that is none, with timers that the
// test moves.

import { afterEach, beforeEach, expect, test, vi } from 'vitest';
import { withNudges } from '../../src/runtime/browser/firefox-polls.ts';
import { deferred } from '../../src/util/deferred.ts';

beforeEach(() => {
  vi.useFakeTimers();
});
afterEach(() => {
  vi.useRealTimers();
});

async function opened() {
  const [done, mapped, lost] = [deferred<undefined>(), deferred<undefined>(), deferred<GPUDeviceLostInfo>()];
  const submit = vi.fn();
  const bare = {
    lost: lost.promise,
    queue: { submit, onSubmittedWorkDone: () => done.promise },
    createBuffer: () => ({ mapAsync: () => mapped.promise }),
  };
  const adapter = { requestDevice: async () => bare } as unknown as GPUAdapter;
  const device = await withNudges(adapter).requestDevice();
  /** Nudges in 100 ms from now. */
  const nudges = async () => {
    submit.mockClear();
    await vi.advanceTimersByTimeAsync(100);
    return submit.mock.calls.length;
  };
  return { device, done, mapped, lost, nudges };
}

test('nothing is submitted while nothing is awaited', async () => {
  const { device, done, mapped, nudges } = await opened();
  expect(await nudges()).toBe(0);
  const work = device.queue.onSubmittedWorkDone();
  expect(await nudges()).toBe(100);
  const map = device.createBuffer({ size: 4, usage: 1 }).mapAsync(1);
  expect(await nudges()).toBe(100);
  done.resolve(undefined);
  await work;
  expect(await nudges()).toBe(100);
  mapped.reject(new Error('destroyed'));
  await expect(map).rejects.toThrow('destroyed');
  expect(await nudges()).toBe(0);
});

test('waits that follow each other at once are one, and a lost device ends all', async () => {
  const { device, lost, nudges } = await opened();
  for (let i = 0; i < 5; i++) {
    void device.queue.onSubmittedWorkDone();
    await vi.advanceTimersByTimeAsync(1);
  }
  expect(await nudges()).toBe(100);
  lost.resolve({ reason: 'unknown', message: '' } as GPUDeviceLostInfo);
  expect(await nudges()).toBe(0);
});

test('waits that end and begin between two nudges do not add any', async () => {
  const { device, done, nudges } = await opened();
  done.resolve(undefined);
  for (let i = 0; i < 5; i++) await device.queue.onSubmittedWorkDone();
  void device.createBuffer({ size: 4, usage: 1 }).mapAsync(1);
  expect(await nudges()).toBe(100);
});
