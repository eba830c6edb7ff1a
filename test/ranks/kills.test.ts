// Runs on several ranks of which one is killed at a random moment, and that are resumed: the launcher ends the job and says by
// what, every checkpoint that is there is whole, and the run ends in the bits of one that nothing disturbed, or, on fewer
// ranks, near them.

import { cpSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import os from 'node:os';
import path from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { checkpointsOf, loadCheckpoint } from '../../src/formats/checkpoint.ts';
import { at } from '../../src/util/at.ts';
import { Random } from '../../src/util/random.ts';
import { holdfast, records } from '../e2e/cli.ts';
import { ADAPTER, EVERY_CASE, THOROUGH, testHost } from '../host.ts';
import { hasMpi, startRanks, tensorSums } from './mpi.ts';

const STEPS = 10;
const SHAPE = ['--layers', '2', '--width', '32', '--heads', '2', '--context', '16', '--batch', '1', '--warmup', '2'];
const SHOWN = ['--eval-every', '4', '--eval-windows', '2', '--sample-tokens', '0', '--save-every', '1'];

interface Grid {
  readonly size: number;
  readonly flags: readonly string[];
  readonly kills: number;
}
/** 30 kills in all. */
const GRIDS: readonly Grid[] = [
  { size: 2, flags: ['--zero', '2'], kills: EVERY_CASE ? 8 : 1 },
  { size: 2, flags: ['--zero', '3', '--gpu-memory', '400KB'], kills: 6 },
  { size: 4, flags: ['--zero', '2'], kills: 6 },
  { size: 2, flags: ['--tensor-parallel', '2'], kills: 5 },
  { size: 2, flags: ['--pipeline-parallel', '2', '--accumulate', '2'], kills: 5 },
];

describe.runIf(hasMpi && THOROUGH)('a rank that is killed', () => {
  let folder: string;
  const out = (...names: string[]) => path.join(folder, ...names);
  beforeAll(() => {
    folder = mkdtempSync(path.join(os.tmpdir(), 'holdfast-rank-kills-'));
    const words = ['one ', 'of ', 'several ', 'is ', 'taken ', 'away ', 'again.\n'];
    writeFileSync(out('text'), Array.from({ length: 900 }, (_, i) => words[(i * i + i) % words.length]).join(''));
  });
  afterAll(() => rmSync(folder, { recursive: true, force: true }));

  /** Begins the run or goes on with it. Kernels are measured once, by the first of all. */
  const train = ({ size, flags }: Grid, run: string, isFirst: boolean, watch?: (stdout: string) => void) => {
    const model = [...SHAPE, ...SHOWN, '--steps', String(STEPS), '--data', out('text')];
    const args = ['train', '--out', out(run), '--json', '--adapter', ADAPTER, ...(isFirst ? model : ['--resume'])];
    // The grid is the run's, but for budgets and what is sharded.
    const kept = isFirst ? flags : flags.filter((_, i) => /^--(zero|gpu)/.test(flags[i - (i % 2)] ?? ''));
    return startRanks(
      Array.from({ length: size }, () => [...args, ...kept]),
      watch,
      { XDG_CACHE_HOME: out('cache') },
    );
  };

  const checkpoints = (run: string) => checkpointsOf(testHost.files, out(run));

  /** Without what a clock says. */
  const outcome = async (run: string) => {
    const { state } = await loadCheckpoint(testHost.files, out(run));
    const { history, trainer, batches } = state as {
      history: { steps: Record<string, number>[]; validations: unknown };
      trainer: unknown;
      batches: unknown;
    };
    const steps = history.steps.map(({ tokensPerSecond: _, ...figures }) => figures);
    return { tensors: await tensorSums(out(run)), steps, validations: history.validations, trainer, batches };
  };

  /** Kills a rank after some of the steps, or some time after the start. What was seen of it; undefined where it came too late. */
  const kill = async (grid: Grid, run: string, random: Random) => {
    let reached = () => {};
    const wanted = 1 + random.below(4);
    const steps = new Promise<void>((resolve) => {
      reached = resolve;
    });
    const started = train(grid, run, (await checkpoints(run)).length === 0, (stdout) => {
      if (stdout.split('\n').length > wanted) reached();
    });
    const rank = random.below(grid.size);
    await Promise.race([started.finished, random.below(4) === 0 ? sleep(random.below(1500)) : steps]);
    await sleep(random.below(60));
    const pid = await started.pidOf(rank).catch(() => undefined);
    if (pid !== undefined) process.kill(pid, 'SIGKILL');
    const began = performance.now();
    const { status, stdout, stderr } = await started.finished;
    const after = Math.round(performance.now() - began);
    if (pid === undefined || status === 0) return undefined;
    // Open MPI's launcher names the rank; MPICH's one of those that have ended, which it may have killed itself, or which has
    // ended itself as it was reading from the killed one, whose process its last words name.
    expect(stdout + stderr).toMatch(
      new RegExp(`RUNNING AT [^]*EXIT CODE: 9|exited on signal 9|process_vm_readv\\(pid=${pid} `),
    );
    // Before it has joined the others there is nothing of them.
    const [, pids] = /^ranks 0 to \d+: processes (.*) on \S+$/m.exec(stderr) ?? [];
    if (pids !== undefined) expect(pids.split(', ')[rank]).toBe(String(pid));
    expect(stderr).not.toContain('holdfast: ');
    return { rank, after };
  };

  it.each(EVERY_CASE ? GRIDS : GRIDS.slice(0, 1))('of $size with $flags: the job ends, and goes on', async (grid) => {
    const name = `${grid.size} ${grid.flags.join(' ')}`;
    const undisturbed = await train(grid, name, true).finished;
    expect(undisturbed.status, undisturbed.stderr).toBe(0);
    const wanted = await outcome(name);
    const random = new Random(15, name);
    for (let kills = 0, seed = 0; kills < grid.kills; seed++) {
      const run = `${name} killed ${seed}`;
      for (let left = Math.min(grid.kills - kills, 3); left > 0; left--) {
        const seen = await kill(grid, run, random);
        if (!seen) break;
        kills++;
        if (process.env['HOLDFAST_VERBOSE']) console.log(`${run}: ${JSON.stringify(seen)}`);
        for (const { path, step } of await checkpoints(run)) {
          const loaded = await loadCheckpoint(testHost.files, path);
          expect((loaded.state as { trainer: { step: number } }).trainer.step).toBe(step);
        }
      }
      const isFirst = (await checkpoints(run)).length === 0;
      if (!isFirst) cpSync(out(run), out(`${run} fewer`), { recursive: true });
      const { status, stderr } = await train(grid, run, isFirst).finished;
      expect(status, stderr).toBe(0);
      expect(await outcome(run)).toEqual(wanted);
      if (isFirst || !EVERY_CASE) continue;
      const fewer = await holdfast(['train', '--resume', '--out', out(`${run} fewer`), '--json']);
      expect(fewer.status, fewer.stderr).toBe(0);
      for (const { step, loss } of records(fewer.stdout)) {
        if (typeof step !== 'number') continue;
        // Sums in another order: a few units in the last place of losses near 5.5, which steps add to.
        expect(Math.abs(Number(loss) - (at(wanted.steps, step)['loss'] ?? 0)), `step ${step}`).toBeLessThan(1e-4);
      }
    }
  });
});
