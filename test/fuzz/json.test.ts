// Files, caches and records of ours, changed at random: each is accepted and means what it says, or is refused by a
// HoldfastError in one line; a cache is ignored. No other error, no endless work, no memory to speak of. No device.

import { describe, expect, test } from 'vitest';
import { importCheckpoint } from '../../src/browser/import.ts';
import { readRecord } from '../../src/browser/record.ts';
import { ByteTokenizer } from '../../src/data/tokenizer.ts';
import { loadChoices, saveChoices } from '../../src/engine/compile/choices.ts';
import { fitMemory } from '../../src/engine/compile/fit.ts';
import { smallestBudget } from '../../src/engine/compile/least.ts';
import { keptAdapter, limitsIn } from '../../src/engine/observe/adapter-records.ts';
import { checkWeights, loadCheckpoint, loadWeights } from '../../src/formats/checkpoint.ts';
import { FAMILIES, FAMILY_NAMES } from '../../src/formats/families/index.ts';
import { configOfShape } from '../../src/formats/shape.ts';
import type { Device } from '../../src/gpu/device.ts';
import KERNELS from '../../src/kernels/kernel.ts?digest';
import { makeModel } from '../../src/nn/index.ts';
import { loadRun } from '../../src/parity/replay-run.ts';
import { runReport } from '../../src/report/run-report.ts';
import { checkSettings } from '../../src/train/run/check-settings.ts';
import { trainerOptions } from '../../src/train/run/run-settings.ts';
import { checkText, datasetOf, readText } from '../../src/train/run/run-text.ts';
import { savedSettings, stateOf, withSettings } from '../../src/train/run/saved-state.ts';
import { traceStep } from '../../src/train/step/step-programs.ts';
import { trainingWorkload } from '../../src/train/step/training-workload.ts';
import { Random } from '../../src/util/random.ts';
import { asEarlierVersion } from '../earlier-checkpoint.ts';
import { fileOf, floats, type Stored } from '../formats/raw-tensors.ts';
import { EVERY_CASE } from '../host.ts';
import { MemoryFiles, memoryHost } from '../memory-files.ts';
import { CHECKPOINT, LLAMA_SETTINGS, RUN, SETTINGS, savedRun } from '../saved-run.ts';
import { mutate } from './json.ts';
import { tryAll as tryMutants } from './try-all.ts';

const COUNT = EVERY_CASE ? 100_000 : 500;
/** Of the other families. */
const FEWER = EVERY_CASE ? 10_000 : 30;

const tryAll = (
  what: string,
  value: unknown,
  use: (bytes: Uint8Array<ArrayBuffer>) => Promise<void>,
  count = COUNT,
): Promise<number> => tryMutants(what, count, (seed) => mutate(value, seed), use);

/** Whether all of `found` is in `given`, as JSON says it: fields that are not known are left out. */
function says(given: unknown, found: unknown): boolean {
  if (typeof found === 'number')
    return (
      Object.is(given, found) ||
      (given === 0 && found === 0) ||
      (!Number.isFinite(given ?? Number.NaN) && Number.isNaN(found))
    );
  if (typeof found !== 'object' || found === null) return given === found;
  if (typeof given !== 'object' || given === null || Array.isArray(given) !== Array.isArray(found)) return false;
  if (Array.isArray(found) && (given as unknown[]).length !== found.length) return false;
  return Object.entries(found).every(
    ([key, value]) => Object.hasOwn(given, key) && says((given as Record<string, unknown>)[key], value),
  );
}

const json = (bytes: Uint8Array): unknown => JSON.parse(new TextDecoder().decode(bytes));

