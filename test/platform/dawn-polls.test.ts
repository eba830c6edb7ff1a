// Node's polls of a software adapter leave the processor to it, and nobody else notices.

import { promisify } from 'node:util';
import { afterEach, expect, test, vi } from 'vitest';
import { napBetweenPolls } from '../../src/runtime/dawn-polls.ts';
import { testDevice } from '../harness.ts';

const isDeno = 'Deno' in globalThis;

afterEach(() => {
  vi.restoreAllMocks();
});

test.skipIf(isDeno)('a software adapter that is waited for gets the processor', async () => {
  const device = await testDevice();
  const naps = vi.spyOn(Atomics, 'wait');
  await device.idle();
  expect(naps.mock.calls.length > 0).toBe(device.adapter.software);
});

test.skipIf(isDeno)('other callbacks run at once, in order, with what they were given, or not at all', async () => {
  napBetweenPolls();
  const naps = vi.spyOn(Atomics, 'wait');
  const seen: string[] = [];
  setImmediate((what: string) => seen.push(what), 'one');
  clearImmediate(setImmediate(() => seen.push('never')));
  setImmediate(() => seen.push('two'));
  expect(await promisify(setImmediate)('three')).toBe('three');
  expect(seen).toEqual(['one', 'two']);
  expect(naps).not.toHaveBeenCalled();
});
