// What `holdfast bench` says of the host, and of the machine for `plan --hardware`: figures are there, and none of them is judged.

import { mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import os from 'node:os';
import path from 'node:path';
import { expect, onTestFinished, test, vi } from 'vitest';
import { diskStatesIn, measureDiskStates } from '../../src/cli/bench/disk-states.ts';
import { measureHostAdamW } from '../../src/cli/bench/host-adamw.ts';
import { measureStep, stepText } from '../../src/cli/bench/step.ts';
import { digits } from '../../src/cli/bench/text.ts';
import { run } from '../../src/cli/run.ts';
import type { AdapterRecord } from '../../src/engine/observe/adapter-records.ts';
import { parseHardware } from '../../src/engine/simulate/hardware.ts';
import { Device } from '../../src/gpu/device.ts';
import { instantiate } from '../../src/kernels/wasm-heap.ts';
import { HoldfastError } from '../../src/util/errors.ts';
import { chooseVariants } from '../choose-variants.ts';
import { testDevice } from '../harness.ts';
import { ADAPTER, testHost } from '../host.ts';
import { MemoryBlockFile, MemoryFiles } from '../memory-files.ts';
import { inProcess } from './in-process.ts';

test('of a step it is said what the host takes to encode and submit it, a dispatch', async () => {
  chooseVariants(1);
  const folder = mkdtempSync(path.join(os.tmpdir(), 'holdfast-bench-'));
  onTestFinished(() => rmSync(folder, { recursive: true }));
  const step = await measureStep({ ...testHost, cacheFolder: folder }, await testDevice(), 0);
  const { host } = step.profile;
  expect(host).toBeGreaterThan(0);
  const text = stepText(step, { gflops: 1, gigabytesPerSecond: 1 });
  const [, milliseconds, each] =
    /^ +(\S+) ms of the host to encode and submit them, (\S+) us a dispatch$/m.exec(text) ?? [];
  expect([milliseconds, each]).toEqual([digits(host), digits((1000 * host) / step.dispatches)]);
});

test('AdamW on the host has a figure, and what it is measured by leaves all values', () => {
  for (const figure of Object.values(measureHostAdamW())) expect(figure).toBeGreaterThan(0);
  const memory = new WebAssembly.Memory({ initial: 1, maximum: 1 });
  const values = new Float32Array(memory.buffer).map((_, i) => i - 700.5);
  new Float32Array(memory.buffer).set(values);
  instantiate(memory).traffic(0, 1600, 3200, 4800, 400);
  expect(new Float32Array(memory.buffer)).toEqual(values);
});

test('AdamW on values that lie on disk has a figure, over bytes that its host memory has no room for, and leaves nothing there', async () => {
  const folder = mkdtempSync(path.join(os.tmpdir(), 'holdfast-bench-'));
  onTestFinished(() => rmSync(folder, { recursive: true }));
  const figure = await measureDiskStates(testHost, folder);
  for (const value of Object.values(figure)) expect(value).toBeGreaterThan(0);
  expect(readdirSync(folder)).toEqual([]);
});

test('a disk without room for it has no figure, which is said, and the others stand', async () => {
  const folder = mkdtempSync(path.join(os.tmpdir(), 'holdfast-bench-'));
  onTestFinished(() => rmSync(folder, { recursive: true }));
  const file = path.join(folder, 'file');
  writeFileSync(file, '');
  const warned: string[] = [];
  const terminal = { ...testHost.terminal, warn: (text: string) => void warned.push(text) };
  expect(await diskStatesIn({ ...testHost, terminal }, path.join(file, 'bench'))).toBe(undefined);
  expect(warned.join('')).toMatch(/^the disk was not measured: cannot [^\n]+\n$/);
});

test('values on disk are read while others are read and written', async () => {
  const underWay = { read: 0, write: 0 };
  const most = { read: 0, both: 0 };
  const openBlockFile: typeof testHost.openBlockFile = async (_, size) => {
    const file = new MemoryBlockFile('/tier', size);
    const moving = async (way: 'read' | 'write', move: () => Promise<number>) => {
      underWay[way]++;
      most.read = Math.max(most.read, underWay.read);
      most.both = Math.max(most.both, Math.min(underWay.read, underWay.write));
      // Whatever is begun without waiting for it begins meanwhile.
      await new Promise((resolve) => setTimeout(resolve, 5));
      const bytes = await move();
      underWay[way]--;
      return bytes;
    };
    return {
      ...{ path: file.path, bytes: size, remove: () => file.remove() },
      read: (offset, into) => moving('read', () => file.read(offset, into)),
      write: (offset, from) => moving('write', () => file.write(offset, from)),
    };
  };
  await measureDiskStates({ ...testHost, openBlockFile }, '/nowhere');
  expect(most.read).toBeGreaterThan(1);
  expect(most.both).toBeGreaterThan(0);
});

test.each([
  [['--gpu-memory', '8'], "argument '8' is invalid. No GPU has 8 B: write what it has, for example 8GB"],
  [['--seconds', '5'], '--seconds: is of the figures that --share leaves out; leave the flag out'],
])('what --share cannot make use of is refused before a device is opened: %j', async (flags, message) => {
  const gpuSources = () => Promise.reject(new Error('a GPU was asked for'));
  const line = await inProcess(new MemoryFiles(), ['bench', '--share', 'mine.json', ...flags], [], { gpuSources });
  expect([line.status, line.out]).toEqual([2, '']);
  expect(line.said).toContain(message);
});

test('a device that was opened is closed where the measurement fails', async () => {
  const closed = vi.spyOn(Device.prototype, 'close');
  onTestFinished(() => closed.mockRestore());
  const folder = mkdtempSync(path.join(os.tmpdir(), 'holdfast-bench-'));
  onTestFinished(() => rmSync(folder, { recursive: true }));
  const bench = async (...args: string[]) => {
    const terminal = {
      ...{ interactive: false, columns: 80, warn: () => {} },
      write: () => {
        throw new HoldfastError('the terminal is gone');
      },
    };
    const { memoryBytes: _, ...host } = testHost;
    return run({ ...host, args: ['bench', '--adapter', ADAPTER, ...args], terminal });
  };
  expect(await bench()).toBe(2);
  expect(closed).toHaveBeenCalledTimes(1);
  expect(await bench('--share', path.join(folder, 'mine.json'))).toBe(2);
  expect(closed).toHaveBeenCalledTimes(2);
});

test('the machine is measured as plan --hardware reads it, and nothing is left on its disk', async () => {
  const folder = mkdtempSync(path.join(os.tmpdir(), 'holdfast-bench-'));
  onTestFinished(() => rmSync(folder, { recursive: true }));
  const file = path.join(folder, 'mine.json');
  const said = async (...args: string[]) => {
    const [out, warned]: [string[], string[]] = [[], []];
    const terminal = {
      ...{ interactive: false, columns: 80 },
      write: (text: string) => void out.push(text),
      warn: (text: string) => void warned.push(text),
    };
    const status = await run({ ...testHost, args, terminal, cacheFolder: path.join(folder, 'cache') });
    return { status, out: out.join(''), warned: warned.join('') };
  };
  const share = ['bench', '--adapter', ADAPTER, '--share', file];
  const { status, out, warned } = await said(...share, '--gpu-memory', 'shared', '--json');
  expect(`${status} ${warned}`).toBe('0 ');
  const { machine } = JSON.parse(out);
  expect(parseHardware(readFileSync(file, 'utf8'), file)).toEqual(machine);
  const { title, sharedMemory, reachedBy = { all: 1 }, link, disk, hostMemory, ...figures } = machine;
  expect([title.length > 0, sharedMemory, link.copies]).toEqual([true, true, 'serial']);
  for (const part of [figures.reached, ...Object.values(reachedBy)]) expect(part).toBeLessThanOrEqual(1);
  const { copies: _, ...rates } = link;
  for (const values of [figures, reachedBy, rates, disk, hostMemory])
    for (const [name, value] of Object.entries(values)) expect(value, name).toBeGreaterThan(0);
  expect(readdirSync(path.join(folder, 'cache'))).not.toContain('bench');
  // And what plans go by here, where no machine is named: a software adapter's rates are typical ones.
  const kept = JSON.parse(readFileSync(path.join(folder, 'cache', 'adapters.json'), 'utf8'));
  const [adapter] = Object.values<AdapterRecord>(kept.adapters);
  expect(title).toContain(adapter?.name);
  expect(adapter?.rates === undefined).toBe(adapter?.software);
  const plan = await said(
    'plan',
    '--layers',
    '2',
    '--width',
    '64',
    '--heads',
    '4',
    '--context',
    '64',
    '--hardware',
    file,
  );
  expect(plan.out).toContain(title);
  expect(await said('bench', '--gpu-memory', '8GB')).toMatchObject({ status: 2, out: '' });
});
