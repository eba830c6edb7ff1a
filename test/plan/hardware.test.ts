// `holdfast plan --hardware` from its flags to its text and its picture, with no GPU, and the part of a deep model that
// stands for all of it.

import { describe, expect, it } from 'vitest';
import { configFromFlags } from '../../src/cli/model-flags.ts';
import { planCommand } from '../../src/cli/plan.ts';
import { HARDWARE, knownMachine } from '../../src/engine/simulate/hardware.ts';
import { makeModel } from '../../src/nn/index.ts';
import { sizeOf } from '../../src/nn/size.ts';
import type { Host } from '../../src/runtime/host.ts';
import { Predictor } from '../../src/train/plan/prediction.ts';
import type { Scenario } from '../../src/train/plan/prediction-part.ts';
import { HoldfastError } from '../../src/util/errors.ts';

interface Output {
  text: string;
  readonly files: Record<string, string>;
}

async function plan(...args: string[]): Promise<Output> {
  const output: Output = { text: '', files: {} };
  const terminal = { interactive: false, columns: 120, write: (part: string) => (output.text += part), warn: () => {} };
  const own = (HARDWARE['apple-m1'] ?? '').replace('Apple M1', 'A <machine> of mine');
  const files = {
    stat: async (path: string) => {
      if (path === 'folder') return { kind: 'folder', bytes: 0 };
      return path === 'mine.json' ? { kind: 'file', bytes: own.length } : undefined;
    },
    read: async () => new TextEncoder().encode(own),
    writeStream: async (path: string) => {
      if (path.startsWith('/nowhere/')) throw new HoldfastError(`cannot write ${path}: there is no such folder`);
      return { abort: async () => {} };
    },
    writeAtomic: async (path: string, text: string) => {
      output.files[path] = text;
    },
  };
  const command = planCommand({ terminal, files } as unknown as Host).exitOverride();
  await command.configureOutput({ writeErr: () => {} }).parseAsync(args, { from: 'user' });
  return output;
}

const SMALL = ['--layers', '2', '--width', '64', '--heads', '4', '--context', '32', '--vocab-size', '500'];

