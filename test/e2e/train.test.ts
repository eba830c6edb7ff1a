// The command line as a person uses it: train, stop, resume, generate, and what bad input gets.

import { existsSync, mkdirSync, mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import os from 'node:os';
import path from 'node:path';
import { zipSync } from 'fflate';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { EVERY_CASE, THOROUGH } from '../host.ts';
import * as cli from './cli.ts';
import { type Finished, type Options, records } from './cli.ts';
import * as inProcess from './here.ts';

let folder: string;
let corpus: string;
const at = (...names: string[]) => path.join(folder, ...names);
/** Other tests do not change the kernels that the runs of these have chosen. */
const holdfast = (args: readonly string[], options: Options = {}) =>
  cli.holdfast(args, { ...options, env: { XDG_CACHE_HOME: at('cache') } });
const here = (args: readonly string[]) => inProcess.here(args, { cacheFolder: at('cache', 'holdfast') });

const SMALL = ['--layers', '1', '--width', '16', '--heads', '2', '--context', '16', '--batch', '2'];
/** However late it is stopped: saved then, and not before. */
const ENDLESS = ['--steps', '5000', '--save-every', '0', '--json'];
const QUIET = ['--eval-every', '0', '--sample-every', '0', '--eval-windows', '4', '--warmup', '2'];

beforeAll(() => {
  folder = mkdtempSync(path.join(os.tmpdir(), 'holdfast-e2e-'));
  corpus = at('corpus.txt');
  const words = ['the ', 'small ', 'model ', 'reads ', 'and ', 'writes ', 'again.\n'];
  mkdirSync(at('broken'));
  writeFileSync(at('broken', 'config.json'), '{"model_type": "gpt2",');
  writeFileSync(corpus, Array.from({ length: 900 }, (_, i) => words[(i * i + i) % words.length]).join(''));
});
afterAll(() => rmSync(folder, { recursive: true, force: true }));

const train = (out: string, ...more: string[]) => [
  'train',
  ...SMALL,
  ...QUIET,
  '--data',
  corpus,
  '--out',
  at(out),
  ...more,
];

/** The steps of a run's checkpoints. */
const saved = (run: string): number[] =>
  readdirSync(at(run))
    .flatMap((name) => /^checkpoint-(\d+)$/.exec(name)?.[1] ?? [])
    .map(Number)
    .sort((a, b) => a - b);

const weights = (run: string): Buffer => readFileSync(at(run, `checkpoint-${saved(run).at(-1)}`, 'model.safetensors'));

describe('train', () => {
  test.runIf(THOROUGH)(
    'learns, reports each step as JSON, leaves a checkpoint and a report; generate writes from it',
    async () => {
      const run = await holdfast(train('learns', '--steps', '60', '--lr', '0.01', '--json'));
      expect(run.status, run.stderr).toBe(0);
      const lines = records(run.stdout);
      const steps = lines.filter((line) => 'lr' in line);
      expect(steps).toHaveLength(60);
      for (const [i, line] of steps.entries()) {
        expect(Object.keys(line)).toEqual(['step', 'loss', 'lr', 'gradNorm', 'tokensPerSecond']);
        expect(line['step']).toBe(i);
      }
      const { summary } = lines.at(-1) as { summary: Record<string, number> };
      expect(lines[0]?.['loss']).toBeCloseTo(Math.log(256), 0);
      expect(summary['validationLoss']).toBeLessThan(3.6);
      expect(readFileSync(at('learns', 'report.html'), 'utf8')).toContain('<!doctype html>');

      const args = ['generate', at('learns'), '--prompt', 'the ', '--tokens', '40', '--seed', '5'];
      const [first, second] = [await holdfast(args), await here(args)];
      expect(first.status, first.stderr).toBe(0);
      expect(first.stdout.startsWith('the ')).toBe(true);
      expect([...first.stdout.trimEnd()].length).toBeGreaterThan(20);
      expect(second.stdout).toBe(first.stdout);
    },
  );

  test.runIf(EVERY_CASE)('the same run again gives the same bits', async () => {
    await here(train('once', '--steps', '6'));
    await here(train('twice', '--steps', '6'));
    expect(weights('once').equals(weights('twice'))).toBe(true);
  });

  test('stopped by an interrupt, it saves; resumed, it ends in the bits of a run that was not stopped', async () => {
    const flags = ['--steps', '5000', '--accumulate', '2', '--json'];
    let interrupted = false;
    const cut = await holdfast(train('cut', ...flags), {
      watch: (stdout, child) => {
        if (!interrupted && stdout.includes('"step":7,')) child.kill('SIGINT');
        interrupted ||= stdout.includes('"step":7,');
      },
    });
    // Deno reports the signal that was sent, even of a child that handled it and left with status 0.
    expect(cut.status ?? 0, cut.stderr).toBe(0);
    const done = records(cut.stdout);
    expect(done.at(-1)).toMatchObject({ summary: { interrupted: true } });
    const end = ['--until', String(done.filter((line) => 'lr' in line).length + 6)];
    const rest = await here(['train', '--resume', '--out', at('cut'), '--json', ...end]);
    expect(rest.status, rest.stderr).toBe(0);
    const whole = await here(train('whole', ...flags, ...end));
    const losses = (text: string) =>
      records(text)
        .filter((line) => 'loss' in line)
        .map(({ step, loss, gradNorm, lr }) => ({ step, loss, gradNorm, lr }));
    expect([...losses(cut.stdout), ...losses(rest.stdout)]).toEqual(losses(whole.stdout));
    expect(weights('cut').equals(weights('whole'))).toBe(true);
  });

  test.runIf(THOROUGH)(
    'ended early and resumed, it has the validations, samples and random numbers of a run that was not',
    async () => {
      const shown = ['--eval-every', '4', '--sample-every', '6', '--sample-tokens', '9', '--steps', '14'];
      const parts = async (out: string, ...ends: string[]) => {
        for (const [i, end] of ends.entries()) {
          const args = i === 0 ? train(out, ...shown) : ['train', '--resume', '--out', at(out)];
          const { status, stdout, stderr } = await here([...args, '--until', end]);
          expect(status, stderr).toBe(0);
          // Each end shows what has become of the run.
          expect(stdout).toContain(`step ${end}: validation loss`);
          expect(stdout).toContain(`step ${end} writes:`);
        }
        const state = JSON.parse(readFileSync(at(out, 'checkpoint-14', 'holdfast_state.json'), 'utf8'));
        for (const step of state.history.steps) delete step.tokensPerSecond;
        return state;
      };
      const undisturbed = await parts('undisturbed', '14');
      expect(undisturbed.history.validations.map(({ step }: { step: number }) => step)).toEqual([4, 8, 12, 14]);
      expect(undisturbed.history.samples.map(({ step }: { step: number }) => step)).toEqual([6, 12, 14]);
      // Before anything is due, when a validation is, and one step before the end.
      expect(await parts('ended early', '3', '8', '13', '14')).toEqual(undisturbed);
      expect(weights('ended early').equals(weights('undisturbed'))).toBe(true);
    },
  );

  test('when its terminal is closed, it saves and leaves nothing else behind', async () => {
    let closed = false;
    const memory = ['--gpu-memory', '900KB', '--host-memory', '110KB', '--disk', at('hung up tiers')];
    const run = await holdfast(train('hung up', ...ENDLESS, ...memory), {
      watch: (stdout, child) => {
        if (closed || !stdout.includes('"step":7,')) return;
        closed = true;
        // What is written from now on fails.
        child.stdout?.destroy();
        child.stderr?.destroy();
        child.kill('SIGHUP');
        child.kill('SIGHUP');
      },
    });
    expect(run.status ?? 0).toBe(0);
    expect(readdirSync(at('hung up')).sort()).toEqual([expect.stringMatching(/^checkpoint-\d+$/), 'report.html']);
    expect(existsSync(at('hung up tiers'))).toBe(false);
  });

  test('when its output has no reader any more, it saves', async () => {
    const run = await holdfast(train('unread', ...ENDLESS), {
      watch: (stdout, child) => {
        if (stdout.includes('"step":7,')) child.stdout?.destroy();
      },
    });
    expect(run.status ?? 0, run.stderr).toBe(0);
    expect(readdirSync(at('unread')).sort()).toEqual([expect.stringMatching(/^checkpoint-\d+$/), 'report.html']);
  });

  // Runs that are killed in other ways are in kills.test.ts.
  test.runIf(EVERY_CASE)('killed at once, it has a whole checkpoint, and goes on from there', async () => {
    const killed = await holdfast(train('killed', '--steps', '5000', '--save-every', '3', '--json'), {
      watch: (stdout, child) => {
        if (stdout.includes('"step":10')) child.kill('SIGKILL');
      },
    });
    expect(killed.status).not.toBe(0);
    const steps = (saved('killed').at(-1) ?? 0) + 7;
    const rest = await here(['train', '--resume', '--out', at('killed'), '--steps', String(steps), '--json']);
    expect(rest.status, rest.stderr).toBe(0);
    expect(records(rest.stdout).at(-1)).toMatchObject({ summary: { steps } });
  });

  test('takes text from standard input, trains llama with grouped heads, and goes on from its weights', async () => {
    const flags = ['--model', 'llama', '--heads', '4', '--kv-heads', '2', '--data', '-', '--steps', '4', '--json'];
    const run = await holdfast(['train', ...SMALL, ...QUIET, ...flags, '--out', at('piped')], {
      input: 'Words from a pipe, again and again. '.repeat(40),
    });
    expect(run.status, run.stderr).toBe(0);
    const name = readdirSync(at('piped')).find((entry) => entry.startsWith('checkpoint-')) as string;
    const model = ['--model', at('piped', name), '--data', corpus, '--steps', '2', '--batch', '2'];
    const tuned = await here(['train', ...model, ...QUIET, '--out', at('tuned'), '--json']);
    expect(tuned.status, tuned.stderr).toBe(0);
  });

  test.runIf(THOROUGH)(
    'a task: validations tell what it solves; it is resumed as it is; a zip of it writes what its folder writes',
    async () => {
      const args = [...SMALL, ...QUIET, '--task', 'sorting', '--steps', '4', '--eval-every', '2', '--out', at('sorts')];
      const run = await here(['train', ...args, '--json']);
      expect(run.status, run.stderr).toBe(0);
      const lines = records(run.stdout);
      const solved = lines.flatMap(({ validation }) => (validation ? [validation as Record<string, number>] : []));
      expect(solved.map(({ step }) => step)).toEqual([2, 4]);
      for (const { loss, accuracy } of solved) {
        expect(loss).toBeLessThan(6);
        // Nothing is learned in four steps.
        expect(accuracy).toBe(0);
      }
      expect(lines.at(-1)).toMatchObject({ summary: { steps: 4, accuracy: 0 } });
      const refused = async (...flags: string[]) =>
        (await here(['train', '--resume', '--out', at('sorts'), ...flags])).stderr;
      expect(await refused('--task', 'addition')).toMatch(
        /--task addition: the checkpoint in .* was made with sorting/,
      );
      expect(await refused('--data', corpus)).toMatch(/--data: the checkpoint in .* was made with --task sorting/);

      const checkpoint = at('sorts', 'checkpoint-4');
      const files = readdirSync(checkpoint).map((name) => [
        name,
        new Uint8Array(readFileSync(path.join(checkpoint, name))),
      ]);
      writeFileSync(at('sorts.zip'), zipSync(Object.fromEntries(files)));
      const write = (from: string) => here(['generate', at(from), '--prompt', 'sort 10', '--tokens', '20']);
      const [folder, zip] = [await write('sorts'), await write('sorts.zip')];
      expect(zip.status, zip.stderr).toBe(0);
      expect(zip.stdout).toBe(folder.stdout);
    },
  );

  test.runIf(THOROUGH)('piped, it prints plain lines without control sequences', async () => {
    const run = await holdfast(train('plain', '--steps', '5', '--sample-every', '3'));
    expect(run.status, run.stderr).toBe(0);
    expect(run.stdout).toMatch(/step 1\/5 {2}loss \d/);
    expect(run.stdout).not.toMatch(/[^\P{Cc}\n]/u);
  });

  test('a step that is not finite is skipped and counted; ten in a row end the run with one line', async () => {
    const run = await here(
      train('diverged', '--steps', '60', '--lr', '1e30', '--clip', '0', '--warmup', '0', '--json'),
    );
    expect(run.status).toBe(2);
    expect(run.stderr.split('\n').at(-1)).toMatch(
      /^holdfast: 10 steps in a row gave a loss or gradient that is not finite .* lower --lr/,
    );
    expect(records(run.stdout).filter((line) => line['skipped']).length).toBeGreaterThanOrEqual(10);
    expect(existsSync(at('diverged', 'report.html'))).toBe(false);
  });

  test.runIf(THOROUGH)(
    'a run that diverges leaves the checkpoint from before, also where it is stopped meanwhile',
    async () => {
      const diverging = [
        ...['--steps', '60', '--lr', '1e30', '--clip', '0', '--warmup', '0', '--save-every', '1', '--json'],
      ];
      const skipped = ({ stdout }: Finished) =>
        records(stdout).flatMap((line) => ('loss' in line ? [line['skipped'] === true] : []));
      const until = (step: number, ...flags: string[]) =>
        here([...train('stopped', ...diverging, '--until', String(step)), ...flags]);
      const first = await until(4);
      expect(first.status).toBe(2);
      expect(first.stderr).toMatch(/the run has diverged: its validation loss is not finite/);
      expect(skipped(first)).toEqual([false, true, true, true]);
      expect(saved('stopped')).toEqual([1]);
      const second = await until(6, '--resume', '--sample-tokens', '0');
      expect(second.status, second.stderr).toBe(2);
      expect(skipped(second)).toEqual([true, true, true, true, true]);
      expect(saved('stopped')).toEqual([1]);
      const end = await here([...train('stopped', ...diverging), '--resume']);
      expect(end.stderr).toMatch(/10 steps in a row .* \(up to step 11\)/);
      expect(skipped(end)).toEqual(Array.from({ length: 10 }, () => true));
      expect(saved('stopped')).toEqual([1]);
    },
  );

  // A reader beside a run that saves is in test/formats/living-run.test.ts.
  test.runIf(EVERY_CASE)('a model that a run is training writes, however often that saves', async () => {
    let written: Promise<Finished[]> | undefined;
    const write = () => holdfast(['generate', at('living'), '--prompt', 'the ', '--tokens', '4']);
    await holdfast(train('living', '--steps', '20000', '--save-every', '1', '--json'), {
      watch: (stdout, child) => {
        if (written || !stdout.includes('"step":5,')) return;
        written = Promise.all([write(), write()]);
        written.finally(() => child.kill('SIGKILL'));
      },
    });
    for (const { status, stdout, stderr } of (await written) ?? []) {
      expect(status, stderr).toBe(0);
      expect(stdout).toMatch(/^the /);
    }
    expect(await written).toHaveLength(2);
  });
});

describe('bad input gets one line that names the thing and the fix, and status 2', () => {
  const cases: [string, () => string[], RegExp][] = [
    ['unknown flag', () => train('x', '--stpes', '3'), /unknown option '--stpes'/],
    [
      'two texts',
      () => train('x', '--task', 'addition'),
      /option '--task <name>' cannot be used with option '--data <path...>'/,
    ],
    ['unknown task', () => ['train', '--task', 'juggling'], /Allowed choices are addition, sorting, reversing/],
    ['unknown command', () => ['trian'], /unknown command 'trian'/],
    [
      'missing corpus',
      () => train('x', '--data', at('nowhere.txt')),
      /nowhere\.txt: nothing is there; name a text file/,
    ],
    [
      'corpus too short',
      () => train('x', '--context', '4096', '--data', corpus),
      /tokens, a context of 4096 needs at least/,
    ],
    [
      'heads',
      () => train('x', '--width', '30', '--heads', '4'),
      /--width 30 is not divisible by --heads 4; 32 would work/,
    ],
    [
      'kv heads',
      () => train('x', '--model', 'llama', '--heads', '4', '--kv-heads', '3'),
      /--kv-heads 3: --heads 4 is no multiple of it; 2 would work/,
    ],
    ['not a number', () => train('x', '--lr', 'fast'), /--lr <rate>' argument 'fast' is invalid/],
    [
      'nothing to resume',
      () => ['train', '--resume', '--out', at('nothing')],
      /nothing to resume|no checkpoint to resume/,
    ],
    [
      'a folder that cannot be made',
      () => ['train', ...SMALL, '--out', path.join(corpus, 'x')],
      /cannot write to .*corpus\.txt\/x: a part of its path is not a folder/,
    ],
    [
      'no folder for the trace',
      () => train('x', '--timeline', at('none', 'trace.json')),
      /cannot write .*trace\.json: there is no such folder/,
    ],
    [
      'a folder for the trace',
      () => train('x', '--timeline', at('broken')),
      /cannot write .*broken: it is a folder; name a file/,
    ],
    ['no adapter', () => train('x', '--adapter', 'imaginary'), /no adapter matches "imaginary".*holdfast devices/],
    [
      'no such model',
      () => train('x', '--model', at('no-model')),
      /no-model: no such folder; name a run, a checkpoint/,
    ],
    ['broken config', () => train('x', '--model', at('broken')), /broken\/config\.json: not JSON/],
    ['nothing to generate from', () => ['generate', at('nowhere')], /nowhere: no such folder/],
    ['top-p', () => ['generate', at('learns'), '--top-p', '2'], /top-p 2: must be a probability/],
  ];

  test.each(cases)('%s', async (_name, args, message) => {
    const run = await here(args());
    expect(run.status, run.stdout + run.stderr).toBe(2);
    expect(run.stderr).toMatch(message);
    expect(run.stderr.split('\n')).toHaveLength(1);
    expect(existsSync(at('x'))).toBe(false);
  });

  test.runIf(THOROUGH)(
    'a run that exists is not written over, nor resumed as another model, nor on another text',
    async () => {
      await here(train('kept', '--steps', '2'));
      const before = weights('kept');
      const again = await here(train('kept', '--steps', '2'));
      expect(again.status).toBe(2);
      expect(again.stderr).toMatch(/kept: holds a checkpoint already; add --resume/);
      const other = await here(['train', '--resume', '--out', at('kept'), '--layers', '3']);
      expect(other.status).toBe(2);
      expect(other.stderr).toMatch(/--layers 3: the checkpoint in .* was made with 1/);
      writeFileSync(at('other.txt'), 'quite another text '.repeat(50));
      const text = await here(['train', '--resume', '--out', at('kept'), '--steps', '4', '--data', at('other.txt')]);
      expect(text.status).toBe(2);
      expect(text.stderr).toMatch(/give the same --data/);
      expect(weights('kept').equals(before)).toBe(true);
    },
  );

  test.runIf(THOROUGH)('a damaged checkpoint is refused by name', async () => {
    await here(train('damaged', '--steps', '2'));
    const file = at('damaged', 'checkpoint-2', 'model.safetensors');
    writeFileSync(file, readFileSync(file).subarray(0, 5000));
    const run = await here(['generate', at('damaged')]);
    expect(run.status).toBe(2);
    expect(run.stderr).toMatch(/^holdfast: .*model\.safetensors/);
  });
});

test('devices lists the adapter under test and names the one that would be chosen', async () => {
  const { stdout, status } = await holdfast(['devices']);
  expect(status).toBe(0);
  expect(stdout).toMatch(/<- chosen/);
});
