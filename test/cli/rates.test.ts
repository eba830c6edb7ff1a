// Learning rates that do not suit a run: one that makes it diverge, how that ends and what it says of what was saved, and one that it
// never gets to.

import { expect, test } from 'vitest';
import { chooseVariants } from '../choose-variants.ts';
import { MemoryFiles } from '../memory-files.ts';
import { inProcess } from './in-process.ts';

chooseVariants(1);

const SHAPE = [
  ...['train', '--data', 'text', '--out', 'run', '--layers', '1', '--width', '16', '--heads', '2', '--context', '16'],
  ...['--batch', '2', '--eval-windows', '2'],
];
const DIVERGING = ['--lr', '1e30', '--clip', '0', '--warmup', '0'];

const ended = (...args: string[]) =>
  inProcess(new MemoryFiles({ text: 'hold fast, and then hold on; '.repeat(100) }), [...SHAPE, ...args]);

test.each([[['--sample-tokens', '4']], [['--sample-tokens', '0']], [['--until', '4', '--sample-tokens', '0']]])(
  'a run that has diverged at its last step (%j): it is no success, and nothing is to be done with its model',
  async (flags) => {
    const { status, out, said } = await ended(...DIVERGING, '--steps', '6', ...flags);
    expect(status).toBe(2);
    expect(out).toMatch(/^step 3: loss or gradient is not finite, skipped$/m);
    expect(out).toMatch(
      /^diverged after [46] steps on [\s\S]*^checkpoint run\/checkpoint-1, curves run\/report\.html$/m,
    );
    expect(out).not.toMatch(/^(done|write:|go on:)|NaN nats/m);
    expect(said).toBe(
      'holdfast: the run has diverged: its validation loss is not finite, with the weights in run/checkpoint-1; start another with a lower --lr or --clip\n',
    );
  },
);

test.each([
  ['1', 'the checkpoint of before is run/checkpoint-1'],
  ['0', 'nothing was saved'],
])('one that diverges before its end, saved every %s steps: what there is of it is named', async (every, kept) => {
  const { status, said } = await ended(...DIVERGING, '--steps', '60', '--save-every', every, '--eval-every', '0');
  expect(`${status} ${said}`).toBe(
    `2 holdfast: 10 steps in a row gave a loss or gradient that is not finite (up to step 11); lower --lr or --clip; ${kept}\n`,
  );
});

test('a warm-up that is longer than the run is told of, also where its steps are known late', async () => {
  const short = ['--lr', '1e-3', '--warmup', '100', '--sample-tokens', '0'];
  const note = (steps: number) => `--warmup 100: more than the ${steps} steps, so that the rate never gets to --lr`;
  expect((await ended(...short, '--steps', '2')).out).toContain(note(2));
  expect((await ended(...short, '--epochs', '1')).out).toMatch(/--warmup 100: more than the \d+ steps, so that/);
});

test.each([
  ['a tenth of a short run', ['--steps', '20'], 2],
  ['of one whose steps are known late, too', ['--epochs', '1'], 9],
  ['100 steps of a long one', ['--steps', '1700', '--until', '1'], 100],
])('the warm-up where none is said: %s', async (_, flags, warmup) => {
  const { out, said } = await ended('--lr', '1e-3', '--sample-tokens', '0', '--json', ...flags);
  expect(JSON.parse(out.split('\n')[0] ?? '').lr).toBeCloseTo(1e-3 / warmup, 10);
  expect(said).not.toContain('--warmup');
});