describe('holdfast plan --hardware', () => {
  it('says what a step takes, what it waits for and what would help', async () => {
    const args = [...SMALL, '--hardware', 'raspberry-pi-5', '--gpu-memory', '500KB', '--host-memory', '600KB'];
    const { text } = await plan(...args);
    expect(text).toMatch(/^gpt2, 2 layers of width 64, vocabulary 500, batch 1 x 32 on Raspberry Pi 5/);
    expect(text).toMatch(/a step, [\d,.]+ tokens\/s: \d+(\.\d)? % of the speed with everything on the GPU/);
    expect(text).toMatch(/arithmetic \d+(\.\d)? %.*, waiting for disk (reads|writes) \d/);
    expect(text).toMatch(
      /waiting for disk \d+(\.\d)? %: --host-memory [\d.]+MB, .* more of host memory, would make it/,
    );
    expect(text).toMatch(/is the smallest budget that works/);
    expect(text).toMatch(/assumed: kernels reach 50 % of the peak/);
    expect((await plan(...args)).text).toBe(text);
  });

  it('finds out before all work whether its picture can be put where it is asked for', async () => {
    // Before the machines are looked for, which comes before any work.
    const args = [...SMALL, '--hardware', 'none'];
    await expect(plan(...args, '--sweep', '/nowhere/x.svg')).rejects.toThrow('cannot write /nowhere/x.svg');
    await expect(plan(...args, '--sweep', 'x.svg')).rejects.toThrow('--hardware none: no such file');
  });

  it('gives the same as JSON, in which what would help does help', async () => {
    const report = async (...args: string[]) =>
      JSON.parse((await plan(...SMALL, '--hardware', 'rtx-3060', '--json', ...args)).text);
    const budget = ['--gpu-memory', '1MB', '--recovery', 'checkpoint'];
    const found = await report(...budget);
    const waited = Object.values<number>(found.waits).reduce((a, b) => a + b, 0);
    expect(found.computeSeconds + waited).toBeCloseTo(found.seconds, 12);
    expect(found.tokensPerSecond).toBeCloseTo(32 / found.seconds, 6);
    expect(found.efficiency).toBeCloseTo(found.resident.seconds / found.seconds, 12);
    expect((await report(...budget, '--reached', '0.25')).resident.seconds).toBeGreaterThan(found.resident.seconds);
    expect((await report(...budget, '--copies', 'serial')).seconds).toBeGreaterThanOrEqual(found.seconds);
    const { comfortableBudget } = found;
    const comfortable = await report('--gpu-memory', `${comfortableBudget}`, '--recovery', 'checkpoint');
    expect(comfortable.seconds).toBeLessThanOrEqual(1.05 * comfortable.resident.seconds);
    const all = await report();
    expect(all.seconds).toBeCloseTo(all.resident.seconds, 12);
    expect(all.budget).toBe(all.resident.bytes);
  });

  it('holds every mode of activations against the same fastest step', async () => {
    const report = async (mode: string) => {
      const within = ['--hardware', 'rtx-4090', '--gpu-memory', '3MB', '--activations', mode, '--json'];
      return JSON.parse((await plan(...SMALL, '--batch', '8', ...within)).text);
    };
    const found = await Promise.all(['auto', 'keep', 'recompute', 'slice'].map(report));
    const [auto] = found;
    for (const { efficiency, seconds } of found) expect(efficiency * seconds).toBeCloseTo(auto.resident.seconds, 12);
  });

  it('tells launches from arithmetic, and what would make them fewer', async () => {
    const within = (bytes: string) => [...SMALL, '--context', '64', '--batch', '8', '--gpu-memory', bytes];
    const { text } = await plan(...within('1MB'), '--hardware', 'rtx-4090');
    expect(text).toMatch(/arithmetic \d+(\.\d)? %, launches of dispatches [5-9]\d %/);
    expect(text).toMatch(/launches of dispatches \d+ %: --gpu-memory 2\.00MB, .* would make it/);
    const { launchSeconds, computeSeconds, seconds } = JSON.parse(
      (await plan(...within('1MB'), '--hardware', 'rtx-4090', '--json')).text,
    );
    expect(launchSeconds / seconds).toBeGreaterThan(0.5);
    expect(launchSeconds).toBeLessThan(computeSeconds);
    // Where arithmetic takes long there is nothing to say of them.
    expect((await plan(...within('1MB'), '--hardware', 'raspberry-pi-5', '--reached', '0.001')).text).not.toContain(
      'launches',
    );
  });

  it('says where no step is kept against the loss of a device', async () => {
    const wide = ['--layers', '1', '--width', '256', '--heads', '4', '--vocab-size', '2000', '--gpu-memory', '60MB'];
    const within = async (...flags: string[]) => (await plan(...wide, '--hardware', 'rtx-4090', ...flags)).text;
    const lost = 'a lost GPU goes back to the last checkpoint: no plan was found that keeps each step below';
    expect(await within()).toContain(lost);
    expect(await within('--recovery', 'step')).not.toContain(lost);
  });

  it('predicts AdamW on the host, and says where the other processor would be quicker', async () => {
    // The gradient of the embeddings is complete last, and there is little arithmetic beside the update of them.
    const slow = ['--hardware', 'rtx-3060', '--gpu-memory', '2MB', '--vocab-size', '8000'];
    const { text } = await plan(...SMALL, ...slow, '--optimizer-device', 'cpu');
    expect(text).toMatch(/waiting for AdamW on the host \d/);
    expect(text).toMatch(/of the speed with everything but the optimizer on the GPU and nothing to wait for/);
    expect(text).toMatch(/AdamW on the host 60 % of its memory’s 51.2 GB\/s/);
    const report = async (...args: string[]) => JSON.parse((await plan(...SMALL, ...slow, '--json', ...args)).text);
    const [onHost, onGPU] = [await report('--optimizer-device', 'cpu'), await report()];
    expect(onHost.waits.host).toBeGreaterThan(0);
    expect(onGPU.waits.host).toBe(0);
    expect(onHost.bytes.up + onHost.bytes.down).toBeLessThan(onGPU.bytes.up + onGPU.bytes.down);
    const [better, device] = onHost.seconds < onGPU.seconds ? [onHost, 'cpu'] : [onGPU, 'gpu'];
    const worse = device === 'cpu' ? (await plan(...SMALL, ...slow)).text : text;
    const isWorthIt = better.seconds < 0.95 * Math.max(onHost.seconds, onGPU.seconds);
    expect(worse.includes(`--optimizer-device ${device} would make it`)).toBe(isWorthIt);
    // Several ranks, each with its part of the moments below.
    const shared = ['--ranks', '4', '--zero', '2', '--hardware', 'dgx-2', '--optimizer-device', 'cpu', '--json'];
    const ranks = JSON.parse((await plan(...SMALL, ...shared)).text);
    expect(ranks.waits.host).toBeGreaterThan(0);
    expect(ranks.below).toBeGreaterThan(0);
  });

  it('reads a file of one’s own, and says which machines come along where there is none', async () => {
    expect((await plan(...SMALL, '--hardware', 'mine.json')).text).toMatch(/on A <machine> of mine/);
    await expect(plan(...SMALL, '--hardware', 'folder')).rejects.toThrow(
      /folder: no file, and no machine of that name/,
    );
    // More than the machine has is nothing to give.
    const kept = ['--layers', '48', '--activations', 'keep', '--context', '1024', '--hardware', 'rtx-3050-laptop'];
    await expect(plan(...kept, '--batch', '8')).rejects.toThrow(
      /works; this machine has 4.29 GB; take another, or use/,
    );
    await expect(plan(...kept, '--gpu-memory', '9MB')).rejects.toThrow(/works; give that much, or use a smaller batch/);
    await expect(plan(...SMALL, '--hardware', 'a-cray')).rejects.toThrow(/a-cray: no such file.*apple-m1.*rtx-4090/);
    await expect(plan(...SMALL, '--hardware', 'rtx-3060,rtx-4090')).rejects.toThrow(/--sweep/);
    await expect(plan(...SMALL, '--sweep', 'x.svg')).rejects.toThrow(/--sweep: give --hardware/);
    await expect(plan(...SMALL, '--hardware', 'rtx-3060', '--gpu-memory', '1KB')).rejects.toThrow(/smallest budget/);
  });

  it('predicts several ranks on a network, what waits for it, and how steps scale', async () => {
    const shared = [...SMALL, '--hardware', 'dgx-a100', '--activations', 'keep'];
    const { text } = await plan(...shared, '--ranks', '4', '--zero', '3');
    expect(text).toMatch(/^gpt2, .* on DGX A100.*, 4 ranks, ZeRO 3/);
    expect(text).toMatch(/arithmetic \d.*waiting for the network \d+(\.\d)? %/);
    expect(text).toMatch(/sends .*B over the network/);
    expect(text).toMatch(/waiting for the network .*: more micro-batches a step/);
    expect(text).toMatch(/ranks exchange through host memory/);
    const direct = (await plan(...shared, '--ranks', '4', '--zero', '3', '--exchange', 'direct', '--json')).text;
    expect(JSON.parse(direct).waits.network).toBeGreaterThan(0);
    const table = (await plan(...shared, '--ranks', '32', '--scaling', 'strong', '--batch', '2')).text;
    expect(table.match(/^ +\d+ +\d+ x \d+ .* ms .* %$/gm)).toHaveLength(6);
    expect(table).toMatch(/^strong scaling: /m);
    const refused = (...args: string[]) => plan(...SMALL, ...args);
    await expect(refused('--hardware', 'rtx-3060', '--ranks', '2')).rejects.toThrow(
      /--ranks 2: RTX 3060.* has no network/,
    );
    await expect(refused('--ranks', '2', '--scaling', 'weak')).rejects.toThrow(
      '--scaling: is of several ranks on a machine',
    );
    const both = ['--hardware', 'dgx-2', '--ranks', '2', '--scaling', 'weak', '--sweep', 'x.svg'];
    await expect(refused(...both)).rejects.toThrow('--scaling: is a table, and --sweep a picture');
    await expect(refused('--hardware', 'dgx-2', '--exchange', 'direct')).rejects.toThrow(
      '--exchange: is of several ranks',
    );
  });

  it('refuses what fits into neither memory, by the size of the whole model', async () => {
    const deep = ['--layers', '96', '--width', '1024', '--heads', '8', '--context', '16', '--vocab-size', '300'];
    const planned = plan(...deep, '--hardware', 'amd-radeon-780m', '--gpu-memory', '1GB', '--host-memory', '10GB');
    await expect(planned).rejects.toThrow(
      /^1\d\.\d GB lie below the GPU, and there are 10\.0 GB of host memory and no disk/,
    );
  });

  it('says what of host memory would do beside a disk, for the whole model', async () => {
    const deep = ['--layers', '24', '--width', '64', '--heads', '4', '--context', '16', '--vocab-size', '300'];
    const within = (bytes: string) =>
      plan(
        ...deep,
        '--hardware',
        'rtx-3060',
        '--gpu-memory',
        '3MB',
        '--host-memory',
        bytes,
        '--activations',
        'recompute',
      );
    const message = await within('1KB').then(
      () => '',
      ({ message }) => message,
    );
    const [, enough = ''] = /has no room in 1\.00 KB of it; --host-memory (\dMB) would do$/.exec(message) ?? [];
    expect((await within(enough)).text).toContain('a step');
  });

  it('refuses a flag that another one leaves without effect', async () => {
    const on = ['--hardware', 'rtx-3060'];
    for (const [flags, named] of [
      [[...on, '--sweep', 'x.svg', '--gpu-memory', '1MB'], '--gpu-memory: --sweep draws all budgets'],
      [[...on, '--print', 'plan'], '--print: --hardware predicts a step'],
      [['--json', '--print', 'layout'], '--print: --json has figures, and no listings'],
      [['--compare', '--layers', '2'], '--layers: --compare compares eviction policies'],
      [['--compare', '--gpu-memory', '1MB'], '--gpu-memory: --compare'],
      [['--compare', ...on], '--hardware: --compare'],
      [['--compare', '--activations', '--print', 'plan'], '--print: --compare of activations'],
    ] as const)
      await expect(plan(...flags)).rejects.toThrow(named);
    for (const [flag, value] of [
      ['--hardware', ''],
      ['--ranks', '4294967297'],
    ] as const)
      await expect(plan(flag, value)).rejects.toMatchObject({ code: 'commander.invalidArgument' });
  });

  it('sweeps the machines that can do it, and says which cannot, as JSON too', async () => {
    const files = ['--sweep', 'x.svg', '--json', '--activations', 'keep', '--host-memory', '600KB'];
    const { text } = await plan(...SMALL, '--hardware', 'amd-radeon-780m,raspberry-pi-5', ...files);
    const { sweep, machines, leftOut } = JSON.parse(text);
    expect(sweep).toBe('x.svg');
    expect(machines).toMatchObject([{ label: expect.stringContaining('Raspberry') }]);
    expect(leftOut).toMatchObject([
      { label: expect.stringContaining('780M'), reason: expect.stringContaining('lie below the GPU') },
    ]);
  });

  it('draws a line a machine, of as many budgets each, all within the frame', async () => {
    const { files } = await plan(
      ...SMALL,
      '--layers',
      '1',
      '--activations',
      'keep',
      '--hardware',
      'apple-m1,mine.json',
      '--sweep',
      'x.svg',
      '--recovery',
      'checkpoint',
    );
    const svg = files['x.svg'] ?? '';
    expect(svg.match(/<circle r="2.5"/g)).toHaveLength(40);
    const places = [...svg.matchAll(/<circle r="2.5" cx="([\d.]+)" cy="([\d.]+)"/g)].map(([, x, y]) => [
      Number(x),
      Number(y),
    ]);
    for (const [x = 0, y = 0] of places) {
      expect(x).toBeGreaterThan(76);
      expect(x).toBeLessThan(856);
      expect(y).toBeGreaterThan(84);
      expect(y).toBeLessThan(404);
    }
    // Two names of one machine are two equal lines.
    expect(places.slice(0, 20)).toEqual(places.slice(20));
    expect(svg).toContain('>A &lt;machine&gt; of mine');
    expect(svg).not.toContain('<machine>');
    expect(svg).not.toMatch(/NaN|undefined|Infinity/);
  });
});

