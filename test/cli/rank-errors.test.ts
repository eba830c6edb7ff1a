// What a command does on ranks before its work, and after it: the grid of a run that goes on, and what becomes of mistakes: one that
// several ranks have come to is said once; one of a rank's own that is no bad input has the rank's number, and is thrown as it is.

import { describe, expect, it } from 'vitest';
import { onRanks, type RankFlags } from '../../src/cli/rank-flags.ts';
import { asSaved } from '../../src/cli/train.ts';
import type { Ranks } from '../../src/engine/ranks/ranks.ts';
import type { Host } from '../../src/runtime/host.ts';
import { at } from '../../src/util/at.ts';
import { HoldfastError } from '../../src/util/errors.ts';
import { testHost } from '../host.ts';
import { MemoryFiles } from '../memory-files.ts';
import { inProcess, ranksInProcess } from '../ranks/in-process.ts';
import { inProcess as holdfast } from './in-process.ts';

type GridShapeFlags = Pick<RankFlags, 'tensorParallel' | 'pipelineParallel'>;

/** What both ranks of a job threw and said, where the work of rank 1 throws. */
async function thrownBy(error: Error): Promise<{ thrown: unknown; said: string }> {
  let said = '';
  const [, found] = inProcess(2).map((messages) => {
    const warn = (text: string) => {
      said += text;
    };
    const terminal = { ...testHost.terminal, warn };
    const host: Host = { ...testHost, terminal, joinRanks: async () => messages };
    const work = async () => {
      if (messages.rank === 1) throw error;
    };
    const job = onRanks(host, { data: [], update: 'at-end' }, () => false, work);
    job.catch(() => {});
    return job;
  });
  return { thrown: await found?.catch((thrown: unknown) => thrown), said };
}

it('is told with the number of the rank', async () => {
  const error = new RangeError('Array buffer allocation failed');
  const { thrown, said } = await thrownBy(error);
  expect(thrown).toBe(error);
  expect(said.split('\n')).toContain('holdfast: rank 1 of 2: Array buffer allocation failed');
});

it('bad input has it in its one line', async () => {
  const { thrown, said } = await thrownBy(new HoldfastError('no such text'));
  expect(thrown).toEqual(new HoldfastError('rank 1 of 2: no such text'));
  expect(said).not.toContain('no such text');
});

it('what all come to is said by the first of them alone', async () => {
  const jobs = inProcess(3).map((messages) => {
    const host: Host = { ...testHost, joinRanks: async () => messages };
    const work = async () => {
      throw new HoldfastError('no such text');
    };
    return onRanks(host, { data: [], update: 'at-end' }, () => false, work).catch((error: unknown) => error);
  });
  const [first, ...others] = await Promise.all(jobs);
  expect(first).toEqual(new HoldfastError('rank 0 of 3: no such text'));
  for (const other of others) expect(other).toMatchObject({ exitCode: 2, message: '' });
});

describe('flags that are none', () => {
  const said = (all: readonly (readonly string[])[]) => {
    const messages = inProcess(all.length);
    return Promise.all(
      all.map((args, rank) => {
        const joinRanks = async () => at(messages, rank);
        return holdfast(new MemoryFiles(), args, [], { joinRanks });
      }),
    );
  };

  it('are told of by rank 0 alone', async () => {
    const found = await said([0, 1, 2].map(() => ['plan', '--layers', '0']));
    const line = /^holdfast: rank 0 of 3: option '--layers <n>' argument '0' is invalid.*; see holdfast plan --help\n$/;
    expect(found).toMatchObject([{ said: expect.stringMatching(line) }, { said: '' }, { said: '' }]);
    for (const { status, out } of found) expect([status, out]).toEqual([2, '']);
  });

  it('and a help is shown by it alone, too', async () => {
    const found = await said([0, 1].map(() => ['train', '--help']));
    expect(found.map(({ status, out }) => [status, out.match(/^Usage:/gm)?.length])).toEqual([
      [0, 1],
      [0, undefined],
    ]);
  });

  // Which would wait for it as they begin, for ever.
  it('of one rank do not keep it from joining the others', async () => {
    const [, second] = inProcess(2);
    let joins = 0;
    const joinRanks = async () => {
      joins++;
      return second;
    };
    const { status, said } = await holdfast(new MemoryFiles(), ['train', '--lairs', '2'], [], { joinRanks });
    expect([status, joins]).toEqual([2, 1]);
    expect(said).toMatch(/^holdfast: rank 1 of 2: unknown option '--lairs'.*\n$/);
  });
});

it.each<[GridShapeFlags, GridShapeFlags, number[]]>([
  [{}, { tensorParallel: 2 }, [2, 2, 1]],
  [{ pipelineParallel: 2 }, { tensorParallel: 2 }, [1, 2, 2]],
  [{ tensorParallel: 4 }, { tensorParallel: 2, pipelineParallel: 1 }, [1, 4, 1]],
  // There is no such grid on these ranks.
  [{}, { tensorParallel: 3 }, [4, 1, 1]],
])('a run goes on with %j, saved with %j, in a grid of %j', (flags, saved, sizes) => {
  const [ranks] = ranksInProcess(4, 0, {
    tensor: flags.tensorParallel,
    pipeline: flags.pipelineParallel,
  });
  if (!ranks) throw new Error('there are four');
  const { data, tensor, pipeline } = asSaved(ranks, flags, saved).grid;
  expect([data.size, tensor.size, pipeline.size]).toEqual(sizes);
});

describe('--resume --sequence-parallel', () => {
  const flags: RankFlags = { sequenceParallel: true };
  const refused = '--sequence-parallel: is for ranks that share each layer; give --tensor-parallel 2 or more';

  /** The checkpoint has the grid of `saved`. */
  const resumed = (flags: RankFlags, saved: GridShapeFlags) =>
    Promise.all(
      inProcess(2).map((messages) => {
        const host: Host = { ...testHost, joinRanks: async () => messages };
        const found: Ranks[] = [];
        const work = async (_: Host, ranks: Ranks | undefined) => {
          if (ranks) found.push(asSaved(ranks, flags, saved));
        };
        const all = { data: [], optimizerDevice: 'gpu', update: 'at-end', resume: true, ...flags } as const;
        return onRanks(host, all, () => false, work).then(() => found);
      }),
    );

  it('goes with the layers that the saved ranks share', async () => {
    for (const [ranks] of await resumed(flags, { tensorParallel: 2 }))
      expect([ranks?.grid.tensor.size, ranks?.sequenceParallel]).toEqual([2, true]);
  });

  it('is refused where they share none', async () => {
    await expect(resumed(flags, {})).rejects.toThrow(refused);
    await expect(resumed(flags, { tensorParallel: 3 })).rejects.toThrow(refused);
    await expect(resumed({ ...flags, tensorParallel: 1 }, { tensorParallel: 2 })).rejects.toThrow(refused);
  });
});

it.each([
  ['generate', 'DIR'],
  ['export', 'DIR', '--out', 'to'],
  ['tokenizer', 'train', '--out', 'to'],
  ['plan'],
  ['devices'],
])('rank 0 alone says that %s has one process, and none does it', async (...args) => {
  const files = new MemoryFiles();
  const all = await Promise.all(
    inProcess(3).map((messages) => holdfast(files, args, [], { joinRanks: async () => messages })),
  );
  const line = `holdfast: ${args[0]} is done by one process, and 3 were started; start it without mpiexec (train and finetune run on ranks)\n`;
  expect(all.map(({ said }) => said)).toEqual([line, '', '']);
  for (const { status, out } of all) expect([status, out]).toEqual([2, '']);
});
