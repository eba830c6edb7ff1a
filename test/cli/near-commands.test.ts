// What a command line that is nearly right is told: what would be right, in one line.

import { expect, test } from 'vitest';
import { MemoryFiles } from '../memory-files.ts';
import { inProcess } from './in-process.ts';

const files = () => new MemoryFiles({ 'notes.txt': 'hold fast. '.repeat(90) });

const NO_COMMAND = "unknown option '--data'; a command comes first, then its flags; see holdfast --help";
const NO_FLAG = (command: string, takes: string) =>
  `"notes.txt" belongs to no flag; the command is: holdfast ${command} ${takes}, with files of data behind --data; see holdfast ${command} --help`;

test.each([
  [['--data', 'notes.txt', 'train'], NO_COMMAND],
  [['train', 'notes.txt'], NO_FLAG('train', '[options]')],
  [['plan', 'notes.txt'], NO_FLAG('plan', '[options]')],
  [['eval', 'model', 'notes.txt', '--data', 'notes.txt'], NO_FLAG('eval', '[options] <dir>')],
  [
    ['devices', 'llvmpipe'],
    '"llvmpipe" belongs to no flag; the command is: holdfast devices [options]; see holdfast devices --help',
  ],
  [['help', 'merge'], "unknown command 'merge'; see holdfast --help"],
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
