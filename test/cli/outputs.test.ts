// Places that cannot be written to: they are told before the work whose result goes there. And what is
// refused behind them leaves nothing new.

import { mkdtempSync, readdirSync, rmSync, writeFileSync } from 'node:fs';
import os from 'node:os';
import path from 'node:path';
import { afterAll, expect, test } from 'vitest';
import { run } from '../../src/cli/run.ts';
import { headlessHost } from '../../src/runtime/headless.ts';
import { ADAPTER } from '../host.ts';
import { memoryHost } from '../memory-files.ts';
import { recordedTerminal } from '../recorded-terminal.ts';
import { savedRun } from '../saved-run.ts';
import { sharedGPUSources } from '../shared-gpu.ts';

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

test.each([
  [
    'train',
    ['--data', text, '--steps', '1', '--out', path.join(folder, 'new', 'run'), '--layers', '2', '--width', '32'],
    ['--heads', '2', '--context', '16', '--batch', '1', '--eval-windows', '2', '--sample-tokens', '0'],
  ],
  ['generate', [path.join(folder, 'run')], []],
  ['eval', [path.join(folder, 'run'), '--data', text], []],
])('%s that is refused for its memory leaves no folder of --disk behind', async (command, own, more) => {
  const here = headlessHost();
  const { files } = await savedRun();
  for (const [name, bytes] of files.contents) {
    await here.files.makeFolder(path.dirname(path.join(folder, name)));
    await here.files.writeAtomic(path.join(folder, name), bytes);
  }
  const before = readdirSync(folder);
  const refused = async (bytes: string) => {
    const terminal = recordedTerminal();
    const budget = ['--gpu-memory', bytes, '--host-memory', '1', '--disk', path.join(folder, 'dd', 'x')];
    const args = [command, ...own, ...more, ...budget, '--adapter', ADAPTER];
    expect(await run({ ...here, args, terminal, gpuSources: sharedGPUSources })).toBe(2);
    return terminal.said;
  };
  const [, least = ''] = /(\d+) bytes \([^)]+\) is the smallest budget that works/.exec(await refused('1B')) ?? [];
  expect(await refused(least)).toMatch(/^holdfast: host memory limit 1 bytes: /);
  expect(readdirSync(folder)).toEqual(before);
});
