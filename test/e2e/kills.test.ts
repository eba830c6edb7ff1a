// Runs that are killed at random moments, or of which a thread is, and resumed: they end in the weights, moments and history of the
// run that nothing disturbed. And runs that two processes want: one has it, the other is told so.

import { existsSync, mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import os from 'node:os';
import path from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { afterAll, beforeAll, expect, test } from 'vitest';
import type { Threads } from '../../src/runtime/host.ts';
import { Random } from '../../src/util/random.ts';
import { EVERY_CASE, THOROUGH, testHost } from '../host.ts';
import { records, start } from './cli.ts';
import { here } from './here.ts';

let folder: string;
const at = (...names: string[]) => path.join(folder, ...names);

const STEPS = EVERY_CASE ? 24 : 12;
const SHAPE = ['--layers', '2', '--width', '32', '--heads', '2', '--context', '16', '--batch', '2', '--warmup', '2'];
const SHOWN = ['--eval-every', '9', '--eval-windows', '4', '--sample-every', '7', '--sample-tokens', '6'];
const BUDGET = ['--gpu-memory', '750KB', '--host-memory', '700KB'];
const KILLS = EVERY_CASE ? 100 : 1;
/** Of each way to train. */
const KILLS_OF_WAY = EVERY_CASE ? 20 : 1;

beforeAll(async () => {
  folder = mkdtempSync(path.join(os.tmpdir(), 'holdfast-kills-'));
  const words = ['cut ', 'off ', 'and ', 'taken ', 'up ', 'again ', 'later.\n'];
  writeFileSync(at('text'), Array.from({ length: 900 }, (_, i) => words[(i * i + i) % words.length]).join(''));
  await trainToEnd('undisturbed', []);
});
afterAll(() => rmSync(folder, { recursive: true, force: true }));

/** The command that begins the run, trained this way, or goes on with it. */
function command(run: string, memory: readonly string[], isFirst = true, way: readonly string[] = []): string[] {
  const model = [...SHAPE, '--steps', String(STEPS), '--data', at('text'), ...SHOWN, '--save-every', '1', ...way];
  return ['train', '--out', at(run), '--json', ...(isFirst ? model : ['--resume']), ...memory];
}

/** Runs it in a process that can be killed. Kernels are measured once, by the first of all. */
const train = (watch: () => void, ...asked: Parameters<typeof command>) =>
  start(command(...asked), { env: { XDG_CACHE_HOME: at('cache') }, watch });

/** Lets it end, in this process. */
async function trainToEnd(...asked: Parameters<typeof command>): Promise<void> {
  const { status, stderr } = await here(command(...asked), { cacheFolder: at('cache', 'holdfast') });
  expect(status, stderr).toBe(0);
}

/** Without what a clock says. */
function outcome(run: string) {
  const file = (name: string) => readFileSync(at(run, `checkpoint-${STEPS}`, name));
  const { history, trainer, batches, sampling } = JSON.parse(file('holdfast_state.json').toString());
  const steps = history.steps.map(({ tokensPerSecond: _, ...figures }: Record<string, number>) => figures);
  return {
    state: { steps, validations: history.validations, samples: history.samples, trainer, batches, sampling },
    weights: file('model.safetensors').toString('base64'),
    moments: file('optimizer.safetensors').toString('base64'),
  };
}

const isSaved = (run: string) => {
  try {
    return readdirSync(at(run)).some((name) => /^checkpoint-\d+$/.test(name));
  } catch {
    return false;
  }
};

/** Kills the process after a number of its steps, or some time after its start, and lets the last one end. */
async function killAndResume(
  run: string,
  memory: readonly string[],
  random: Random,
  kills: number,
  way: readonly string[] = [],
): Promise<number> {
  for (let killed = 0; ; ) {
    let lines = 0;
    let reached = () => {};
    const wanted = 1 + random.below(4);
    const steps = new Promise<void>((resolve) => {
      reached = resolve;
    });
    const watch = () => {
      if (++lines >= wanted) reached();
    };
    const asked = [run, memory, !isSaved(run), way] as const;
    if (killed === kills) {
      await trainToEnd(...asked);
      return killed;
    }
    const { child, finished } = train(watch, ...asked);
    await Promise.race([finished, random.below(4) === 0 ? sleep(random.below(1500)) : steps]);
    await sleep(random.below(60));
    child.kill('SIGKILL');
    const { status, stderr } = await finished;
    if (status === 0) return killed;
    expect(stderr).not.toContain('holdfast: ');
    killed++;
  }
}

const kinds: [string, () => string[]][] = [
  ['all on the GPU', () => []],
  ['within a GPU budget', () => BUDGET],
  ['within budgets and a disk tier', () => [...BUDGET.with(-1, '110KB'), '--disk', at('tiers')]],
];

test.runIf(THOROUGH).each(EVERY_CASE ? kinds : kinds.slice(2))(
  'killed and resumed, %s: the same bits',
  { timeout: 3_600_000 },
  async (kind, memory) => {
    for (let seed = 1, kills = 0; kills < KILLS; seed++) {
      const run = `${kind} ${seed}`;
      const killed = await killAndResume(run, memory(), new Random(seed, kind), Math.min(KILLS - kills, 12));
      kills += killed;
      expect(outcome(run)).toEqual(outcome('undisturbed'));
      expect(readdirSync(at(run)).filter((name) => name.startsWith('run.lock'))).toEqual([]);
    }
    // The last process found what those before it had left; the folder is there where one of those had made it.
    if (memory().includes('--disk') && existsSync(at('tiers'))) expect(readdirSync(at('tiers'))).toEqual([]);
  },
);

const ways: [string, string[]][] = [
  ['--dtype bf16 --optimizer-state bf16 --update in-backward --clip 0', []],
  ['--optimizer-device cpu', BUDGET],
  // Its copies need more below.
  ['--dtype f16', BUDGET.with(-1, '900KB')],
  ['--activation-dtype bf16', []],
  ['--dtype bf16 --update in-backward', BUDGET],
  ['--dtype f16 --optimizer-device cpu', BUDGET.with(-1, '900KB')],
  ['--dtype bf16 --optimizer-device cpu', BUDGET],
  ['--optimizer-device auto', BUDGET],
  ['--dtype f16 --update in-backward', BUDGET.with(-1, '900KB')],
  ['--update in-backward', BUDGET],
  ['--optimizer-device cpu --update in-backward', BUDGET],
];

test.runIf(EVERY_CASE).each(ways)(
  'killed and resumed, %s: the same bits',
  { timeout: 3_600_000 },
  async (flags, memory) => {
    const way = flags.split(' ');
    const alone = `${flags}, undisturbed`;
    await trainToEnd(alone, memory, true, way);
    for (let seed = 1, kills = 0; kills < KILLS_OF_WAY; seed++) {
      const run = `${flags} ${seed}`;
      kills += await killAndResume(run, memory, new Random(seed, flags), Math.min(KILLS_OF_WAY - kills, 10), way);
      // By what it measures, another run may split its tensors otherwise.
      if (way.includes('auto')) await expectReplayed(run);
      else expect(outcome(run)).toEqual(outcome(alone));
    }
  },
);

/** A run that is trained again from its start, in one go, as it was: the same bits. */
async function expectReplayed(run: string): Promise<void> {
  const { status, stdout, stderr } = await here(['parity', at(run), '--json'], {
    cacheFolder: at('cache', 'holdfast'),
  });
  expect(status, stderr).toBe(0);
  expect(records(stdout).map(({ sameBits }) => sameBits)).toEqual([true]);
}

const ON_HOST = ['--optimizer-device', 'cpu'];
let onHost: Promise<unknown> | undefined;
/** Of the run on the host that nothing disturbs. */
async function outcomeOnHost() {
  onHost ??= trainToEnd('on the host, undisturbed', [], true, ON_HOST);
  await onHost;
  return outcome('on the host, undisturbed');
}

const RESUMED: readonly (readonly [string, readonly string[]])[] = [
  ['gpu', []],
  ['cpu', []],
  ...(EVERY_CASE ? [['gpu', BUDGET] as const, ['cpu', BUDGET] as const] : []),
];

test.runIf(THOROUGH).each(RESUMED)(
  'stopped and resumed, updated inside the backward pass on the %s, with %j: the bits of the update at the end, in one go',
  async (optimizerDevice, memory) => {
    const run = `in the backward pass, ${optimizerDevice} ${memory}`;
    const way = ['--update', 'in-backward', '--optimizer-device', optimizerDevice];
    await trainToEnd(run, memory, true, [...way, '--until', '5']);
    await trainToEnd(run, memory, false);
    expect(outcome(run)).toEqual(optimizerDevice === 'cpu' ? await outcomeOnHost() : outcome('undisturbed'));
  },
);

type Moment = 'at work' | 'idle';

/** Two threads of the optimizer, of which one is ended: with the n-th piece of work in hand, or when it has done it. */
function mortalThreads(n: number, moment: Moment): { threads: Threads; hasEnded: () => boolean } {
  const own = testHost.threads as Threads;
  const counts = { 'at work': 0, idle: 0 };
  const start: Threads['start'] = async (worker, told) => {
    if (worker !== 'optimizer') return own.start(worker, told);
    const message = (reply: unknown) => {
      told.message(reply);
      if (++counts.idle === n && moment === 'idle') void thread.end();
    };
    const thread = await own.start(worker, { ...told, message });
    const post = (work: unknown) => {
      thread.post(work);
      if (++counts['at work'] === n && moment === 'at work') void thread.end();
    };
    return { ...thread, post };
  };
  return { threads: { count: 2, start }, hasEnded: () => counts[moment] >= n };
}

// In each step both threads have a piece: of an odd number, the first of them does not do its own, of an even one the second.
test.each(['at work', 'idle'] as const)(
  'a thread of the optimizer ends, %s: one clear error, and resumed the same bits',
  { timeout: 3_600_000 },
  async (moment) => {
    const wanted = await outcomeOnHost();
    const pieces = moment === 'idle' ? [4] : [1, 6];
    // When the last has been done, nothing is missed.
    const all = Array.from({ length: 2 * STEPS - (moment === 'idle' ? 2 : 0) }, (_, i) => i + 1);
    for (const n of EVERY_CASE ? all : pieces) {
      const run = `a thread ends, ${moment} ${n}`;
      const { threads, hasEnded } = mortalThreads(n, moment);
      const cacheFolder = at('cache', 'holdfast');
      const { status, stderr } = await here(command(run, [], true, ON_HOST), { cacheFolder, threads });
      expect(hasEnded()).toBe(true);
      expect(status, stderr).toBe(2);
      expect(stderr.split('\n').filter((line) => line.startsWith('holdfast: '))).toEqual([
        expect.stringMatching(
          /^holdfast: a thread of the optimizer on the host failed \(.*\); resume from the last checkpoint$/,
        ),
      ]);
      await trainToEnd(run, [], !isSaved(run), ON_HOST);
      expect(outcome(run), `${n}`).toEqual(wanted);
    }
  },
);

test('two processes in one folder: one trains, the other is told which; killed and resumed, the same bits', {
  timeout: 3_600_000,
}, async () => {
  const random = new Random(7, 'two');
  const run = 'two at once';
  for (let round = 0; round < (EVERY_CASE ? 25 : 1); round++) {
    // The one that trains is held at its first step until the other has ended.
    const isFirst = !isSaved(run);
    let isHeld = false;
    const pair = [0, 1].map(() => {
      const hold = () => {
        if (!isHeld) process.child.kill('SIGSTOP');
        isHeld = true;
      };
      const process = train(hold, run, [], isFirst);
      return process;
    });
    const [first, second] = pair as [(typeof pair)[0], (typeof pair)[0]];
    const refused = await Promise.race([first.finished, second.finished]);
    expect(refused.status, refused.stdout + refused.stderr).toBe(2);
    expect(refused.stdout).toBe('');
    const winner = first.child.exitCode === null ? first : second;
    expect(refused.stderr).toMatch(
      new RegExp(
        `^holdfast: .*two at once: process ${winner.child.pid} on \\S+ has it since \\d{4}-\\d\\d-\\d\\dT\\S+; .*$`,
      ),
    );
    winner.child.kill('SIGCONT');
    await sleep(random.below(300));
    winner.child.kill('SIGKILL');
    await winner.finished;
  }
  await trainToEnd(run, [], !isSaved(run));
  expect(outcome(run)).toEqual(outcome('undisturbed'));
});

test('parity of a run has its folder meanwhile: refused where a process trains there, and no other may begin to', async () => {
  const run = at('undisturbed');
  // Named twice, it is one run.
  const parity = () => here(['parity', run, `${run}/`, '--json'], { cacheFolder: at('cache', 'holdfast') });
  const claim = await testHost.claimFolder?.(run);
  const refused = await parity();
  await claim?.release();
  expect(refused).toMatchObject({ status: 2, stdout: '' });
  expect(refused.stderr).toMatch(
    new RegExp(
      `^holdfast: .*undisturbed: process ${process.pid} on \\S+ has it since \\S+; .*name a checkpoint in it.*$`,
    ),
  );
  let isOver = false;
  const replayed = parity().finally(() => {
    isOver = true;
  });
  const isHeld = () => readdirSync(run).includes('run.lock');
  while (!isHeld() && !isOver) await sleep(1);
  await expect(testHost.claimFolder?.(run)).rejects.toThrow('has it since');
  const { status, stdout, stderr } = await replayed;
  expect(status, stderr).toBe(0);
  expect(records(stdout).map(({ sameBits }) => sameBits)).toEqual([true, true]);
  expect(isHeld()).toBe(false);
});

test.runIf(THOROUGH)('two that take the next free folder at the same time take two', async () => {
  const model = [...SHAPE, '--steps', '3', '--data', at('text'), '--sample-tokens', '0'];
  const options = { cwd: folder, env: { XDG_CACHE_HOME: at('cache') } };
  const both = [start(['train', ...model], options), start(['train', ...model], options)];
  for (const { status, stderr } of await Promise.all(both.map(({ finished }) => finished)))
    expect(status, stderr).toBe(0);
  expect(readdirSync(at('runs'))).toEqual(['run-1', 'run-2']);
  for (const run of ['run-1', 'run-2']) expect(readdirSync(at('runs', run))).toEqual(['checkpoint-3', 'report.html']);
});
