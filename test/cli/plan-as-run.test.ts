// `plan` beside a run of the same flags: once this machine's adapter is known, what is planned with no GPU is what the run then
// has at its peak and moves in a step, to the byte. In process, on the adapter under test.

import { describe, expect, test } from 'vitest';
import { parseBytes } from '../../src/util/bytes.ts';
import { chooseVariants } from '../choose-variants.ts';
import { EVERY_CASE } from '../host.ts';
import { MemoryFiles } from '../memory-files.ts';
import { onChosen } from './in-process.ts';

chooseVariants(1);

const files = new MemoryFiles({ 'text.txt': 'hold fast, and then hold on; '.repeat(400) });

const said = (...args: string[]) => onChosen(files, args);

/** The same as JSON objects. */
const objects = async (...args: string[]) =>
  (await said(...args, '--json'))
    .trim()
    .split('\n')
    .map((line) => JSON.parse(line));

/** The default model, batch and context of `train`. */
const DEFAULTS = [
  ...['--layers', '2', '--width', '64', '--heads', '4', '--context', '64', '--batch', '8'],
  ...['--vocab-size', '256'],
];
const SHORT = ['--data', 'text.txt', '--eval-windows', '2', '--sample-tokens', '1', '--warmup', '0', '--steps', '5'];
const train = (...args: string[]) => objects('train', ...SHORT, ...args);
const plan = async (...args: string[]) => (await objects('plan', ...DEFAULTS, ...args))[0];

describe('before any run', () => {
  test('a plan is by rates typical of a GPU, and says so', async () => {
    const { rates } = await plan('--gpu-memory', '2MB');
    expect(rates).toMatchObject({ adapter: null, measured: false, flops: 5e12 });
  });
});

interface Summary {
  adapter: string;
  activations: Record<'arenas' | 'alive', number>;
  memory: Record<'gpu' | 'bytesPerStep' | 'total', Record<string, number>> &
    Record<'recoveryBytesPerStep' | 'offloadedPerStep' | 'fetchedPerStep', number> &
    Record<'host' | 'disk', { peak: number }> & {
      sweep: { points: { budget: number }[]; measured: number };
    };
}

/** In which most is moved. */
const SMALLEST = '1.37MB';

describe.each([
  ['2MB', 'step'],
  ['4.12MB', 'step'],
  [SMALLEST, 'step'],
  [SMALLEST, 'checkpoint'],
  [SMALLEST, 'step', '--host-memory', '1MB', '--disk', 'tiers'],
])('within %s, with recovery by %s', (budget, recovery, ...tiers) => {
  const memory = ['--gpu-memory', budget, '--recovery', recovery, ...tiers];

  test('the plan has the peak of the run, and moves what a step of it moved', async () => {
    const summary: Summary = (await train('--out', `${budget} ${recovery} ${tiers}`, ...memory)).at(-1).summary;
    const { adapter, memory: counted } = summary;
    const {
      predictedPeak,
      bytesPerStep,
      activations,
      nonModelBytes,
      below,
      rates,
      tiers: lying,
      links,
    } = await plan(...memory);
    expect(nonModelBytes).toMatchObject(summary.activations);
    expect(rates).toMatchObject({ adapter, measured: false });
    expect(predictedPeak).toBe(counted.gpu['peak']);
    const { h2d = 0, d2h = 0 } = counted.bytesPerStep;
    // Beyond what the plan moves, for a device that is lost.
    expect(bytesPerStep).toEqual({ h2d, d2h: d2h - counted.recoveryBytesPerStep });
    expect(activations.offloadedBytes).toBe(counted.offloadedPerStep);
    // The step that is recorded is the last one: copies that only leave when the run is saved are no more of it than of others.
    expect(links.gpu.down).toBe(d2h + counted.offloadedPerStep);
    for (const tier of ['host', 'disk'] as const) expect(counted[tier].peak).toBeLessThanOrEqual(below[tier]);
    expect(lying.gpu.all).toBe(predictedPeak);
    if (tiers.length === 0 && recovery === 'step') expect(lying.host.all).toBe(counted.host.peak);
    expect(links.disk !== undefined).toBe(tiers.length > 0);
    expect(counted.disk.peak > 0).toBe(tiers.length > 0);
    const { points, measured } = counted.sweep;
    expect(points).toContainEqual({ budget: parseBytes(budget), seconds: expect.any(Number) });
    expect(measured).toBeGreaterThan(0);
    if (!EVERY_CASE && budget !== SMALLEST) return;
    // By kind, and over each link: against a run that is longer by some steps, without what its end adds.
    const { total } = (await train('--out', `longer ${budget} ${recovery} ${tiers}`, ...memory, '--steps', '10')).at(-1)
      .summary.memory;
    const each = (link: string): number => ((total[link] ?? 0) - (counted.total[link] ?? 0)) / 5;
    expect(links.gpu).toMatchObject({ up: each('h2d'), down: each('d2h'), activations: activations.offloadedBytes });
    // The disk's own time says how far it is read ahead.
    const near = (bytes: number, found: number) => Math.abs(bytes / found - 1);
    if (links.disk) expect(near(links.disk.read, each('diskRead'))).toBeLessThan(0.25);
    if (links.disk) expect(near(links.disk.written, each('diskWrite'))).toBeLessThan(0.25);
  });
});

test('of a backward pass that runs twice activations come back twice, in the plan and in the run', async () => {
  const flags = ['--gpu-memory', '2MB', '--update', 'in-backward', '--activations', 'offload'];
  const summary: Summary = (await train('--out', 'twice', ...flags)).at(-1).summary;
  const { bytesPerStep, offloadedPerStep, fetchedPerStep } = summary.memory;
  const { links } = await plan(...flags);
  expect(fetchedPerStep).toBe(2 * offloadedPerStep);
  expect(links.gpu).toMatchObject({ activations: offloadedPerStep, fetched: fetchedPerStep });
  expect(links.gpu.up).toBe((bytesPerStep['h2d'] ?? 0) + fetchedPerStep);
  expect(await said('plan', ...DEFAULTS, ...flags)).toMatch(/; \S+ MB of activations down, \S+ MB up\n/);
});

test('a plan is by the rates that were measured, where they are kept, and says so to people', async () => {
  const path = '/cache/adapters.json';
  const kept = JSON.parse(new TextDecoder().decode(await files.read(path)));
  const [record] = Object.values<Record<string, unknown>>(kept.adapters);
  const typical = await plan('--gpu-memory', '4MB');
  const rates = { flops: 1e15, upBytes: 1e7, downBytes: 1e7, launchSeconds: 0 };
  Object.assign(record ?? {}, { name: 'a GPU', software: false, rates });
  await files.writeAtomic(path, JSON.stringify(kept));
  const found = await plan('--gpu-memory', '4MB');
  expect(found.rates).toEqual({ adapter: 'a GPU', measured: true, ...rates });
  expect(found.activations).not.toEqual(typical.activations);
  expect(await said('plan', ...DEFAULTS)).toContain('by the rates measured on a GPU\n');
  expect(await said('plan', ...DEFAULTS, '--ranks', '2')).toContain('by the rates measured on a GPU\n');
  files.contents.delete(path);
  expect(await said('plan', ...DEFAULTS)).toContain('by rates typical of a GPU; a run or `bench` tells of yours\n');
});
