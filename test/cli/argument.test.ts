// Names in the commands that are there to be copied: a shell reads each of them as one argument, the very name.

import { spawnSync } from 'node:child_process';
import { expect, test } from 'vitest';
import { argument } from '../../src/cli/options.ts';
import { MemoryFiles } from '../memory-files.ts';
import { done } from './in-process.ts';

const NAMES = ['runs/run-1', 'my run', "it's", '$HOME', '~', '`a`', '"', '*', 'a;b', '\\', 'é', '', '&'];

test.skipIf(process.platform === 'win32').each(NAMES)('a shell reads %j as it is', (name) => {
  const { stdout } = spawnSync('sh', ['-c', `printf '<%s>' ${argument(name)}`], { encoding: 'utf8' });
  expect(stdout).toBe(`<${name}>`);
});

test('a name that begins as a flag does is a path', () => {
  expect(argument('-my-run')).toBe('./-my-run');
  expect(argument('--my run')).toBe("'./--my run'");
});

test('a name that needs no quotes has none', () => expect(argument('runs/run-1')).toBe('runs/run-1'));

test('the hint of a new tokenizer is a command that works', async () => {
  const files = new MemoryFiles({ 'a.txt': 'to be or not to be '.repeat(20) });
  const out = await done(files, ['tokenizer', 'train', '--data', 'a.txt', '--vocab-size', '260', '--out', 'my tokens']);
  expect(out).toMatch(/^use: {5}holdfast train --tokenizer 'my tokens'$/m);
});
