// Node's polls of a software adapter leave the processor to it, and other callbacks of the process run as before.

import { promisify } from 'node:util';
import { afterEach, expect, test, vi } from 'vitest';
import { GPUBufferUsage } from '../../src/gpu/constants.ts';
import { napUntil } from '../../src/runtime/headless/dawn-polls.ts';
import { deferred } from '../../src/util/deferred.ts';
import { testDevice } from '../harness.ts';

const isDeno = 'Deno' in globalThis;

/** Without the devices that are open in this process. */
async function fresh() {
  vi.resetModules();
  return import('../../src/runtime/headless/dawn-polls.ts');
}

afterEach(() => {
  vi.restoreAllMocks();
});

test.skipIf(isDeno)('a software adapter that is waited for gets the processor', async () => {
  const device = await testDevice();
  const naps = vi.spyOn(Atomics, 'wait');
  const work = device.allocator.create('work', 2 ** 26, GPUBufferUsage.COPY_DST);
  const encoder = device.gpu.createCommandEncoder();
  encoder.clearBuffer(work);
  device.submit(encoder);
  await device.idle();
  device.allocator.destroy(work);
  expect(naps.mock.calls.length > 0).toBe(device.adapter.software);
});

test.skipIf(isDeno)(
  'what was there before is back when the last device is gone, and stays where it was replaced',
  async () => {
    const { napUntil } = await fresh();
    const before = globalThis.setImmediate;
    const ends = [deferred<void>(), deferred<void>()] as const;
    for (const { promise } of ends) napUntil(promise);
    const napping = globalThis.setImmediate;
    expect(napping).not.toBe(before);
    ends[0].resolve();
    await ends[0].promise;
    expect(globalThis.setImmediate).toBe(napping);
    ends[1].reject(new Error('lost'));
    await ends[1].promise.catch(() => {});
    expect(globalThis.setImmediate).toBe(before);

    const end = deferred<void>();
    napUntil(end.promise);
    const others = ((...args: Parameters<typeof setImmediate>) => napping(...args)) as typeof setImmediate;
    globalThis.setImmediate = others;
    end.resolve();
    await end.promise;
    expect(globalThis.setImmediate).toBe(others);
    globalThis.setImmediate = before;
  },
);

test.skipIf(isDeno)('other callbacks run at once, in order, with what they were given, or not at all', async () => {
  napUntil(new Promise(() => {}));
  const naps = vi.spyOn(Atomics, 'wait');
  const seen: string[] = [];
  setImmediate((what: string) => seen.push(what), 'one');
  clearImmediate(setImmediate(() => seen.push('never')));
  setImmediate(() => seen.push('two'));
  expect(await promisify(setImmediate)('three')).toBe('three');
  expect(seen).toEqual(['one', 'two']);
  expect(naps).not.toHaveBeenCalled();
});
