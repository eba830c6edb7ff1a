// `holdfast parity` of a run: it is trained again and compared with its own record. The same bits on the same adapter,
// within what rounding explains with other kernels; a record that is not the run's fails.

import { zipSync } from 'fflate';
import { beforeAll, describe, expect, test } from 'vitest';
import { parityCommand } from '../../src/cli/parity.ts';
import { checkpointsOf } from '../../src/formats/checkpoint.ts';
import { parseConfig } from '../../src/formats/config.ts';
import { loadRun, type RunSources, type RunVerdict, replayRun } from '../../src/parity/replay-run.ts';
import { ALLOWED_MULTIPLE } from '../../src/parity/verdict.ts';
import { join } from '../../src/runtime/host.ts';
import { trainRun } from '../../src/train/run/run.ts';
import type { RunSettings } from '../../src/train/run/run-settings.ts';
import type { SavedState } from '../../src/train/run/saved-state.ts';
import { at } from '../../src/util/at.ts';
import { finishing } from '../../src/util/errors.ts';
import { chooseVariants } from '../choose-variants.ts';
import { asEarlierVersion } from '../earlier-checkpoint.ts';
import { testDevice } from '../harness.ts';
import { ADAPTER, EVERY_CASE, THOROUGH, testHost } from '../host.ts';
import { MemoryFiles, memoryClaims } from '../memory-files.ts';
import { sharedGPUSources } from '../shared-gpu.ts';

chooseVariants(10);

const TEXT = 'the quick brown fox jumps over the lazy dog, and then the dog sleeps on; '.repeat(40);
const files = new MemoryFiles({ 'there.txt': TEXT, 'here.txt': TEXT, 'other.txt': `${TEXT}.` });
// A cache that cannot be written, so that the choices of these runs meet no other.
const host = { ...testHost, ...memoryClaims, files, gpuSources: sharedGPUSources, cacheFolder: '/dev/null/none' };

const settings: RunSettings = {
  config: parseConfig(
    { model_type: 'gpt2', vocab_size: 256, n_positions: 12, n_embd: 24, n_layer: 1, n_head: 3 },
    'test',
  ),
  ...{ data: ['there.txt'], batch: 3, seq: 12, accumulate: 2, steps: 8, lr: 3e-3, minLr: 1e-4, schedule: 'cosine' },
  ...{ warmup: 2, clip: 1, weightDecay: 0.1, seed: 5, evalEvery: 0, sampleEvery: 0, saveEvery: 0 },
  ...{ evalWindows: 2, sampleTokens: 0 },
};

interface Printed {
  case: string;
  metrics: Record<string, { value: number; tolerance: number; multiple: number }>;
  worst: number;
  pass: boolean;
  sameBits: boolean;
}

async function parity(...args: string[]): Promise<{ results: Printed[]; status: number | undefined; out: string }> {
  const out: string[] = [];
  const statuses: number[] = [];
  const terminal = { ...host.terminal, write: (text: string) => void out.push(text) };
  const command = parityCommand({ ...host, terminal }, (status) => void statuses.push(status));
  await command.parseAsync([...args, '--adapter', ADAPTER], { from: 'user' });
  const text = out.join('');
  const lines = args.includes('--json') ? text.trim().split('\n') : [];
  return { results: lines.map((line) => JSON.parse(line)), status: statuses[0], out: text };
}

/** What the command finds of a run, on the device that is open: its pipelines are compiled once. */
async function replayed(path: string, sources?: RunSources): Promise<RunVerdict> {
  const run = await loadRun(host, path, sources);
  return finishing(
    async () => replayRun(await testDevice(), run),
    () => run.release(),
  );
}

const checkpoint = async (run: string) => (await checkpointsOf(files, run)).at(-1)?.path as string;

/** The run's checkpoint under another name, after `change`. */
async function altered(run: string, to: string, change: (state: SavedState) => void): Promise<string> {
  const from = await checkpoint(run);
  // Without its checksums: what is altered is to be read.
  for (const name of (await files.list(from)).filter((name) => name !== 'SHA256SUMS'))
    await files.writeAtomic(join(to, name), await files.read(join(from, name)));
  const path = join(to, 'holdfast_state.json');
  const state = JSON.parse(new TextDecoder().decode(await files.read(path)));
  change(state);
  await files.writeAtomic(path, JSON.stringify(state));
  return to;
}