test.each([
  ['holdfast_state.json', 'GPT-2', SETTINGS],
  ['holdfast_state.json', 'Llama', LLAMA_SETTINGS],
  // Of an earlier version.
  ['trainer_state.json', 'GPT-2', SETTINGS],
] as const)('%s of a %s: resumed, reported, forked, imported, replayed, short of training', async (name, _, run) => {
  const { files, state } = await savedRun(run);
  if (name === 'trainer_state.json') await asEarlierVersion(files, CHECKPOINT);
  const host = memoryHost(files);
  const path = `${CHECKPOINT}/${name}`;
  let tries = 0;
  const use = async (bytes: Uint8Array<ArrayBuffer>) => {
    files.contents.set(path, bytes);
    const checkpoint = await loadCheckpoint(files, RUN);
    const found = stateOf(checkpoint);
    // It means what it says; the configuration has its defaults filled in, and is the file's beside it.
    const { settings, earlier, ...rest } = found;
    const given = json(bytes) as typeof state;
    expect(says(given, rest)).toBe(true);
    for (const [i, one] of [...(earlier ?? []).map(({ settings }) => settings), settings].entries()) {
      const { config, ...others } = one;
      expect(config).toEqual(checkpoint.config);
      expect(says((given.earlier ?? [])[i]?.settings ?? given.settings, others)).toBe(true);
    }
    // Resumed.
    expect(await savedSettings(host, RUN)).toEqual(settings);
    checkSettings(settings);
    const text = await readText(host, { ...settings, data: ['text.txt'] }, new ByteTokenizer());
    await checkText({ identity: found.corpus }, found.corpus, RUN);
    const batches = await datasetOf(settings, text);
    checkWeights(checkpoint.shapes, makeModel(settings.config).parameters, RUN);
    batches.restore(found.batches);
    new Random(settings.seed, 'samples').restore(found.sampling);
    trainerOptions(settings);
    // Reported, and forked.
    const page = await runReport(host, found);
    expect(page).not.toContain('<img src=x');
    const fork = withSettings(found, { ...settings, lr: settings.lr / 2 });
    expect(stateOf({ ...checkpoint, state: JSON.parse(JSON.stringify(fork)) })).toEqual(fork);
    // Imported.
    if (tries++ % 8 > 0) return;
    const chosen = await Promise.all(
      (await files.list(CHECKPOINT)).map(async (name) => {
        const content = await files.read(`${CHECKPOINT}/${name}`);
        return { name, bytes: content.length, open: () => new Blob([content]).stream() };
      }),
    );
    const into = new MemoryFiles();
    expect(await importCheckpoint(memoryHost(into), 'imported', { files: chosen })).toMatchObject({
      savedStep: found.trainer.step,
      settings,
    });
    // Replayed: the text may be another's now.
    await loadRun(host, RUN);
  };
  const accepted = await tryAll('state', state, use);
  expect(accepted).toBeGreaterThan(COUNT / 50);
  expect(accepted).toBeLessThan(COUNT / 2);
});

const SMALL_SHAPE = {
  layers: 1,
  width: 8,
  heads: 2,
  context: 4,
  images: { image: 4, patch: 2, channels: 1, classes: 2 },
};

describe('config.json', () => {
  const LLAMA = {
    model_type: 'llama',
    vocab_size: 256,
    hidden_size: 8,
    intermediate_size: 16,
    num_hidden_layers: 2,
    num_attention_heads: 2,
    num_key_value_heads: 1,
    max_position_embeddings: 16,
    rope_theta: 10000,
    rms_norm_eps: 1e-5,
    tie_word_embeddings: true,
    head_dim: 4,
  };
  test.each([
    ['gpt2', SETTINGS.config],
    ['llama', LLAMA],
  ])('%s', async (name, config) => {
    const { files } = await savedRun();
    await tryAll(name, config, async (bytes) => {
      files.contents.set(`${CHECKPOINT}/config.json`, bytes);
      const loaded = await loadWeights(files, RUN);
      const { parameters } = makeModel(loaded.config);
      checkWeights(loaded.shapes, parameters, RUN);
    });
  });

  // Its weights are there with it: what is accepted is the model of its own configuration, however it is said.
  test.each(FAMILY_NAMES.filter((family) => family !== 'gpt2' && family !== 'llama'))('%s', async (family) => {
    const config = configOfShape({ family, ...SMALL_SHAPE, ...(!FAMILIES[family].images && { vocabulary: 5 }) });
    const shapes = new Map(makeModel(config).parameters.map(({ name, shape }) => [name, shape]));
    const tensors = Array.from(shapes, ([name, shape]): [string, Stored] => [
      name,
      floats(shape, new Float32Array(shape.reduce((a, b) => a * b, 1))),
    ]);
    const files = new MemoryFiles({ 'm/model.safetensors': fileOf(new Map(tensors)) });
    const use = async (bytes: Uint8Array<ArrayBuffer>) => {
      files.contents.set('m/config.json', bytes);
      const loaded = await loadWeights(files, 'm');
      checkWeights(loaded.shapes, makeModel(loaded.config).parameters, 'm');
    };
    const accepted = await tryAll(family, config, use, FEWER);
    expect(accepted).toBeGreaterThan(FEWER / 50);
    expect(accepted).toBeLessThan(FEWER);
  });
});

