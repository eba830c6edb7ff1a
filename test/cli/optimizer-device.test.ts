// --optimizer-device auto on the command line: a run says where AdamW runs, its checkpoint has it, and a run that goes on keeps it,
// whatever its budget. In process, on the adapter under test.

import { expect, test } from 'vitest';
import { loadCheckpoint } from '../../src/formats/checkpoint.ts';
import { collect, type Values } from '../../src/values/tensor-source.ts';
import { MemoryFiles } from '../memory-files.ts';
import { done, inProcess } from './in-process.ts';

const files = new MemoryFiles({ 'text.txt': 'hold fast, and then hold on; '.repeat(100) });

const SHAPE = ['--layers', '1', '--width', '16', '--heads', '2', '--context', '12', '--batch', '2'];
const RUN = ['--data', 'text.txt', '--eval-windows', '2', '--sample-tokens', '0', '--warmup', '0', '--steps', '6'];
const AUTO = ['--optimizer-device', 'auto'];
const train = (...args: string[]) => done(files, ['train', ...RUN, ...args]);

async function stateOf(run: string): Promise<Values[]> {
  const { weights, moment1, moment2 } = await loadCheckpoint(files, run);
  return [await collect(weights), await collect(moment1), await collect(moment2)];
}

async function settingsOf(run: string, step: number) {
  const text = await files.read(`${run}/checkpoint-${step}/holdfast_state.json`);
  return JSON.parse(new TextDecoder().decode(text)).settings;
}

test('a run within a budget says where AdamW runs, and what goes on keeps it, in any budget', async () => {
  const said = await train(...SHAPE, ...AUTO, '--gpu-memory', '200KB', '--out', 'parts', '--until', '2');
  const [line = ''] = /^AdamW on the .*$/m.exec(said) ?? [];
  expect(line).not.toBe('');
  const settings = await settingsOf('parts', 2);
  expect(settings).toMatchObject({ optimizerDevice: 'auto', optimizerSplit: expect.any(Number) });
  for (const [path, bytes] of [...files.contents])
    if (path.startsWith('parts/')) files.contents.set(path.replace('parts/', 'again/'), bytes);
  expect(await train('--resume', '--out', 'parts', '--gpu-memory', '200KB')).toContain(line);
  expect(await train('--resume', '--out', 'again')).toContain(line);
  for (const run of ['parts', 'again']) expect(await settingsOf(run, 6)).toEqual(settings);
  expect(await stateOf('again')).toEqual(await stateOf('parts'));
});

test('without a budget all of it is on the GPU, and the bits are those of a run that asks for nothing', async () => {
  const out = await train(...SHAPE, ...AUTO, '--out', 'auto');
  expect(out).toContain('AdamW on the GPU for all that trains');
  expect(await train(...SHAPE, '--out', 'plain')).not.toContain('AdamW');
  expect(await stateOf('auto')).toEqual(await stateOf('plain'));
});

test('a run that goes on is not moved to one device', async () => {
  const { status, said } = await inProcess(files, [
    ...['train', ...RUN, '--resume', '--out', 'parts', '--optimizer-device', 'gpu'],
  ]);
  expect([status, said]).toEqual([2, expect.stringContaining('was made with auto; leave the flag out')]);
});
