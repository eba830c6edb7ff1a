// The built command line on several ranks over the machine's own MPI. Where there is no mpiexec (Debian: apt-get install
// mpich) nothing of this runs, and it says so.

import { cp, mkdtemp, readdir, readFile, rm } from 'node:fs/promises';
import os from 'node:os';
import path from 'node:path';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { holdfast, records, TINY } from '../e2e/cli.ts';
import { field } from '../entry.ts';
import { ADAPTER, EVERY_CASE, THOROUGH } from '../host.ts';
import { hasMpi, onRanks, startRanks, tensorSums } from './mpi.ts';

/** Of TINY: what plan has flags for, too. */
const SHAPE = TINY.slice(0, TINY.indexOf('--eval-windows'));
const RUN = ['train', ...TINY, '--data', 'README.md', '--sample-tokens', '0', '--json', '--adapter', ADAPTER];

describe.runIf(hasMpi && THOROUGH)('mpiexec', () => {
  let folder: string;
  beforeAll(async () => {
    folder = await mkdtemp(path.join(os.tmpdir(), 'holdfast-ranks-'));
  });
  afterAll(() => rm(folder, { recursive: true, force: true }));
  const out = (name: string) => path.join(folder, name);

  it('trains on 2 ranks, and one process goes on with the run', async () => {
    const { status, stdout, stderr } = await onRanks(2, [
      ...RUN,
      ...['--steps', '4', '--until', '2', '--out', out('two'), '--timeline', path.join(out('two'), 'steps.json')],
    ]);
    expect(stderr.replace(/^no GPU here.*\n?/m, '').trim()).toMatch(/^ranks 0 to 1: processes \d+, \d+ on \S+$/);
    expect(status).toBe(0);
    const lines = records(stdout);
    // Of rank 0 alone.
    expect(lines.flatMap(({ step }) => step ?? [])).toEqual([0, 1]);
    const { ranks } = field(lines.at(-1) ?? {}, 'summary') as { ranks: Record<string, unknown> };
    expect(ranks).toMatchObject({ size: 2, zero: 2 });
    const { sentBytes, receivedBytes, planned } = ranks as Record<'sentBytes' | 'receivedBytes', number> & {
      planned: { sent: number; received: number };
    };
    expect([sentBytes, receivedBytes]).toEqual([2 * planned.sent, 2 * planned.received]);
    const { stdout: plan } = await holdfast(['plan', ...SHAPE, '--vocab-size', '256', '--ranks', '2', '--json']);
    const [{ network } = { network: undefined }] = field(records(plan).at(-1) ?? {}, 'ranks') as { network: unknown }[];
    expect(network).toEqual(planned);
    expect(await readdir(out('two'))).toEqual(['checkpoint-2', 'report.html', 'steps.json']);
    const { each } = ranks as { each: { planned: unknown; sentBytes: number }[] };
    expect(each.map((share) => share.sentBytes)).toEqual([sentBytes, receivedBytes]);
    expect(await readFile(path.join(out('two'), 'report.html'), 'utf8')).toContain('<h2>Ranks</h2>');
    expect(await readFile(path.join(out('two'), 'steps.json'), 'utf8')).toContain('Holdfast, rank 1');

    await cp(out('two'), out('two again'), { recursive: true });
    // On the adapter that it began on: another one, where there is one, chooses its kernels anew, each process for itself.
    const again = ['train', '--resume', '--json', '--adapter', ADAPTER];
    const resumed = await holdfast([...again, '--out', out('two')]);
    expect(resumed.status, resumed.stderr).toBe(0);
    // One rank is a run without MPI.
    const lone = await onRanks(1, [...again, '--out', out('two again')]);
    expect(lone.status, lone.stderr).toBe(0);
    const plain = (text: string) => records(text).map(({ loss, gradNorm }) => [loss, gradNorm]);
    expect(plain(lone.stdout)).toEqual(plain(resumed.stdout));
    expect(await tensorSums(out('two again'))).toEqual(await tensorSums(out('two')));
    const whole = await holdfast([...RUN, '--batch', '4', '--steps', '4', '--out', out('one')]);
    const losses = (text: string) => records(text).flatMap(({ loss }) => (typeof loss === 'number' ? [loss] : []));
    const expected = losses(whole.stdout);
    expect(expected).toHaveLength(4);
    // Sums in another order: a few units in the last place of losses near 5.5.
    [...losses(stdout), ...losses(resumed.stdout)].forEach((loss, i) => {
      expect(Math.abs(loss - (expected[i] ?? 0))).toBeLessThan(1e-5);
    });
  });

  it('has one process for what is not training, and says so once', async () => {
    const { status, stdout, stderr } = await onRanks(2, ['plan', '--layers', '1', '--width', '32', '--heads', '2']);
    // mpiexec may say more, of the rank that ended first.
    expect(stderr.match(/^holdfast: .*/gm)).toEqual([
      'holdfast: plan is done by one process, and 2 were started; start it without mpiexec (train and finetune run on ranks)',
    ]);
    expect([status, stdout]).toEqual([2, '']);
  });

  // UCX took the last page of a heap that could not grow, and with it what lay there.
  it.runIf(process.platform === 'linux')('leaves the heap of each process as it is', async () => {
    const program = path.join(import.meta.dirname, 'full-heap.mjs');
    // The allocator itself gives nothing back meanwhile.
    const env = { MALLOC_TRIM_THRESHOLD_: String(1e9) };
    const { status, stdout, stderr } = await startRanks([[], []], undefined, env, program).finished;
    expect(status, stderr).toBe(0);
    expect(records(stdout)).toEqual([{ moved: 0 }, { moved: 0 }]);
  });

  const SHARED: [string, string, Record<string, number>, string[]][] = [
    ['shares layers between 2 ranks', '--tensor-parallel', { size: 2, tensorParallel: 2 }, []],
    [
      'shares layers between 3 ranks, which do not divide the vocabulary',
      '--tensor-parallel',
      { size: 3, tensorParallel: 3 },
      ['--width', '24', '--heads', '3'],
    ],
    ['has blocks in 2 stages', '--pipeline-parallel', { size: 2, pipelineParallel: 2 }, []],
  ];
  it.runIf(EVERY_CASE).each(SHARED)('%s, and goes on on one and on as many', async (words, flag, grid, shape) => {
    const size = grid['size'] ?? 1;
    const [name, again] = [out(words), out(`${words} again`)];
    const more = ['--layers', '2', '--accumulate', '2', '--steps', '4', ...shape];
    const args = [...RUN, ...more, flag, String(size), '--until', '2', '--out', name];
    const { status, stderr } = await onRanks(size, args);
    expect(status, stderr).toBe(0);
    await cp(name, again, { recursive: true });
    const resume = (name: string) => ['train', '--resume', '--out', name, '--json'];
    const [one, two] = [await holdfast(resume(name)), await onRanks(size, resume(again))];
    const whole = await holdfast([...RUN, ...more, '--out', out(`${words} alone`)]);
    const losses = (text: string) => records(text).flatMap(({ loss }) => (typeof loss === 'number' ? [loss] : []));
    for (const { status, stdout, stderr } of [one, two]) {
      expect(status, stderr).toBe(0);
      const expected = losses(whole.stdout).slice(2);
      expect(losses(stdout)).toHaveLength(2);
      // Sums in another order: a few units in the last place of losses near 5.5.
      losses(stdout).forEach((loss, i) => void expect(Math.abs(loss - (expected[i] ?? 0))).toBeLessThan(1e-5));
    }
    const { ranks } = field(records(two.stdout).at(-1) ?? {}, 'summary') as { ranks: Record<string, number> };
    expect(ranks).toMatchObject(grid);
  });

  it.runIf(EVERY_CASE)('saves in 3 stages, within a budget, the very tensors of one process', async () => {
    const run = [...RUN, '--layers', '3', '--steps', '2'];
    const tight = ['--gpu-memory', '400KB', '--disk', out('stage tiers')];
    const { status, stdout, stderr } = await onRanks(3, [
      ...[...run, ...tight, '--pipeline-parallel', '3', '--out', out('3 stages')],
    ]);
    expect(status, stderr).toBe(0);
    const { ranks } = field(records(stdout).at(-1) ?? {}, 'summary') as {
      ranks: { each: { sentBytes: number; receivedBytes: number; planned: { sent: number; received: number } }[] };
    };
    // The validation at the end beside them.
    for (const { sentBytes, planned } of ranks.each) expect(sentBytes).toBeGreaterThanOrEqual(2 * planned.sent);
    expect((await holdfast([...run, '--out', out('no stages')])).status).toBe(0);
    expect(await tensorSums(out('3 stages'))).toEqual(await tensorSums(out('no stages')));
  });

  it('refuses a grid that there is not, and what a grid of one copy cannot shard', async () => {
    const refusal = async (args: readonly string[]) => {
      const { status, stderr } = await onRanks(2, [...RUN, '--out', out('none'), ...args]);
      expect(status).toBe(2);
      return stderr;
    };
    expect(await refusal(['--tensor-parallel', '2', '--zero', '3'])).toContain(
      '--zero 3: with --tensor-parallel 2 on 2',
    );
    if (!EVERY_CASE) return;
    expect(await refusal(['--tensor-parallel', '3'])).toContain('--tensor-parallel 3: 2 ranks are not a grid');
    expect(await refusal(['--tensor-parallel', '2', '--sequence-parallel', '--model', 'bert'])).toContain(
      '--sequence-parallel: BERT begins and ends in rows that every rank has',
    );
    expect(await refusal(['--pipeline-parallel', '2', '--tensor-parallel', '2'])).toContain(
      '--tensor-parallel 2 and --pipeline-parallel 2: 2 ranks are not a grid of 4 in a copy of the model',
    );
    expect(await refusal(['--pipeline-parallel', '2'])).toContain(
      '--pipeline-parallel 2: the model has 1 block, and each stage needs one; give at most 1',
    );
  });

  it('names what is not the same on all ranks before the first step', async () => {
    const run = (name: string) => [...RUN, '--steps', '2', '--out', out('unlike'), '--seed', name];
    const { status, stdout, stderr } = await startRanks([run('1'), run('2')]).finished;
    expect(status).toBe(2);
    expect(stdout).toBe('');
    expect(stderr.split('\n').filter((line) => line.startsWith('holdfast'))).toEqual([
      'holdfast: rank 0 of 2: setting seed: 1 on rank 0, 2 on rank 1; it must be the same on all ranks',
    ]);
  });

  it('ends where one rank has a flag that is none, and says so once', async () => {
    const run = [...RUN, '--steps', '2', '--out', out('no flag')];
    const { status, stderr } = await startRanks([run, [...run, '--lairs'], [...run, '--lairs']]).finished;
    expect(status).toBe(2);
    expect(stderr.match(/^holdfast: .*/gm)).toEqual([
      expect.stringMatching(/^holdfast: rank 1 of 3: unknown option '--lairs'.*; see holdfast train --help$/),
    ]);
  });

  it('says once what is wrong on all of them', async () => {
    const { status, stderr } = await onRanks(3, [...RUN, '--out', out('no heads'), '--width', '33']);
    expect(status).toBe(2);
    expect(stderr.match(/^holdfast: .*/gm)).toEqual([
      expect.stringMatching(/^holdfast: rank 0 of 3: --width 33 is not divisible by --heads/),
    ]);
  });

  it('names ends that are not the same, which are no settings', async () => {
    const run = (until: string) => [...RUN, '--steps', '6', '--until', until, '--out', out('ends')];
    const { status, stderr } = await startRanks([run('3'), run('4')]).finished;
    expect(status).toBe(2);
    expect(stderr.split('\n').filter((line) => line.startsWith('holdfast'))).toEqual([
      'holdfast: rank 0 of 2: --until: 3 on rank 0, 4 on rank 1; it must be the same on all ranks',
    ]);
  });

  it('names other data as such, also where it says how many steps there are', async () => {
    const run = (data: string) => {
      const flags = RUN.map((word) => (word === 'README.md' ? data : word));
      return [...flags, '--epochs', '1', '--out', out('data')];
    };
    const { status, stderr } = await startRanks([run('README.md'), run('CHANGELOG.md')]).finished;
    expect(status).toBe(2);
    expect(stderr.split('\n').filter((line) => line.startsWith('holdfast'))).toEqual([
      expect.stringMatching(/^holdfast: rank 0 of 2: data: \d+ bytes \(\w+…?.* on rank 0, \d+ bytes .* on rank 1;/),
    ]);
  });

  it.runIf(EVERY_CASE)('gives the same checkpoint under every stage and budget, also on 4 ranks', async () => {
    for (const size of [2, 4]) {
      const kinds = [
        ['--zero', '0'],
        ['--zero', '1'],
        ['--zero', '3', '--sample-tokens', '8'],
        ['--gpu-memory', '400KB', '--disk', out('tiers')],
      ];
      const found: Map<string, string>[] = [];
      for (const [i, flags] of kinds.entries()) {
        const name = `${size}-${i}`;
        const { status, stderr } = await onRanks(size, [...RUN, '--steps', '2', ...flags, '--out', out(name)]);
        expect(status, stderr).toBe(0);
        found.push(await tensorSums(out(name)));
      }
      expect(found[0]?.size).toBe(3 * 16);
      for (const other of found) expect(other).toEqual(found[0]);
    }
  });
});

const ALONE: [string, string][] = [
  ['--zero', '2'],
  ['--tensor-parallel', '2'],
  ['--pipeline-parallel', '2'],
];
it.each(ALONE)('says that %s needs several ranks', async (flag, value) => {
  const { status, stderr } = await holdfast(['train', flag, value]);
  expect(status).toBe(2);
  expect(stderr).toBe(
    `holdfast: ${flag} ${value}: is for several ranks; start them with MPI: mpiexec -n 2 node_modules/.bin/holdfast train ...`,
  );
});