test('the cache of kernel choices: taken or ignored, never an error, and whole again once written', async () => {
  const { files, state } = await savedRun();
  const host = memoryHost(files, { cacheFolder: 'cache' });
  const device = { adapter: { name: 'an adapter' }, check() {} } as unknown as Device;
  const cache = {
    'memory | an adapter': { kernels: KERNELS, choices: state.choices },
    'memory | another': { kernels: 'others', choices: { 'matmul a|b': 'b' } },
  };
  const accepted = await tryAll('choices', cache, async (bytes) => {
    files.contents.set('cache/kernel-choices.json', bytes);
    const found = await loadChoices(host, device);
    expect(Object.values(found).every((name) => typeof name === 'string')).toBe(true);
    await saveChoices(host, device, { 'add a|b': 'a' });
    expect(await loadChoices(host, device)).toEqual({ ...found, 'add a|b': 'a' });
  });
  expect(accepted).toBe(COUNT);
});

test('the records of adapters: taken or ignored, never an error, and what is planned by them is a plan', async () => {
  const files = new MemoryFiles();
  const host = memoryHost(files, { cacheFolder: 'cache' });
  const rates = {
    flops: 2e13,
    upBytes: 1e10,
    downBytes: 9e9,
    launchSeconds: 4e-6,
    memoryBytes: 1e12,
    copies: 'serial',
  };
  const adapter = { name: 'an adapter', software: false, binding: 2 ** 31 - 4, buffer: 2 ** 32, rates };
  const records = { adapters: { 'memory | an adapter': adapter }, chosen: { memory: 'memory | an adapter' } };
  const model = makeModel(SETTINGS.config);
  const workload = trainingWorkload(model, traceStep(model, 2, 8), 1);
  let found = 0;
  const accepted = await tryAll('adapters', records, async (bytes) => {
    files.contents.set('cache/adapters.json', bytes);
    const adapter = await keptAdapter(host);
    if (!adapter) return;
    found++;
    const limits = limitsIn(adapter);
    const least = smallestBudget(workload, limits);
    expect(fitMemory(workload, limits, 2 * least).peak).toBeLessThanOrEqual(2 * least);
  });
  expect(accepted).toBe(COUNT);
  expect(found).toBeGreaterThan(COUNT / 50);
  for (const memory of ['constructor', '__proto__']) {
    const named = JSON.stringify({ ...records, chosen: { memory } });
    files.contents.set('cache/adapters.json', new TextEncoder().encode(named));
    expect(await keptAdapter(host)).toBeUndefined();
  }
});

test('a record of the list of runs: whole or damaged, and always there to be shown and removed', async () => {
  const record = {
    ...{
      id: 'a1b2c3d4',
      name: 'GPT-2 1 × 4',
      created: 1.7e12,
      settings: SETTINGS,
      memory: { gpu: 1e6, policy: 'LRU' },
    },
    ...{ status: 'finished', savedStep: 12, loss: 4.2, forkedFrom: { id: 'b', name: 'another', step: 3 } },
  };
  let damaged = 0;
  const accepted = await tryAll('record', record, async (bytes) => {
    let value: unknown;
    try {
      value = json(bytes);
    } catch {
      return;
    }
    const found = readRecord('a1b2c3d4', value);
    expect(found).toMatchObject({
      id: 'a1b2c3d4',
      name: expect.any(String),
      created: expect.any(Number),
      savedStep: expect.any(Number),
    });
    if (found.status === 'damaged') {
      damaged++;
      expect(found.error).toBeTypeOf('string');
      return;
    }
    const { settings, ...rest } = found;
    expect(says(value, rest)).toBe(true);
    if (settings) checkSettings(settings);
  });
  expect(damaged).toBeGreaterThan(COUNT / 10);
  expect(accepted).toBeGreaterThan(COUNT * 0.9);
});
