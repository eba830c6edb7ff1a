// `holdfast parity` itself: what it prints, and what it refuses.

import { cp, mkdir, mkdtemp, rm } from 'node:fs/promises';
import os from 'node:os';
import path from 'node:path';
import { describe, expect, it, vi } from 'vitest';
import { parityCommand } from '../../src/cli/parity.ts';
import { HostThreads } from '../../src/engine/run/host-threads.ts';
import { join } from '../../src/runtime/host.ts';
import { chooseVariants } from '../choose-variants.ts';
import { ADAPTER, testHost as host } from '../host.ts';

chooseVariants(14);

const FOLDER = 'test/fixtures/reference';

describe('holdfast parity', () => {
  async function run(...args: string[]) {
    const out: string[] = [];
    const statuses: number[] = [];
    const terminal = { ...host.terminal, write: (text: string) => void out.push(text) };
    // A cache that cannot be written, so that the choices of this run meet no other.
    const quiet = { ...host, terminal, cacheFolder: '/dev/null/none' };
    const command = parityCommand(quiet, (status) => void statuses.push(status));
    await command.parseAsync([...args, '--adapter', ADAPTER], { from: 'user' });
    expect(statuses).toHaveLength(1);
    return { out: out.join(''), status: statuses[0] };
  }

  it('prints one JSON object a line', async () => {
    const { out, status } = await run(join(FOLDER, 'gpt2-accum4-ignore'), '--json');
    expect(status).toBe(0);
    expect(out.endsWith('}\n')).toBe(true);
    const result = JSON.parse(out);
    expect(Object.keys(result)).toEqual(['case', 'metrics', 'worst', 'pass']);
    expect(result).toMatchObject({ case: 'gpt2-accum4-ignore', pass: true });
    expect(result.worst).toBe(
      Math.max(...Object.values<{ multiple: number }>(result.metrics).map(({ multiple }) => multiple)),
    );
    expect(result.metrics.loss).toMatchObject({ tolerance: 2e-6, multiple: result.metrics.loss.value / 2e-6 });
  });

  it('prints tables, and refuses what is no case', async () => {
    const { out, status } = await run(join(FOLDER, 'gpt2-stdinit'));
    expect(status).toBe(0);
    expect(out).toMatch(/gpt2-stdinit: pass, worst 0\.\d{3} tolerances/);
    expect(out).toMatch(/^> \w+ .* 0\.\d+/m);
    await expect(run('test/kernels')).rejects.toThrow(/test\/kernels has no ref\.json/);
    await expect(run('nowhere')).rejects.toThrow(/nowhere is not there/);
  });

  it('passes over a model beside cases, and says so', async () => {
    const folder = await mkdtemp(path.join(os.tmpdir(), 'holdfast-parity-'));
    const warned = vi.spyOn(host.terminal, 'warn').mockImplementation(() => {});
    try {
      const model = join(folder, 'a-model');
      await cp(join(FOLDER, 'gpt2-stdinit'), join(folder, 'case'), { recursive: true });
      await mkdir(model);
      await cp(join(folder, 'case', 'config.json'), join(model, 'config.json'));
      await cp(join(folder, 'case', 'weights.safetensors'), join(model, 'model.safetensors'));
      expect(await run(folder, '--json')).toMatchObject({ status: 0 });
      expect(warned).toHaveBeenCalledWith(`${model}: a model, and no case or run; passed over\n`);
      await expect(run(model)).rejects.toThrow(/a-model is a model, and no case or run/);
    } finally {
      warned.mockRestore();
      await rm(folder, { recursive: true, force: true });
    }
  });

  it('prints the same table of AdamW on the host, whenever chunks are updated, and it ran there', async () => {
    const update = vi.spyOn(HostThreads.prototype, 'update');
    try {
      const table = async (...flags: string[]) => {
        chooseVariants(14);
        update.mockClear();
        const { out, status } = await run(join(FOLDER, 'gpt2-ignore'), ...flags);
        expect(status).toBe(0);
        return { out, onHost: update.mock.calls.length > 0 };
      };
      expect(await table()).toMatchObject({ onHost: false });
      const onHost = await table('--optimizer-device', 'cpu');
      expect(onHost.out).toMatch(/gpt2-ignore: pass, worst 0\.\d{3} tolerances/);
      expect(onHost.onHost).toBe(true);
      expect(await table('--optimizer-device', 'cpu', '--update', 'in-backward')).toEqual(onHost);
    } finally {
      update.mockRestore();
    }
  });
});
