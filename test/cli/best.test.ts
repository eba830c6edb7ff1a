// `--best`: of a run, the checkpoint of its best validation in place of the newest, for all commands that read a model; and what
// `export` says of the one that it took.

import { beforeAll, describe, expect, test } from 'vitest';
import { savedState } from '../../src/train/run/saved-state.ts';
import { chooseVariants } from '../choose-variants.ts';
import { MemoryFiles, memoryHost } from '../memory-files.ts';
import { done, inProcess } from './in-process.ts';

chooseVariants(4);

const files = new MemoryFiles({ 'text.txt': 'a rope that holds fast, holds; '.repeat(60) });
const SHAPE = ['--layers', '1', '--width', '16', '--heads', '2', '--context', '24', '--batch', '2'];
const QUICK = ['--eval-windows', '3', '--sample-tokens', '0', '--warmup', '0', '--data', 'text.txt'];
const KINDS = [
  ['the whole model', 'run', []],
  ['an adapter', 'low', ['--merge']],
] as const;

/** The best checkpoint of a run, and its newest. */
let chosen: Record<string, { readonly best: string; readonly newest: string }>;

beforeAll(async () => {
  // At this rate it gets worse at some time, and ends behind.
  const wild = ['--lr', '0.5', '--steps', '40', '--eval-every', '1', '--save-every', '0'];
  const early = [...QUICK, ...wild, '--early-stopping-patience', '3'];
  await done(files, ['train', ...SHAPE, ...early, '--out', 'run']);
  await done(files, ['train', ...SHAPE, ...QUICK, '--steps', '2', '--out', 'plain']);
  await done(files, ['train', '--model', 'plain', '--batch', '2', '--lora-rank', '2', ...early, '--out', 'low']);
  const stepsOf = async (run: string) => {
    const { history, trainer } = await savedState(memoryHost(files), run);
    const best = history.validations.reduce((least, each) => (each.loss < least.loss ? each : least));
    expect(best.step).toBeLessThan(trainer.step);
    return { best: `${run}/checkpoint-${best.step}`, newest: `${run}/checkpoint-${trainer.step}` };
  };
  chosen = { run: await stepsOf('run'), low: await stepsOf('low') };
});

const bytes = async (path: string) => Buffer.from(await files.read(path));

describe.each(KINDS)('a run of %s', (_, run, merge) => {
  const of = () => chosen[run] ?? expect.fail();

  test('is exported as its newest checkpoint, which is said, and so is how to have the best', async () => {
    const { best, newest } = of();
    const out = await done(files, ['export', run, ...merge, '--out', `${run}-newest`]);
    const [first = '', ...rest] = out.split('\n');
    expect(first).toContain(` tensors of ${newest}, `);
    expect(rest).toEqual([`the best validation is that of ${best}: --best exports it`, '']);
    await done(files, ['export', newest, ...merge, '--out', `${run}-same`]);
    expect(await bytes(`${run}-newest/model.safetensors`)).toEqual(await bytes(`${run}-same/model.safetensors`));
  });

  test('is exported as its best one with --best', async () => {
    const { best } = of();
    const out = await done(files, ['export', run, '--best', ...merge, '--out', `${run}-best`]);
    expect(out).toMatch(new RegExp(`^[^\\n]+ tensors of ${best}, [^\\n]+\\n$`));
    const alone = await done(files, ['export', best, ...merge, '--out', `${run}-alone`]);
    expect(alone).toMatch(/^[^\n]+ tensors, [^\n]+, in one file\n$/);
    expect(await bytes(`${run}-best/model.safetensors`)).toEqual(await bytes(`${run}-alone/model.safetensors`));
    expect(await bytes(`${run}-best/model.safetensors`)).not.toEqual(await bytes(`${run}-newest/model.safetensors`));
    const json = await done(files, [
      'export',
      run,
      '--best',
      ...merge,
      '--gguf',
      'F16',
      '--json',
      '--out',
      `${run}.gguf`,
    ]);
    expect(JSON.parse(json)).toMatchObject({ gguf: 'F16', checkpoint: best });
  });

  test('is measured, and writes, as its newest, or with --best as its best', async () => {
    const { best, newest } = of();
    const lossOf = async (...args: string[]) =>
      JSON.parse(await done(files, ['eval', ...args, '--data', 'text.txt', '--json'])).loss as number;
    const [own, least] = [await lossOf(run), await lossOf(run, '--best')];
    expect([own, least]).toEqual([await lossOf(newest), await lossOf(best)]);
    expect(least).not.toBe(own);
    const write = (...args: string[]) => done(files, ['generate', ...args, '--prompt', 'a', '--tokens', '8']);
    expect(await write(run)).toBe(await write(newest));
    expect(await write(run, '--best')).toBe(await write(best));
  });
});

test('a run that was moved has its best checkpoint still', async () => {
  for (const [path, content] of [...files.contents])
    if (path.startsWith('run/')) files.contents.set(path.replace('run/', 'moved/'), content);
  const { best } = chosen['run'] ?? expect.fail();
  expect(await done(files, ['export', 'moved', '--best', '--out', 'moved-best'])).toContain(
    ` tensors of ${best.replace('run/', 'moved/')}, `,
  );
});

test.each([
  ['plain', 'of a run that keeps none'],
  ['run-newest', 'of a model'],
])('%s: %s, it is refused in one line', async (name) => {
  for (const args of [
    ['export', name, '--out', 'refused'],
    ['generate', name],
    ['eval', name, '--data', 'text.txt'],
  ]) {
    const { status, said } = await inProcess(files, [...args, '--best']);
    expect([status, said]).toEqual([
      2,
      `holdfast: --best: ${name} is no run that keeps its best checkpoint (train --keep-best does); leave the flag out\n`,
    ]);
  }
});

test('a run that keeps none is exported without a word of it', async () => {
  expect(await done(files, ['export', 'plain', '--out', 'plain-model'])).toMatch(
    /^[^\n]+ tensors of plain\/checkpoint-2, [^\n]+\n$/,
  );
});
