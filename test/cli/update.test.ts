// --update on the command line: a run that updates chunks inside the backward pass, stopped and resumed, in one way and in the
// other; what plan says of it, and what is refused in one line. In process, on the adapter under test.

import { beforeAll, expect, test } from 'vitest';
import { describeUpdate } from '../../src/cli/plan/update.ts';
import { loadCheckpoint } from '../../src/formats/checkpoint.ts';
import { collect, type Values } from '../../src/values/tensor-source.ts';
import { MemoryFiles } from '../memory-files.ts';
import { done, inProcess } from './in-process.ts';

const files = new MemoryFiles({ 'text.txt': 'hold fast, and then hold on; '.repeat(100) });

const SHAPE = ['--layers', '1', '--width', '16', '--heads', '2', '--context', '12', '--batch', '2'];
const RUN = ['--data', 'text.txt', '--eval-windows', '2', '--sample-tokens', '0', '--warmup', '0', '--steps', '4'];
const train = (...args: string[]) => done(files, ['train', ...RUN, ...args]);
const IN_BACKWARD = ['--update', 'in-backward'];

async function stateOf(run: string): Promise<Values[]> {
  const { weights, moment1, moment2 } = await loadCheckpoint(files, run);
  return [await collect(weights), await collect(moment1), await collect(moment2)];
}

async function savedIn(checkpoint: string) {
  const text = new TextDecoder().decode(await files.read(`${checkpoint}/holdfast_state.json`));
  const { settings, history, trainer } = JSON.parse(text);
  const figures = history.steps.map(({ loss, gradNorm }: { loss: number; gradNorm: number }) => [loss, gradNorm]);
  return { update: settings.update, figures, control: trainer.control };
}

beforeAll(() => train(...SHAPE, '--out', 'at-end'));

test('a run in a budget, which goes on without one in the other way, has the bits of the update at the end', async () => {
  await train(...SHAPE, ...IN_BACKWARD, '--out', 'parts', '--until', '2', '--gpu-memory', '250KB');
  expect((await savedIn('parts/checkpoint-2')).update).toBe('in-backward');
  await train('--resume', '--out', 'parts', '--update', 'at-end');
  expect(await stateOf('parts')).toEqual(await stateOf('at-end'));
  const { update: _, ...wanted } = await savedIn('at-end/checkpoint-4');
  expect(await savedIn('parts/checkpoint-4')).toEqual({ ...wanted, update: 'at-end' });
});

test('plan states the gradients that are held, and what clipping costs', async () => {
  const sizes = ['--layers', '3', '--width', '64', '--heads', '2', '--vocab-size', '200', '--context', '32'];
  const said = JSON.parse(await done(files, ['plan', '--json', ...sizes, ...IN_BACKWARD]));
  const { update, bytesPerParameter, modelDataBytes, parameters } = said;
  expect(bytesPerParameter).toEqual({ all: 12, kept: 12 });
  expect(update.backwardPasses).toBe(2);
  expect(update.heldGradients).toBeLessThan(0.5 * update.allGradients);
  expect(modelDataBytes).toBeLessThan(14.5 * parameters);
  // A backward pass is about twice the forward pass: 5 parts instead of 3.
  expect(update.arithmetic).toBeGreaterThan(1.6);
  expect(update.arithmetic).toBeLessThan(1.8);
  expect(describeUpdate(update)).toMatch(/gradients at once.*inside the second of two backward passes.*1\.\d\d x/);
  expect(describeUpdate(update)).toContain('(--clip 0: 1 x)');
  expect(describeUpdate({ ...update, backwardPasses: 1 })).toMatch(/inside the backward pass, and nothing is clipped/);
  const inF16 = [...sizes, ...IN_BACKWARD, '--dtype', 'f16', '--clip', '0'];
  const { update: found } = JSON.parse(await done(files, ['plan', '--json', ...inF16]));
  expect(found).toMatchObject({ backwardPasses: 2, findsOverflows: true });
  expect(found.heldGradients).toBeLessThan(0.5 * found.allGradients);
  expect(found.arithmetic).toBeGreaterThan(1.55);
  expect(found.arithmetic).toBeLessThan(1.8);
  expect(describeUpdate(found)).toMatch(/finds what overflows, and the norm to clip by: 1\.\d\d x[^()]*$/);
});

test.each([
  [['train', '--update', 'now'], 'at-end, in-backward'],
  [['train', ...RUN, ...IN_BACKWARD, '--recovery', 'step', '--out', 'none'], '--recovery step finishes a step'],
  [
    ['train', ...RUN, ...IN_BACKWARD, '--accumulate', '2', '--accumulate-order', 'batch', '--out', 'none'],
    'micro-batches one after the other',
  ],
  [['plan', ...IN_BACKWARD, '--recovery', 'step'], '--recovery step finishes a step'],
  [['plan', ...IN_BACKWARD, '--accumulate', '2', '--accumulate-order', 'batch'], 'micro-batches one after the other'],
  [['plan', ...IN_BACKWARD, '--ranks', '2'], '--update in-backward: several ranks'],
  [['plan', ...IN_BACKWARD, '--compare'], '--update in-backward: policies are compared'],
  [['parity', 'at-end', ...IN_BACKWARD], '--update: a run is replayed as it ran'],
])('%j is refused', async (args, words) => {
  const { status, said } = await inProcess(files, args);
  expect([status, said.trim().split('\n')]).toEqual([2, [expect.stringContaining(words)]]);
});
