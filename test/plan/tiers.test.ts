// `holdfast plan` with the flags that `train` has for the tiers below the GPU: what they make of a plan, and what says by its name
// why it would mean nothing.

import { describe, expect, test } from 'vitest';
import { planCommand } from '../../src/cli/plan.ts';
import { parseBytes } from '../../src/util/bytes.ts';
import { MemoryFiles, memoryHost } from '../memory-files.ts';

async function plan(...args: string[]): Promise<string> {
  let text = '';
  const terminal = { interactive: false, columns: 120, write: (part: string) => (text += part), warn: () => {} };
  const command = planCommand(memoryHost(new MemoryFiles(), { terminal })).exitOverride();
  await command.configureOutput({ writeErr: () => {} }).parseAsync(args, { from: 'user' });
  return text;
}

const SMALL = ['--layers', '1', '--width', '64', '--heads', '4', '--context', '32', '--vocab-size', '500'];
const json = async (...args: string[]) => JSON.parse(await plan(...SMALL, '--json', ...args));

describe('without a machine', () => {
  const within = ['--gpu-memory', '600KB', '--activations', 'keep'];
  const DISK = ['--disk', 'tiers'];

  test('host memory and a disk have what is below the GPU, each within its limit; without a disk it must fit, as is said', async () => {
    const { below: alone } = await json(...within);
    expect(alone.disk).toBe(0);
    const little = ['--host-memory', '300KB'];
    const { below } = await json(...within, ...little, ...DISK);
    expect(below.host).toBeLessThanOrEqual(300e3);
    expect(below.disk).toBeGreaterThan(0);
    expect(await plan(...SMALL, ...within, ...little, ...DISK)).toMatch(
      /^ {2}GPU .*\n {2}host .* \d+ KB\n {2}disk .*B\n.*\n.*up to the GPU.*\n.*\n.*from disk, .*B written to it/m,
    );
    const refused = /there are 300 KB of host memory and no disk; --host-memory (\S+) would do$/;
    const message = await plan(...SMALL, ...within, ...little).catch((error: Error) => error.message);
    const [, enough = ''] = refused.exec(message) ?? [];
    // Within it other chunks may be taken than where there is no end of it.
    const { below: inEnough } = await json(...within, '--host-memory', enough);
    expect(inEnough.disk).toBe(0);
    expect(inEnough.host).toBeLessThanOrEqual(Math.min(alone.host, parseBytes(enough)));
    await expect(plan(...SMALL, ...within, ...little, ...DISK, '--disk-limit', '100KB')).rejects.toThrow(
      'there are 300 KB of host memory and 100 KB of disk; --host-memory',
    );
  });

  test('beside a disk host memory that is too little for what passes through it is told the least, not all that lies below', async () => {
    const least = /on its way to disk has no room in \S+ KB of it; give --host-memory (\S+) at least$/;
    const refusal = (host: string) =>
      plan(...SMALL, ...within, ...DISK, '--host-memory', host).then(
        () => '',
        (error: Error) => error.message,
      );
    const [, first = ''] = least.exec(await refusal('10KB')) ?? [];
    // With more of it chunks may be larger.
    const [, second = first] = least.exec(await refusal(first)) ?? [];
    expect(await refusal(second)).toBe('');
    expect(parseBytes(second)).toBeLessThan(50e3);
  });

  test('what is not read ahead is not read again where it had to give way', async () => {
    const tiers = [...within, '--host-memory', '100KB', ...DISK];
    const [ahead, needed] = [await json(...tiers), await json(...tiers, '--no-prefetch')];
    expect(needed.links.disk.read).toBeLessThan(ahead.links.disk.read);
    expect(needed.links.gpu).toEqual(ahead.links.gpu);
  });

  test('copies of what is all on the GPU lie on disk where host memory has no room for them, and are written there', async () => {
    const copies = ['--gpu-memory', '64MB', '--activations', 'keep', '--recovery', 'step', '--host-memory', '100KB'];
    const { tiers, links, slots, chunks } = await json(...copies, ...DISK);
    expect(slots * chunks.bytes).toBeGreaterThanOrEqual(tiers.gpu.parameters + tiers.gpu.moments);
    const { parameters, gradients, moments } = tiers.host;
    expect(Math.max(parameters, gradients, moments)).toBeLessThanOrEqual(tiers.host.all);
    expect(links.disk.written).toBeGreaterThan(links.gpu.recovery / 2);
  });

  test('another policy moves more, and is named', async () => {
    const moved = ({ bytesPerStep: { h2d, d2h } }: { bytesPerStep: Record<'h2d' | 'd2h', number> }) => h2d + d2h;
    const [planned, lru] = [await json(...within), await json(...within, '--policy', 'lru')];
    expect([planned.policy, lru.policy]).toEqual(['planned', 'LRU']);
    expect(moved(lru)).toBeGreaterThan(moved(planned));
    expect(lru.predictedPeak).toBe(planned.predictedPeak);
    expect(await plan(...SMALL, ...within, '--policy', 'lru')).toMatch(/down, by LRU/);
  });

  test('what would mean nothing is refused by name', async () => {
    for (const [flags, named] of [
      [['--no-prefetch'], '--no-prefetch: is of a disk; give --disk'],
      [['--sequence-parallel'], '--sequence-parallel: is for several ranks; give --ranks'],
      [['--disk-limit', '1MB'], '--disk-limit: give --disk'],
      [['--ranks', '2', '--policy', 'lru'], '--policy: with --ranks it is told how much lies below each GPU'],
      [['--ranks', '2', '--host-memory', '1MB'], '--host-memory: with --ranks'],
      [['--ranks', '2', ...DISK], '--disk: with --ranks'],
      [['--compare', '--policy', 'lru'], '--policy: --compare'],
      [['--compare', '--activations', ...DISK], '--disk: --compare of activations'],
    ] as const)
      await expect(plan(...flags), `${flags}`).rejects.toThrow(named);
  });
});

describe('on a machine', () => {
  const within = ['--gpu-memory', '500KB', '--host-memory', '600KB', '--activations', 'keep'];
  const pi = (...args: string[]) => json('--hardware', 'raspberry-pi-5', ...within, ...args);

  test('reads of its disk, the policy and the folder make a step another, or leave it as it is', async () => {
    const found = await pi();
    expect(found.onDisk).toBeGreaterThan(0);
    expect(await pi('--disk', 'tiers')).toEqual(found);
    const late = await pi('--disk', 'tiers', '--no-prefetch');
    expect(late.waits.diskRead).not.toBe(found.waits.diskRead);
    expect(late.bytes).toMatchObject({ up: found.bytes.up, down: found.bytes.down });
    const lru = await pi('--policy', 'lru');
    expect(lru.bytes.up + lru.bytes.down).toBeGreaterThan(found.bytes.up + found.bytes.down);
  });

  test('its disk is as large as the limit says, and must be there', async () => {
    await expect(pi('--disk', 'tiers', '--disk-limit', '100KB')).rejects.toThrow('100 KB of disk');
    await expect(json('--hardware', 'amd-radeon-780m', ...within, '--disk', 'tiers')).rejects.toThrow(
      /^--disk: .*780M.* has none/,
    );
  });
});