beforeAll(async () => {
  const device = await testDevice();
  await trainRun(host, device, settings, 'run');
  // Stopped, and given more steps: another schedule from there on.
  await trainRun(host, device, settings, 'longer', { until: 5 });
  await trainRun(host, device, { ...settings, steps: 9 }, 'longer', { resume: true });
  // From weights, on a task.
  const { data: _, ...rest } = settings;
  await trainRun(host, device, { ...rest, data: [], task: 'sorting', from: 'run', steps: 3, seq: 11 }, 'tuned');
});

test('a checkpoint of an earlier version, whose states are in one file, has the same bits', async () => {
  const path = await altered('run', 'early/checkpoint-8', () => {});
  await asEarlierVersion(files, path);
  const { results, status } = await parity('early', '--json');
  expect(status).toBe(0);
  expect(results).toMatchObject([{ pass: true, worst: 0, sameBits: true }]);
});

// What a replay finds is the engine's; Deno shows that it finds it.
describe('has the same bits', () => {
  test('as a folder, a checkpoint, a zip, within a budget, as a part', async () => {
    const path = await checkpoint('run');
    const names = await files.list(path);
    const inside = await Promise.all(names.map(async (name) => [name, await files.read(join(path, name))]));
    await files.writeAtomic('run.zip', zipSync(Object.fromEntries(inside)));
    const budget = ['--gpu-memory', '240KB', '--host-memory', '100MB'];
    const part = ['--steps', '3'];
    for (const args of [
      ['run.zip', ...budget],
      ...(THOROUGH ? [['run', ...part]] : []),
      ...(EVERY_CASE ? [[path]] : []),
    ]) {
      const { results, status } = await parity(...args, '--json');
      expect(results, args.join(' ')).toHaveLength(1);
      expect(results[0], args.join(' ')).toMatchObject({ pass: true, worst: 0, sameBits: true });
      expect(Object.keys(results[0]?.metrics ?? {})).toEqual([
        ...['lr', 'loss_step0', 'loss', 'grad_norm_rel'],
        ...(args.includes('--steps') ? [] : ['final_update_rel_fro', 'final_max_abs']),
      ]);
      expect(status).toBe(0);
    }
  });

  test.runIf(THOROUGH)('after it was given more steps; from weights, on a task', async () => {
    for (const name of ['longer', 'tuned']) {
      expect(await replayed(name)).toMatchObject({ name, worst: 0, sameBits: true, unchecked: [] });
    }
  });

  test.runIf(THOROUGH)('with its text and its weights elsewhere', async () => {
    const moved = await altered('run', 'moved', (state) => {
      state.settings.data = ['gone.txt'];
    });
    await expect(parity(moved)).rejects.toThrow(
      'moved: was trained on gone.txt, which is not here; give its text with',
    );
    await expect(parity(moved, '--data', 'other.txt')).rejects.toThrow(/moved: trained on a corpus of 2920 bytes/);
    expect((await parity(moved, '--data', 'here.txt')).out).toMatch(
      /moved: pass, worst 0\.000 tolerances, 8 steps, the same bits/,
    );
    const orphan = await altered('tuned', 'orphan', (state) => {
      state.settings.from = 'gone';
    });
    await expect(parity(orphan)).rejects.toThrow(/orphan: began from the weights in gone, .* name them with --model/);
    expect(await replayed(orphan, { from: 'run' })).toMatchObject({ sameBits: true });
  });
});

test('a run whose checkpoint is removed while another is replayed is replayed as it was, and its files are let go', async () => {
  await altered('run', 'living', () => {});
  const opened: string[] = [];
  const closed: string[] = [];
  const counted = Object.assign(new MemoryFiles(), {
    contents: files.contents,
    open: async (path: string) => {
      const file = await files.open(path);
      opened.push(path);
      return { ...file, close: async () => void closed.push(path) };
    },
  });
  const lines: string[] = [];
  const terminal = {
    ...host.terminal,
    write(text: string) {
      lines.push(text);
      void files.remove('living');
    },
  };
  const command = parityCommand({ ...host, files: counted, terminal }, () => {});
  await command.parseAsync(['run', 'living', '--json', '--adapter', ADAPTER], { from: 'user' });
  expect(lines.map((line) => JSON.parse(line))).toMatchObject([
    { case: 'run', sameBits: true },
    { case: 'living', sameBits: true },
  ]);
  expect(await files.stat('living')).toBeUndefined();
  expect(opened).toContain('living/model.safetensors');
  expect(closed.sort()).toEqual(opened.sort());
});

