// What `plan` says of the time of a step on the adapter that runs here: as long as those of a run of the same shape and budget
// took there, or as is reckoned from others. In process, on the adapter under test.

import { expect, test } from 'vitest';
import { parseConfig } from '../../src/formats/config.ts';
import { planRun } from '../../src/train/run/plan-run.ts';
import { defaultSettings } from '../../src/train/run/run-settings.ts';
import { median } from '../../src/util/median.ts';
import { testDevice } from '../harness.ts';
import { MemoryFiles, memoryHost } from '../memory-files.ts';
import { onChosen } from './in-process.ts';

const files = new MemoryFiles({ 'text.txt': 'hold fast, and then hold on; '.repeat(400) });

const said = (...args: string[]) => onChosen(files, args);

const SHAPE = ['--layers', '1', '--width', '16', '--heads', '2', '--context', '12', '--sample-tokens', '0'];
const TOKENS = 2 * 12;
const RUN = ['--data', 'text.txt', '--eval-windows', '2', '--warmup', '0', '--batch', '2', '--json'];

/** Milliseconds that most steps of a run took. */
async function train(out: string, steps: number, ...memory: string[]): Promise<number> {
  const lines = (await said('train', ...SHAPE, ...RUN, '--out', out, '--steps', `${steps}`, ...memory))
    .trim()
    .split('\n')
    .map((line) => JSON.parse(line));
  const speeds = lines.flatMap(({ step, tokensPerSecond }) =>
    step === undefined ? [] : [tokensPerSecond ?? []].flat(),
  );
  expect(speeds).toHaveLength(steps);
  return (1000 * TOKENS) / median(speeds);
}

const PLANNED = ['plan', ...SHAPE, '--vocab-size', '256'];
const plan = async (...flags: string[]) => JSON.parse(await said(...PLANNED, '--json', ...flags)).step;

const ALL = ['--batch', '2', '--gpu-memory', '1GB'];
const WITHIN = ['--gpu-memory', '150KB'];

test('of a step nothing is said before there was a run, and of one that has hardly begun', async () => {
  expect(await plan(...ALL)).toBe(null);
  await train('short', 5);
  expect(await plan(...ALL)).toBe(null);
});

test('a run says how long its steps take, and by its budget how long those of others do', async () => {
  const resident = await train('resident', 24);
  const told = await plan(...ALL);
  expect(told).toEqual({ seconds: expect.closeTo(resident / 1000, 6), from: 'run' });
  expect(await said(...PLANNED, ...ALL)).toMatch(
    / a step, [\d,]+ tokens\/s on .+, as the steps of such a run took there\n/,
  );

  const within = await plan('--batch', '2', ...WITHIN);
  expect(within.from).toBe('probe');
  expect(within.seconds).toBeGreaterThan(told.seconds);
  expect(await said(...PLANNED, '--batch', '2', ...WITHIN)).toContain(', by the times of other steps there\n');
  // More arithmetic, more time, if most of it is that of dispatches; in another way nothing is known.
  expect((await plan('--batch', '4', '--gpu-memory', '1GB')).seconds).toBeGreaterThan(told.seconds);
  expect(await plan(...ALL, '--dtype', 'bf16')).toBe(null);
  // What a disk takes is not known before it was used.
  const disk = ['--host-memory', '50KB', '--disk', 'tiers'];
  expect(await plan('--batch', '2', ...WITHIN, ...disk)).toBe(null);

  const confined = await train('confined', 24, ...WITHIN);
  expect(await plan('--batch', '2', ...WITHIN)).toEqual({ seconds: expect.closeTo(confined / 1000, 6), from: 'run' });
  expect(await plan(...ALL)).toEqual(told);
  const onDisk = await train('disk', 24, ...WITHIN, ...disk);
  expect(await plan('--batch', '2', ...WITHIN, ...disk)).toEqual({
    seconds: expect.closeTo(onDisk / 1000, 6),
    from: 'run',
  });
});

test('a run within a budget alone tells of other budgets, and of none', async () => {
  const narrow = ['--batch', '2', '--update', 'in-backward'];
  expect(await plan(...narrow, ...WITHIN)).toBe(null);
  const confined = (await train('narrow', 24, ...WITHIN, '--update', 'in-backward')) / 1000;
  expect((await plan(...narrow, ...WITHIN)).from).toBe('run');
  const [smaller, whole] = [
    await plan(...narrow, '--gpu-memory', '130KB'),
    await plan(...narrow, '--gpu-memory', '1GB'),
  ];
  expect([smaller.from, whole.from]).toEqual(['probe', 'probe']);
  expect(whole.seconds).toBeLessThan(confined);
  expect(smaller.seconds).toBeGreaterThan(whole.seconds);
});

test('a program is told the same times, where it names the host that keeps them', async () => {
  const config = { model_type: 'gpt2', vocab_size: 256, n_positions: 12, n_embd: 16, n_layer: 1, n_head: 2 };
  const settings = { ...defaultSettings({ sampleTokens: 0, batch: 2, seq: 12 }), config: parseConfig(config, 'here') };
  const [device, host] = [await testDevice(), memoryHost(files)];
  const told = async (gpu: number, changes: Partial<typeof settings> = {}) =>
    (await planRun({ ...settings, ...changes }, { memory: { gpu }, device, host })).step;
  expect(await told(150_000)).toEqual(await plan('--batch', '2', ...WITHIN));
  expect(await told(148_000)).toEqual(await plan('--batch', '2', '--gpu-memory', '148KB'));
  expect(await told(1e9)).toEqual(await plan(...ALL));
  expect(await told(1e9, { optimizerState: 'bf16' })).toBe(undefined);
  expect((await planRun(settings, { device })).step).toBe(undefined);
});
