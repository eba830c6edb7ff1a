// What a command line that is nearly right is told: what would be right, in one line.

import { expect, test } from 'vitest';
import { MemoryFiles } from '../memory-files.ts';
import { inProcess } from './in-process.ts';

const files = () => new MemoryFiles({ 'notes.txt': 'hold fast. '.repeat(90) });

const NO_COMMAND = "unknown option '--data'; a command comes first, then its flags; see holdfast --help";
const NO_FLAG = (command: string, most: number) =>
  `too many arguments for '${command}'. Expected ${most} argument${most === 1 ? '' : 's'} but got ${most + 1}; files of data are named behind --data; see holdfast ${command} --help`;

test.each([
  [['--data', 'notes.txt', 'train'], NO_COMMAND],
  [['train', 'notes.txt'], NO_FLAG('train', 0)],
  [['plan', 'notes.txt'], NO_FLAG('plan', 0)],
  [['eval', 'model', 'notes.txt', '--data', 'notes.txt'], NO_FLAG('eval', 1)],
  [
    ['devices', 'llvmpipe'],
    "too many arguments for 'devices'. Expected 0 arguments but got 1; see holdfast devices --help",
  ],
  [['train', '--layers', '0'], 'It must be a whole number, 1 or more; see holdfast train --help'],
  [
    ['train', '--model', 'gpt3'],
    '--model gpt3: no family has this name, and no file or folder; families are gpt2, llama,',
  ],
  [
    ['plan', '--model', 'my-model'],
    '--model my-model: no family has this name, and no file or folder; families are gpt2,',
  ],
])('%j', async (args, told) => {
  const { status, said } = await inProcess(files(), args);
  expect(said).toContain(told);
  expect(said).toMatch(/^holdfast: [^\n]+\n$/);
  expect(status).toBe(2);
});

test('help is what --help prints, with status 0', async () => {
  for (const command of ['train', 'plan', 'tokenizer']) {
    const asked = await inProcess(files(), ['help', command]);
    expect(asked.out).toBe((await inProcess(files(), [command, '--help'])).out);
    expect([asked.status, asked.said]).toEqual([0, '']);
  }
  expect((await inProcess(files(), ['help'])).out).toBe((await inProcess(files(), ['--help'])).out);
});
