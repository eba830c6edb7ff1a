// Are kernel choices of an earlier run taken again, and only where the kernels are the same?

import { expect, it } from 'vitest';
import { loadChoices, saveChoices } from '../../src/engine/compile/choices.ts';
import type { Device } from '../../src/gpu/device.ts';
import KERNELS from '../../src/kernels/kernel.ts?digest';
import { MemoryFiles, memoryHost } from '../memory-files.ts';

const PLACE = 'cache/kernel-choices.json';
const device = { adapter: { name: 'an adapter' }, check() {} } as unknown as Device;

it('takes the choices of the same kernels, and adds to them', async () => {
  const host = memoryHost(new MemoryFiles(), { cacheFolder: 'cache' });
  await saveChoices(host, device, { 'add a|b': 'a' });
  await saveChoices(host, device, { 'matmul a|b': 'b' });
  expect(await loadChoices(host, device)).toEqual({ 'add a|b': 'a', 'matmul a|b': 'b' });
});

it.each([
  ['of other kernels', { 'memory | an adapter': { kernels: 'others', choices: { 'add a|b': 'b' } } }],
  ['that do not say of which', { 'memory | an adapter': { 'add a|b': 'b' } }],
])('takes none %s, and keeps none', async (_, kept) => {
  const files = new MemoryFiles();
  const host = memoryHost(files, { cacheFolder: 'cache' });
  files.contents.set(PLACE, new TextEncoder().encode(JSON.stringify(kept)));
  expect(await loadChoices(host, device)).toEqual({});
  await saveChoices(host, device, { 'matmul a|b': 'a' });
  const now = JSON.parse(new TextDecoder().decode(files.contents.get(PLACE)));
  expect(now).toEqual({ 'memory | an adapter': { kernels: KERNELS, choices: { 'matmul a|b': 'a' } } });
});
