// A checkpoint that cannot be written, as on a full disk: the run ends with what is wrong, what is saved, and what to do; and goes on from there.

import { expect, test } from 'vitest';
import { HoldfastError } from '../../src/util/errors.ts';
import { chooseVariants } from '../choose-variants.ts';
import { MemoryFiles } from '../memory-files.ts';
import { done, inProcess } from './in-process.ts';

chooseVariants(1);

const RUN = [
  ...['train', '--data', 'text', '--out', 'run', '--layers', '1', '--width', '16', '--heads', '2', '--context', '16'],
  ...['--batch', '1', '--eval-windows', '2', '--sample-tokens', '0', '--steps', '4', '--save-every', '2'],
];

/** Has room for checkpoints until the one of a step. */
class SmallDisk extends MemoryFiles {
  fullFrom = Number.POSITIVE_INFINITY;

  override async writeStream(path: string) {
    const step = Number(/checkpoint-(\d+)/.exec(path)?.[1] ?? 0);
    if (step >= this.fullFrom) throw new HoldfastError(`cannot write ${path}: the disk is full`);
    return super.writeStream(path);
  }
}

test('the error of a full disk says what is saved, and the run goes on from there', async () => {
  const files = new SmallDisk({ text: 'hold fast, and then hold on; '.repeat(100) });
  for (const [fullFrom, rest] of [
    [2, 'step 2 was not saved: nothing of the run is saved yet'],
    [4, 'step 4 was not saved: resume from run/checkpoint-2 once that is mended'],
  ] as const) {
    files.fullFrom = fullFrom;
    const { status, said } = await inProcess(files, RUN);
    expect([status, said.endsWith(`: the disk is full; ${rest}\n`)], said).toEqual([2, true]);
  }
  files.fullFrom = Number.POSITIVE_INFINITY;
  expect(await done(files, ['train', '--resume', '--out', 'run'])).toContain('done after 4 steps');
});
