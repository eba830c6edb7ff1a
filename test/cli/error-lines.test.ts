// What a command says of a file that is no good: one line, and nothing in it that steers a terminal. No device.

import { expect, test } from 'vitest';
import { MemoryFiles } from '../memory-files.ts';
import { recordedTerminal } from '../recorded-terminal.ts';
import { CHECKPOINT, RUN, STEPS, savedRun } from '../saved-run.ts';
import { inProcess } from './in-process.ts';

const STEERING = '\u001b]0;x\u0007\u0085\u009b31m\u2028';

/** The files of a run whose state is changed. */
async function runWith(change: (state: Record<string, unknown>) => void): Promise<MemoryFiles> {
  const { files } = await savedRun();
  const path = `${CHECKPOINT}/holdfast_state.json`;
  const state = JSON.parse(new TextDecoder().decode(await files.read(path)));
  change(state);
  await files.writeAtomic(path, JSON.stringify(state));
  await files.remove(`${CHECKPOINT}/SHA256SUMS`);
  return files;
}

test.each([
  [
    'a field’s name',
    (state: Record<string, unknown>) => Object.assign(state, { choices: { [STEERING]: 5 } }),
    'is 5; it must be',
  ],
  ['a value', (state: Record<string, unknown>) => Object.assign(state, { batches: STEERING }), 'it must be'],
])('in %s of a state', async (_, change, said) => {
  const line = await inProcess(await runWith(change), ['train', '--resume', '--out', RUN]);
  expect(line.status).toBe(2);
  expect(line.said).toContain(said);
  expect(line.said).toMatch(/^holdfast: [^\p{Cc}\p{Zl}\p{Zp}]+\n$/u);
});

test.each([
  [false, 2, 'holdfast: stopped while the text was read, before the first step; start again\n'],
  [true, 1, ''],
])('of a stop, but where standard output was lost (%s), which was said', async (isLost, left, said) => {
  const terminal = { ...recordedTerminal(), isLost };
  const warned: string[] = [];
  const here = { terminal: { ...terminal, warn: (text: string) => void warned.push(text) } };
  const files = new MemoryFiles({ 'text.txt': 'hold fast. '.repeat(90) });
  const args = ['train', '--data', 'text.txt', '--layers', '1', '--width', '8', '--heads', '2', '--context', '8'];
  const { status } = await inProcess(files, args, [], { ...here, onInterrupt: (stop) => stop() });
  expect([status, warned.filter((line) => line.startsWith('holdfast: ')).join('')]).toEqual([left, said]);
});

test('in the name of a file', async () => {
  const files = new MemoryFiles({ [`${STEERING}/config.json`]: '{' });
  const line = await inProcess(files, ['eval', STEERING, '--data', 'text.txt']);
  expect(line.status).toBe(2);
  expect(line.said).toMatch(/^holdfast: [^\p{Cc}\p{Zl}\p{Zp}]+\n$/u);
});

test.each([['train'], ['finetune', 'm'], ['export', 'm'], ['tokenizer', 'train', '--data', 'a.txt']])(
  'a place to write without a name: %s',
  async (...args) => {
    const line = await inProcess(new MemoryFiles(), [...args, '--out', '']);
    expect(line.status).toBe(2);
    expect(line.said).toMatch(/'--out <\w+>' argument '' is invalid\. It must name a place; this one is empty/);
  },
);

test.each([[['--steps', '5']], [['--steps', '1', '--json']]])(
  'fewer steps than a run has: %j, before a device is opened',
  async (flags) => {
    const { files } = await savedRun();
    const before = new Map(files.contents);
    const gpuSources = () => Promise.reject(new Error('a GPU was asked for'));
    const line = await inProcess(files, ['train', '--resume', '--out', RUN, ...flags], [], { gpuSources });
    expect(line).toEqual({
      ...{ status: 2, out: '' },
      said: `holdfast: run: has 12 steps already, and ${flags[1]} in all are asked for; give more than 12\n`,
    });
    expect(files.contents).toEqual(before);
  },
);

test('a checkpoint that is not whole, of a run without another', async () => {
  const { files } = await savedRun();
  await files.remove(`${CHECKPOINT}/optimizer.safetensors`);
  expect(await inProcess(files, ['train', '--resume', '--out', RUN])).toEqual({
    ...{ status: 2, out: '' },
    said: `holdfast: ${CHECKPOINT} is incomplete: it has no optimizer.safetensors; put that back, or start without --resume in another folder\n`,
  });
});

test('a new run is not begun beside a checkpoint that is not whole', async () => {
  const { files } = await savedRun();
  await files.remove(`${CHECKPOINT}/optimizer.safetensors`);
  const line = await inProcess(files, ['train', '--data', 'text.txt', '--out', RUN]);
  expect(line).toEqual({
    ...{ status: 2, out: '' },
    said: `holdfast: ${CHECKPOINT} is incomplete: it has no optimizer.safetensors; put that back and add --resume, or choose another --out\n`,
  });
});

test('a run whose latest checkpoint is not whole is the one that goes on, and no other is taken in silence', async () => {
  const { files } = await savedRun();
  for (const [name, bytes] of [...files.contents])
    for (const run of ['runs/run-1', 'runs/run-2']) await files.writeAtomic(name.replace(RUN, run), bytes);
  await files.remove(`runs/run-2/checkpoint-${STEPS}/model.safetensors`);
  const line = await inProcess(files, ['train', '--resume']);
  expect(line.said).toMatch(
    /^holdfast: runs\/run-2\/checkpoint-12 is incomplete: it has no model\.safetensors; put that/,
  );
});

test('a tokenizer.json that is no JSON is named', async () => {
  const { files } = await savedRun();
  await files.writeAtomic(`${CHECKPOINT}/tokenizer.json`, '{');
  const line = await inProcess(files, ['generate', CHECKPOINT]);
  expect([line.status, line.out]).toEqual([2, '']);
  expect(line.said).toMatch(/^holdfast: run\/checkpoint-12\/tokenizer\.json: not JSON \(.*\); get the file again\n$/);
});

test.each([
  ['holdfast', ['foo']],
  ['holdfast train', ['train', '--foo']],
  ['holdfast tokenizer train', ['tokenizer', 'train', '--foo']],
])('the help that has the flags is named: %s', async (name, args) => {
  const line = await inProcess(new MemoryFiles(), args);
  expect([line.status, line.said.endsWith(`; see ${name} --help\n`)]).toEqual([2, true]);
});

test.each([
  [
    ['train', '--resume', 'run'],
    '"run" belongs to no flag; the command is: holdfast train [options], with files of data behind --data',
  ],
  [['generate', 'run', 'of', 'more'], '"of" belongs to no flag; the command is: holdfast generate [options] <dir>'],
  [['generate', '--model', 'run'], "unknown option '--model'; the command is: holdfast generate [options] <dir>"],
  [['generate'], "missing required argument 'dir'; the command is: holdfast generate [options] <dir>"],
  [['plan', '--step', '3'], "unknown option '--step' (Did you mean --steps?)"],
])('an argument that a command does not take is named, with what it takes: %j', async (args, problem) => {
  const { status, said } = await inProcess(new MemoryFiles(), args);
  expect([status, said]).toEqual([2, `holdfast: ${problem}; see holdfast ${args[0]} --help\n`]);
});