describe('a part of the blocks', () => {
  const flags = { model: 'gpt2', width: 96, heads: 4, context: 64, vocabSize: 300, tied: false } as const;
  const scenario: Scenario = {
    layers: 12,
    parameters: sizeOf(configFromFlags({ ...flags, layers: 12 })).parameters,
    modelOf: (layers) => makeModel(configFromFlags({ ...flags, layers })),
    batch: 4,
    context: 64,
    accumulate: 1,
    activations: 'recompute',
    recovery: 'checkpoint',
  };

  it('stands for all: the same memory and arithmetic, and nearly the same waits', () => {
    const machine = knownMachine('rtx-3050-laptop');
    expect(machine).toBeDefined();
    if (!machine) return;
    const whole = new Predictor(scenario, machine);
    const part = new Predictor(scenario, machine, 8);
    expect([whole.blocks, part.blocks]).toEqual([12, 8]);
    expect(part.resident.bytes / whole.resident.bytes).toBeCloseTo(1, 1);
    expect(part.resident.seconds / whole.resident.seconds).toBeCloseTo(1, 1);
    // How many chunks there are grows in steps, other ones for other numbers of blocks: single budgets differ more than most.
    const apart = [0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.8].map((share) => {
      const budget = (of: Predictor) => Math.ceil(of.smallest + share * (of.resident.bytes - of.smallest));
      const [a, b] = [whole.at(budget(whole), 1e9), part.at(budget(part), 1e9)];
      return Math.abs(b.seconds / a.seconds - 1);
    });
    expect(Math.max(...apart)).toBeLessThan(0.12);
    expect(apart.toSorted((a, b) => a - b)[3]).toBeLessThan(0.05);
  });
});
