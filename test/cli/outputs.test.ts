// Places that cannot be written to: they are told before the work whose result goes there. No device.

import { mkdtempSync, readdirSync, rmSync, writeFileSync } from 'node:fs';
import os from 'node:os';
import path from 'node:path';
import { afterAll, expect, test } from 'vitest';
import { run } from '../../src/cli/run.ts';
import { headlessHost } from '../../src/runtime/headless.ts';
import { memoryHost } from '../memory-files.ts';

const folder = mkdtempSync(path.join(os.tmpdir(), 'holdfast-outputs-'));
const text = path.join(folder, 'text');
writeFileSync(text, 'a text to learn from, to learn from. '.repeat(40));
afterAll(() => rmSync(folder, { recursive: true }));

/** What is said of errors and of progress, on files of a real disk. */
async function said(...args: string[]): Promise<string> {
  let said = '';
  const warn = (text: string) => {
    said += text;
  };
  const terminal = { interactive: true, columns: 80, write() {}, warn };
  const gpuSources = () => Promise.reject(new Error('a GPU was asked for'));
  expect(await run(memoryHost(headlessHost().files, { args, terminal, gpuSources }))).toBe(2);
  return said;
}

test('of bench --share, before a device is opened', async () => {
  const file = path.join(folder, 'none', 'x.json');
  expect(await said('bench', '--share', file)).toBe(`holdfast: cannot write ${file}: there is no such folder\n`);
});

test('of tokenizer train, before anything is counted', async () => {
  const out = path.join(text, 'out');
  const line = await said('tokenizer', 'train', '--data', text, '--vocab-size', '260', '--out', out);
  expect(line).toMatch(/^holdfast: cannot make a folder beside [^\n]+: something else has that name\n$/);
  expect(readdirSync(folder)).toEqual(['text']);
  // One with anything in it.
  expect(await said('tokenizer', 'train', '--data', text, '--vocab-size', '260', '--out', folder)).toBe(
    `holdfast: ${folder}: is there already; name a folder that is not, or an empty one\n`,
  );
  expect(readdirSync(folder)).toEqual(['text']);
});
