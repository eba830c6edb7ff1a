// A GPU budget from the command line: the losses of the run without one, what the summary says of it, and what is
// refused.

import { existsSync, mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import os from 'node:os';
import path from 'node:path';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { EVERY_CASE, THOROUGH } from '../host.ts';
import { holdfast, records } from './cli.ts';
import { here } from './here.ts';

let folder: string;
const at = (...names: string[]) => path.join(folder, ...names);

beforeAll(() => {
  folder = mkdtempSync(path.join(os.tmpdir(), 'holdfast-memory-'));
  const words = ['chunks ', 'of ', 'one ', 'size ', 'come ', 'and ', 'go.\n'];
  writeFileSync(at('text'), Array.from({ length: 900 }, (_, i) => words[(i * i + i) % words.length]).join(''));
});
afterAll(() => rmSync(folder, { recursive: true, force: true }));

const REFERENCE = 'test/fixtures/reference';
const SHAPE = ['--layers', '2', '--width', '64', '--heads', '2', '--context', '16', '--batch', '2', '--steps', '6'];
const trained = (out: string, ...more: string[]) => [
  ...['train', ...SHAPE, '--data', at('text'), '--out', at(out), '--eval-windows', '4', '--sample-tokens', '8'],
  ...more,
];
/** Other tests do not change the kernels that the runs of these have chosen. */
const own = () => ({ cacheFolder: at('cache', 'holdfast') });
const train = (out: string, ...more: string[]) => here(trained(out, ...more), own());

interface Memory {
  gpu: { budget: number; peak: number; predictedPeak: number };
  host: { budget: number; peak: number };
  disk: { peak: number };
  bytesPerStep: Record<'h2d' | 'd2h' | 'diskRead' | 'diskWrite', number>;
  bound: { lp: number; milp?: number; ratio: number };
  waits: Record<string, number>;
}

test('the losses are those without a budget, and the summary tells what that took', async () => {
  const whole = await train('whole', '--json');
  expect(whole.status, whole.stderr).toBe(0);
  const budget = ['--gpu-memory', '1100KB', '--host-memory', '400KB', '--disk', at('tiers')];
  const tight = await holdfast(trained('tight', '--json', ...budget, '--timeline', at('timeline.json')), {
    env: { XDG_CACHE_HOME: at('cache') },
  });
  expect(tight.status, tight.stderr).toBe(0);
  const [expected, found] = [records(whole.stdout), records(tight.stdout)];
  const curve = (lines: typeof found) => lines.slice(0, -1).map(({ step, loss, gradNorm }) => [step, loss, gradNorm]);
  expect(curve(found)).toEqual(curve(expected));
  const { summary } = found.at(-1) as { summary: { validationLoss: number; memory: Memory } };
  expect(summary.validationLoss).toBe((expected.at(-1) as { summary: typeof summary }).summary.validationLoss);

  const { gpu, host, disk, bytesPerStep, bound, waits } = summary.memory;
  expect(gpu.budget).toBe(1_100_000);
  expect(gpu.peak).toBe(gpu.predictedPeak);
  expect(gpu.peak).toBeLessThanOrEqual(gpu.budget);
  expect(host.peak).toBeLessThanOrEqual(400_000);
  expect(disk.peak).toBeGreaterThan(0);
  for (const link of ['h2d', 'd2h', 'diskRead', 'diskWrite'] as const) expect(bytesPerStep[link]).toBeGreaterThan(0);
  expect(bound.lp).toBeLessThanOrEqual((bound.milp ?? bound.lp * bound.ratio) + 1e-6);
  expect(bound.ratio).toBeLessThanOrEqual(1.05);
  expect(Object.keys(waits)).toEqual(['down', 'up', 'below', 'network', 'diskRead', 'diskWrite']);
  expect(waits.network).toBe(0);
  // One file a run, gone at a clean end with the folder that was made for it.
  expect(existsSync(at('tiers'))).toBe(false);
  const { traceEvents } = JSON.parse(readFileSync(at('timeline.json'), 'utf8'));
  expect(traceEvents.length).toBeGreaterThan(100);
});

test.runIf(THOROUGH)('a run is resumed under another budget with the same bits', async () => {
  await train('half', '--until', '3', '--gpu-memory', '1200KB');
  const budget = ['--gpu-memory', '1500KB', '--recovery', 'checkpoint'];
  const rest = await here(['train', '--resume', '--out', at('half'), ...budget], own());
  expect(rest.status, rest.stderr).toBe(0);
  await train('straight');
  const weights = (run: string) => readFileSync(at(run, 'checkpoint-6', 'model.safetensors'));
  expect(weights('half').equals(weights('straight'))).toBe(true);
});

test('parity holds within budgets', async () => {
  const all = readdirSync(REFERENCE).filter((name) => /^(gpt2|llama)-/.test(name));
  // The largest of all needs 1.16 MB.
  const [names, gpu, memory] = EVERY_CASE ? [all, '1200KB', '300KB'] : [['gpt2-stdinit'], '640KB', '150KB'];
  const cases = names.map((name) => `${REFERENCE}/${name}`);
  const budget = ['--gpu-memory', gpu, '--host-memory', memory, '--disk', at('tiers')];
  const { status, stdout, stderr } = await here(['parity', ...cases, ...budget, '--json']);
  expect(status, stderr).toBe(0);
  for (const line of records(stdout)) expect(line['worst']).toBeLessThanOrEqual(1);
});

test.each([
  [['--gpu-memory', '100KB'], /\d+ bytes \(.*\) is the smallest budget that works/],
  [['--gpu-memory', '1100KB', '--host-memory', '10KB'], /host memory/],
  [['--gpu-memory', '1100KB', '--host-memory', '100KB', '--disk', 'DISK', '--disk-limit', '50KB'], /disk/],
  [['--gpu-memory', '64'.concat('M')], /64M.* is not a byte count/],
  [['--host-memory', '64MB'], /--host-memory: without --gpu-memory/],
  [['--gpu-memory', '1100KB', '--policy', 'best'], /It must be one of planned, lru/],
])('refuses %j in one line, before anything is written', async (flags, message) => {
  const { status, stderr } = await train('refused', ...flags.map((flag) => flag.replace('DISK', at('tiers'))));
  expect(status).toBe(2);
  expect(stderr).toMatch(message);
  expect(stderr.split('\n').filter((line) => line.startsWith('holdfast') || line.startsWith('error'))).toHaveLength(1);
  expect(existsSync(at('refused'))).toBe(false);
});
