// Files that flags write beside a run or a plan: another one of their own is replaced, and nothing else that lies there is lost.

import { expect, test } from 'vitest';
import { chooseVariants } from '../choose-variants.ts';
import { MemoryFiles } from '../memory-files.ts';
import { done, inProcess } from './in-process.ts';

chooseVariants(2);

const TRAIN = [
  ...['train', '--data', 'text', '--layers', '2', '--width', '32', '--heads', '2', '--context', '16', '--batch', '1'],
  ...['--eval-windows', '2', '--sample-tokens', '0', '--gpu-memory', '400KB', '--steps', '3', '--timeline', 'FILE'],
];
const PLAN = [
  ...['plan', '--layers', '1', '--width', '64', '--heads', '4', '--context', '32', '--vocab-size', '500'],
  ...['--activations', 'keep', '--hardware', 'raspberry-pi-5', '--sweep', 'FILE'],
];
const SHARE = ['bench', '--share', 'FILE'];

const on = (args: readonly string[], file: string) => args.map((arg) => (arg === 'FILE' ? file : arg));

test.each([
  ['--timeline', TRAIN],
  ['--sweep', PLAN],
  ['--share', SHARE],
])('%s leaves a file of others as it is', async (_, args) => {
  const mine = '<svg xmlns="http://www.w3.org/2000/svg">a drawing of days</svg>';
  const files = new MemoryFiles({ text: 'hold fast, and then hold on; '.repeat(100), mine });
  const { status, said } = await inProcess(files, on(args, 'mine'));
  const says = 'holdfast: mine: is there already; name a file that is not, or move that one away\n';
  expect([status, said]).toEqual([2, says]);
  expect(await files.read('mine')).toEqual(new TextEncoder().encode(mine));
});

test.each([
  ['--timeline', TRAIN, ['run-a', 'run-b'].map((out) => ['--out', out])],
  ['--sweep', PLAN, [[], ['--batch', '2']]],
])('%s replaces what it wrote before, and an empty file', async (_, args, changes) => {
  const files = new MemoryFiles({ text: 'hold fast, and then hold on; '.repeat(100), own: '' });
  const written: string[] = [];
  for (const change of changes) {
    await done(files, [...on(args, 'own'), ...change]);
    written.push(new TextDecoder().decode(await files.read('own')));
  }
  expect(new Set(written).size).toBe(2);
  expect(written).not.toContain('');
});
