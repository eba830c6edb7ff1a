// Runs that end before a step was recorded, or before any was taken: what they say of it.

import { beforeAll, expect, test } from 'vitest';
import { chooseVariants } from '../choose-variants.ts';
import { MemoryFiles } from '../memory-files.ts';
import { recordedTerminal } from '../recorded-terminal.ts';
import { inProcess } from './in-process.ts';

chooseVariants(2);

const RUN = [
  ...['train', '--data', 'text', '--out', 'run', '--layers', '2', '--width', '32', '--heads', '2', '--context', '16'],
  ...['--batch', '1', '--eval-windows', '2', '--sample-tokens', '0', '--gpu-memory', '400KB', '--steps', '2'],
];

async function ended(...args: string[]) {
  const files = new MemoryFiles({ text: 'hold fast, and then hold on; '.repeat(100) });
  return { files, ...(await inProcess(files, [...RUN, '--timeline', 'trace.json', ...args])) };
}

let toPeople: Awaited<ReturnType<typeof ended>>;
let asJSON: typeof toPeople;
beforeAll(async () => {
  toPeople = await ended();
  asJSON = await ended('--json');
});

test('the summary tells what the whole run moved, and nothing of a step or of copies for recovery', () => {
  const { status, out } = toPeople;
  expect(status).toBe(0);
  expect(out).toMatch(/^the run moved [1-9]\S* [KM]B up, [1-9]\S* [KM]B down; the plan moves/m);
  expect(out).not.toMatch(/a step moved| 0 B/);
  const lines = asJSON.out.trim().split('\n');
  const { memory } = JSON.parse(lines.at(-1) ?? '').summary;
  expect(memory).not.toHaveProperty('bytesPerStep');
  expect(memory.total.h2d).toBeGreaterThan(0);
});

test('a timeline that has no step to show is not written, and says so', async () => {
  expect(toPeople).toMatchObject({ status: 0, said: '' });
  expect(toPeople.out).toMatch(/^--timeline trace\.json: not written: no step was recorded \(/m);
  expect(toPeople.files.contents.has('trace.json')).toBe(false);
  expect(asJSON.said).toMatch(/^--timeline trace\.json: not written/m);
  const whole = await ended('--steps', '3');
  expect(whole.out).not.toContain('not written');
  expect(whole.files.contents.has('trace.json')).toBe(true);
});

test('of a run that is past where it is to stop, that is said', async () => {
  const files = new MemoryFiles({ text: 'hold fast, and then hold on; '.repeat(100) });
  const told = async (...args: string[]) => (await inProcess(files, args)).out;
  await told(...RUN, '--steps', '4', '--until', '2');
  const past = '--until 1: step 2 is done, and none is taken; ';
  expect(await told('train', '--resume', '--out', 'run', '--until', '1')).toContain(past);
  expect(await told('train', '--resume', '--out', 'run', '--until', '3')).not.toContain('none is taken');
});

test('a run that early stopping has ended, or its last step, says that it takes none, and what would make it', async () => {
  const files = new MemoryFiles({ text: 'hold fast, and then hold on; '.repeat(100) });
  const told = (...args: string[]) => inProcess(files, args);
  // None is better than the one before by as much.
  const stopping = ['--eval-every', '1', '--early-stopping-patience', '1', '--early-stopping-threshold', '5'];
  await told(...RUN, '--steps', '4', ...stopping);
  const resumed = (...args: string[]) => told('train', '--resume', '--out', 'run', ...args);
  const why =
    'early stopping ended the run after step 2, and none is taken; to go on give --early-stopping-patience more';
  const { out } = await resumed();
  expect(out).toContain(`${why} than 1\n`);
  expect(out).not.toContain('training from');
  const json = await resumed('--json');
  expect(json.said).toContain(why);
  expect(json.out.trim().split('\n')).toHaveLength(1);
  const more = await resumed('--early-stopping-patience', '9');
  expect(more.out).toContain('training from step 2 to step 4');
  const done = 'all 4 steps are done; to go on give more, with --steps or --epochs\n';
  expect((await resumed()).out).toContain(done);
  expect((await resumed('--json')).said).toContain(done);
});

test('a run that is ended between two validations says behind which step the last one was', async () => {
  const files = new MemoryFiles({ text: 'hold fast, and then hold on; '.repeat(100) });
  await inProcess(files, [...RUN, '--steps', '6', '--eval-every', '2', '--until', '3']);
  const terminal = recordedTerminal();
  let interrupt = () => {};
  const onInterrupt = (callback: () => void) => {
    interrupt = callback;
  };
  const write = (text: string) => {
    terminal.write(text);
    if (text.startsWith('training from step 3')) interrupt();
  };
  const interrupted = { onInterrupt, terminal: { ...terminal, write } };
  await inProcess(files, ['train', '--resume', '--out', 'run'], [], interrupted);
  expect(terminal.out).toMatch(/^loss \S+, validation \S+ \(after step 2\) nats per token$/m);
  const report = new TextDecoder().decode(await files.read('run/report.html'));
  expect(report).toContain('<dt>validated after step</dt><dd>2</dd>');
});