test.runIf(THOROUGH)('with other kernels it is within what rounding does', async () => {
  const path = await altered('run', 'other kernels', (state) => {
    // Variants of a matmul add in the same order; those of norms and attention do not.
    for (const [key, name] of Object.entries(state.choices)) {
      const others = key.slice(key.lastIndexOf(' ') + 1).split('|');
      if (!key.startsWith('matmul ')) state.choices[key] = others.find((other) => other !== name) ?? name;
    }
  });
  const verdict = await replayed(path);
  expect(verdict).toMatchObject({ pass: true, sameBits: false });
  expect(verdict.worst).toBeGreaterThan(0);
  // The reference cases pass with 1 on software adapters too.
  expect(verdict.worst).toBeLessThanOrEqual(1);
});

/** Of a metric that failed. */
const failures = ({ metrics }: RunVerdict) =>
  [...metrics].filter(([, { multiple }]) => multiple > ALLOWED_MULTIPLE).map(([name]) => name);

test.runIf(THOROUGH).each<[string, (state: SavedState) => void, string[]]>([
  [
    'a loss',
    ({ history }) => {
      at(history.steps, 4).loss += 1e-3;
    },
    ['loss'],
  ],
  [
    'the weight decay',
    ({ settings }) => {
      settings.weightDecay = 1;
    },
    ['loss', 'grad_norm_rel', 'final_update_rel_fro', 'final_max_abs'],
  ],
  [
    'the learning rate',
    ({ settings }) => {
      settings.lr *= 1.01;
    },
    ['lr', 'loss', 'grad_norm_rel', 'final_update_rel_fro', 'final_max_abs'],
  ],
  [
    'the seed',
    ({ settings }) => {
      settings.seed++;
    },
    ['loss_step0', 'loss', 'grad_norm_rel', 'final_update_rel_fro', 'final_max_abs'],
  ],
])('a record with another value of %s fails', async (_name, change, expected) => {
  const verdict = await replayed(await altered('run', 'altered', change));
  expect(verdict).toMatchObject({ pass: false, sameBits: false });
  expect(failures(verdict)).toEqual(expected);
});

test('other weights fail', async () => {
  const path = await altered('run', 'other weights', () => {});
  const model = await files.read(join(path, 'model.safetensors'));
  // The last element, moved by some thousandth.
  const view = new DataView(model.buffer);
  view.setFloat32(model.length - 4, view.getFloat32(model.length - 4, true) + 1e-3, true);
  await files.writeAtomic(join(path, 'model.safetensors'), model);
  const { out, status } = await parity(path);
  expect(status).toBe(1);
  expect(out).toMatch(/other weights: FAIL, worst .* tolerances, 8 steps\n/);
  expect(out).toMatch(/^. final_max_abs +1\.0e-3 .* ln_f\.bias$/m);
});

test('what has no record from the first step is refused, and flags that are for runs', async () => {
  const path = await altered('run', 'half', ({ history }) => {
    history.steps.splice(0, 3);
  });
  await expect(parity(path)).rejects.toThrow(/half: its record has 5 of 8 steps; only a run .* from its first step/);
  await files.remove(join(path, 'holdfast_state.json'));
  await expect(parity(path)).rejects.toThrow(
    /half\/trainer_state\.json: has no state of a run, nor is there a holdfast_state\.json beside it/,
  );
  await files.remove(join(path, 'trainer_state.json'));
  await expect(parity(path)).rejects.toThrow(/half is a model, and no case or run: nothing is recorded of it/);
  await files.remove(join(path, 'model.safetensors'));
  await expect(parity(path)).rejects.toThrow(/half\/ref\.json is missing/);
  await expect(parity('here.txt')).rejects.toThrow(/here\.txt is a file; name the folder of a case or run, or its zip/);
});
