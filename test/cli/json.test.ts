// --json of the commands that write files: everything on standard output is an object a line. And plan of the flags of a run,
// beside that run. In process, on the adapter under test.

import { expect, test } from 'vitest';
import { MemoryFiles } from '../memory-files.ts';
import { inProcess } from './in-process.ts';

const files = new MemoryFiles({ 'text.txt': 'hold fast, and then hold on; '.repeat(40) });

const objects = async (...args: string[]): Promise<Record<string, unknown>[]> =>
  (await inProcess(files, [...args, '--json'])).out
    .trimEnd()
    .split('\n')
    .map((line) => JSON.parse(line));

const SHAPE = ['--model', 'llama', '--layers', '1', '--width', '16', '--heads', '2', '--context', '8', '--batch', '1'];
const RUN = ['--data', 'text.txt', '--steps', '2', '--warmup', '0', '--eval-every', '1', '--eval-windows', '1'];

test('plan plans the model that train trains', async () => {
  const lines = await objects('train', ...SHAPE, ...RUN, '--sample-tokens', '0', '--out', 'run');
  const summary = lines.at(-1)?.['summary'] as { parameters: number };
  const [planned] = await objects('plan', ...SHAPE, '--vocab-size', '256');
  expect(planned?.['parameters']).toBe(summary.parameters);
});

test('train --json has the validations of text, too', async () => {
  const lines = await objects('train', ...SHAPE, ...RUN, '--sample-tokens', '0', '--out', 'validated');
  const validations = lines.flatMap(({ validation }) => (validation ? [validation as Record<string, number>] : []));
  expect(validations.map(({ step }) => step)).toEqual([1, 2]);
  expect(lines.at(-1)).toMatchObject({ summary: { validationLoss: validations.at(-1)?.['loss'] } });
});

test('tokenizer train and export say in one object what they wrote', async () => {
  const [made, ...others] = await objects(
    'tokenizer',
    'train',
    '--data',
    'text.txt',
    '--vocab-size',
    '260',
    '--out',
    'bpe',
  );
  expect([made, others]).toEqual([{ out: 'bpe', bytes: 29 * 40, vocabulary: 260 }, []]);
  const exported = await objects('export', 'run', '--out', 'model');
  expect(exported).toMatchObject([{ out: 'model', dtype: 'f32', files: ['model.safetensors'] }]);
});
