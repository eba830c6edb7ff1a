// Readers of a run that goes on: whatever its saves replace meanwhile, one whole checkpoint is read, or the error says
// that it has gone.

import { mkdtempSync, rmSync } from 'node:fs';
import os from 'node:os';
import path from 'node:path';
import { expect, test } from 'vitest';
import { findChatTemplate } from '../../src/data/records/find-template.ts';
import { besideAdapter } from '../../src/formats/checkpoint/load.ts';
import {
  holdCheckpoint,
  loadAdapter,
  loadCheckpoint,
  loadPreparation,
  loadWeights,
  saveCheckpoint,
  withWeights,
} from '../../src/formats/checkpoint.ts';
import { exportModel, MAX_SHARD_BYTES } from '../../src/formats/export.ts';
import { type ImagePreparation, preparationIn } from '../../src/formats/preprocessor.ts';
import type { TokenizerFiles } from '../../src/formats/tokenizer-files.ts';
import { makeModel } from '../../src/nn/index.ts';
import { withLora } from '../../src/nn/lora.ts';
import { headlessHost } from '../../src/runtime/headless.ts';
import type { Files } from '../../src/runtime/host.ts';
import { withModel } from '../../src/train/run/open-model.ts';
import { defaultSettings } from '../../src/train/run/run-settings.ts';
import { startWeights } from '../../src/train/run/start-weights.ts';
import { at } from '../../src/util/at.ts';
import { collect, restricted, sourceOf, type TensorSource } from '../../src/values/tensor-source.ts';
import { entry } from '../entry.ts';
import { EVERY_CASE, THOROUGH } from '../host.ts';
import { MemoryFiles, memoryHost } from '../memory-files.ts';
import { config, stepOf, tinyCheckpoint, vitCheckpoint } from './checkpoints.ts';

const save = (files: Files, step: number) => saveCheckpoint(files, 'run', step, tinyCheckpoint(step));

const valuesIn = async (source: TensorSource): Promise<number[]> => [...entry(await collect(source), 'ln_f.bias')];

/** The step whose weights these are: all of one. */
function stepOfWeights(values: readonly number[]): number {
  expect(new Set(values).size).toBe(1);
  return at(values, 0) / 10;
}

const READS = ['read', 'readRange', 'stat', 'list', 'open'] as const;

/** The same files; before its `at`th look at them, `meanwhile` happens. */
function interrupted(files: MemoryFiles, at: number, meanwhile: () => Promise<void>): MemoryFiles & { looks: number } {
  const reader = Object.assign(Object.create(files) as MemoryFiles, { looks: 0 });
  for (const name of READS) {
    const look = files[name].bind(files) as (...args: unknown[]) => Promise<unknown>;
    Object.assign(reader, {
      [name]: async (...args: unknown[]) => {
        if (++reader.looks === at) await meanwhile();
        return look(...args);
      },
    });
  }
  return reader;
}

const base = makeModel(config);
const adapted = withLora(base, { rank: 2, targets: ['c_attn'] });
const [info] = adapted.adapters ?? [];
const ofAdapter = new Set(info?.linears.flatMap(({ a, b }) => [a, b]));
const shapes = new Map(adapted.parameters.map(({ name, shape }) => [name, shape]));

/** Values of so many parameters, all of them of this step. */
const allOf = (isIn: (name: string) => boolean, step: number): TensorSource =>
  sourceOf(
    new Map(
      [...shapes].flatMap(([name, shape]) =>
        isIn(name) ? [[name, new Float32Array(shape.reduce((a, b) => a * b, 1)).fill(10 * step)]] : [],
      ),
    ),
  );

function saveOf(files: Files, run: string, step: number, isIn: (name: string) => boolean, more: object = {}) {
  const own = allOf(isIn, step);
  const state = { format: 'holdfast 1', step };
  return saveCheckpoint(files, run, step, { config, weights: own, moment1: own, moment2: own, shapes, state, ...more });
}

/** Of a run that trains an adapter, whose base changes its name with each step. */
const saveAdapter = (files: Files, step: number) =>
  saveOf(files, 'run', step, (name) => ofAdapter.has(name), info && { adapter: { info, base: String(step) } });

/** Of one that trains the whole model. */
const saveBase = (files: Files, step: number, run = 'run') => saveOf(files, run, step, (name) => !ofAdapter.has(name));

const allValues = async (source: TensorSource, isIn: (name: string) => boolean): Promise<number[]> =>
  [...(await collect(restricted(source, isIn))).values()].flatMap((values) => [...values]);

const saveImages = (files: Files, step: number) => saveCheckpoint(files, 'run', step, vitCheckpoint(step));

/** That of a model whose template and first token say its step. */
const templateOf = (step: number): TokenizerFiles => ({
  ...{ path: 'made', sha256: '' },
  contents: new Map([
    ['chat_template.jinja', new TextEncoder().encode(String(step))],
    ['tokenizer_config.json', new TextEncoder().encode(JSON.stringify({ bos_token: String(step) }))],
  ]),
});

/** Of those that have a mean. */
const stepOfImages = (images: ImagePreparation | undefined): number => at(images?.pixels?.mean ?? [], 0);

/** Readers of what else a checkpoint holds than its model, and how its run saves. */
const otherReaders = {
  'loadAdapter and read': {
    save: saveAdapter,
    read: async (files: Files) => {
      const { weights, base } = await loadAdapter(files, 'run', config);
      const step = stepOfWeights(await allValues(weights, () => true));
      expect(base).toBe(String(step));
      return step;
    },
  },
  besideAdapter: {
    save: saveAdapter,
    read: async (files: Files) => Number((await besideAdapter(files, 'run'))?.base),
  },
  loadPreparation: {
    save: saveImages,
    read: async (files: Files) => stepOfImages(await loadPreparation(files, 'run', vitCheckpoint(1).config)),
  },
  findChatTemplate: {
    save: (files: Files, step: number) =>
      saveCheckpoint(files, 'run', step, { ...tinyCheckpoint(step), tokenizer: templateOf(step) }),
    read: async (files: Files) => {
      const found = await findChatTemplate(files, { model: 'run', date: '2026-01-02' });
      expect(found?.bos).toBe(found?.text);
      return Number(found?.text);
    },
  },
  'withWeights and what is found': {
    save: saveImages,
    read: (files: Files) =>
      withWeights(files, 'run', async ({ config, weights }, found) => {
        const step = stepOfImages(await preparationIn(found.files, found.folder, config));
        expect(new Set(await allValues(weights, () => true))).toEqual(new Set([step]));
        return step;
      }),
  },
  'startWeights and read': {
    save: saveBase,
    read: async (files: Files) => {
      const settings = { ...defaultSettings(), config, from: 'run' };
      const { weights, release } = await startWeights(memoryHost(files), settings, base);
      const step = stepOfWeights(await allValues(weights, (name) => !/lora/.test(name)));
      await release();
      return step;
    },
  },
  'withModel of an adapter': {
    save: saveAdapter,
    read: (files: Files) =>
      withModel(files, 'run', { base: 'still' }, async ({ weights }) =>
        stepOfWeights(await allValues(weights, (name) => /lora/.test(name))),
      ),
  },
  'withModel of its base': {
    save: saveBase,
    read: (files: Files) =>
      withModel(files, 'run', { adapters: { default: 'lora/checkpoint-1' } }, async ({ model, weights }) => {
        expect(model.adapters).toHaveLength(1);
        return stepOfWeights(await allValues(weights, (name) => !/lora/.test(name)));
      }),
  },
};

const readers = {
  withWeights: (files: Files) => withWeights(files, 'run', ({ weights }) => valuesIn(weights)).then(stepOfWeights),
  'loadWeights and read': async (files: Files) =>
    stepOfWeights(await valuesIn((await loadWeights(files, 'run')).weights)),
  loadCheckpoint: async (files: Files) => stepOf(await loadCheckpoint(files, 'run')),
  'holdCheckpoint and read': async (files: Files) => {
    const held = await holdCheckpoint(files, 'run');
    expect(stepOfWeights(await valuesIn(held.weights))).toBe(stepOf(held));
    await held.release();
    return stepOf(held);
  },
};

/** What a run does between two looks of a reader. */
const saves = Object.entries({
  'one save': [3],
  'two saves': [3, 4],
  'six saves': [3, 4, 5, 6, 7, 8],
  'the same step again': [2],
  'the same step twice, and one more': [2, 2, 3],
});

// Files in memory are the same everywhere.
test
  .runIf(THOROUGH)
  .each(Object.entries(readers).flatMap(([name, read]) => saves.map(([what, steps]) => ({ name, read, what, steps }))))(
  '$name, with $what at any moment',
  async ({ name, read, steps }) => {
    for (let look = 1; ; look += EVERY_CASE ? 1 : 5) {
      const files = new MemoryFiles();
      await save(files, 1);
      await save(files, 2);
      const reader = interrupted(files, look, async () => {
        for (const step of steps) await save(files, step);
      });
      const found = await read(reader).catch((error) => {
        // Sources that are read later, file by file: two saves take their checkpoint away, and they say so.
        expect(name).toBe('loadWeights and read');
        expect(steps.length).toBeGreaterThan(1);
        expect(error.message).toMatch(/^run\/checkpoint-2: was removed while it was read/);
        return 2;
      });
      expect([2, steps.at(-1)]).toContain(found);
      if (reader.looks < look) return expect(look).toBeGreaterThan(10);
    }
  },
);

test.runIf(THOROUGH).each(
  Object.entries(otherReaders).flatMap(([name, reader]) =>
    saves
      // A model is opened in many looks.
      .filter(([what]) => EVERY_CASE || what === 'two saves' || !name.startsWith('withModel'))
      .map(([what, steps]) => ({ name, reader, what, steps })),
  ),
)('$name, with $what at any moment', async ({ reader: { save, read }, steps }) => {
  for (let look = 1; ; look += EVERY_CASE ? 1 : 7) {
    const files = new MemoryFiles();
    await saveBase(files, 1, 'still');
    await saveAdapter(files, 1);
    await files.rename('run', 'lora');
    await save(files, 1);
    await save(files, 2);
    const reader = interrupted(files, look, async () => {
      for (const step of steps) await save(files, step);
    });
    expect([2, steps.at(-1)]).toContain(await read(reader));
    if (reader.looks < look) return expect(look).toBeGreaterThan(10);
  }
});

test('a model is exported as it was opened, whatever its run saves meanwhile', async () => {
  const files = new MemoryFiles();
  await saveImages(files, 1);
  const written = await files.read('run/checkpoint-1/preprocessor_config.json');
  await withWeights(files, 'run', async (weights, found) => {
    for (const step of [2, 3, 4]) await saveImages(files, step);
    expect(await files.stat(found.folder)).toBeUndefined();
    await exportModel(files, 'out', { weights, ...found }, { dtype: 'f32', maxShardBytes: MAX_SHARD_BYTES });
  });
  expect(await files.read('out/preprocessor_config.json')).toEqual(written);
});

test('weights that are read after the function they were lent to say what they were lent for', async () => {
  const files = new MemoryFiles({});
  await save(files, 2);
  const weights = await withWeights(files, 'run', async (opened) => opened.weights);
  await expect(valuesIn(weights)).rejects.toThrow(
    'cannot read run/checkpoint-2/model.safetensors: it was open until the function that it was lent to was over (withModel); read in that',
  );
});

test('files that cannot be closed: each is closed, and the first error is the one that is told', async () => {
  const files = new MemoryFiles();
  await save(files, 1);
  let open = 0;
  const stuck = Object.assign(new MemoryFiles(), {
    contents: files.contents,
    open: async (path: string) => {
      const file = await files.open(path);
      const number = ++open;
      const close = async () => {
        open--;
        throw new Error(`file ${number} cannot be closed`);
      };
      return { ...file, close };
    },
  });
  await expect(withWeights(stuck, 'run', async () => 1)).rejects.toThrow('file 1 cannot be closed');
  expect(open).toBe(0);
  const failing = withWeights(stuck, 'run', () => Promise.reject(new Error('the use failed')));
  await expect(failing).rejects.toThrow('the use failed');
  await stuck.writeAtomic('run/checkpoint-1/config.json', '{');
  await expect(withWeights(stuck, 'run', async () => 1)).rejects.toThrow('config.json: its SHA-256');
  expect(open).toBe(0);
});

test('a reader in a loop beside a run that saves every step, on a disk', async () => {
  const folder = mkdtempSync(path.join(os.tmpdir(), 'holdfast-living-'));
  const { files } = headlessHost();
  const run = path.join(folder, 'run');
  let step = 1;
  let over = false;
  try {
    await saveCheckpoint(files, run, step, tinyCheckpoint(step));
    const writer = (async () => {
      while (!over) await saveCheckpoint(files, run, step + 1, tinyCheckpoint(++step));
    })();
    writer.catch(() => {});
    const seen = new Set<number>();
    for (let i = 0; i < 40; i++) {
      const newest = step - 1;
      const found = await withWeights(files, run, async ({ weights }) => {
        // Meanwhile its run saves twice and more.
        for (const now = step; step < now + 3 && i % 4 === 0; ) await new Promise(setImmediate);
        return stepOfWeights(await valuesIn(weights));
      });
      expect(found).toBeGreaterThanOrEqual(newest);
      expect(stepOf(await loadCheckpoint(files, run))).toBeGreaterThanOrEqual(found);
      seen.add(found);
    }
    over = true;
    await writer;
    expect(seen.size).toBeGreaterThan(5);
  } finally {
    over = true;
    rmSync(folder, { recursive: true, force: true });
  }
});

test('a reader of a checkpoint whose run is removed names it', async () => {
  const files = new MemoryFiles();
  await save(files, 1);
  const { weights } = await loadWeights(files, 'run');
  await files.remove('run');
  await expect(valuesIn(weights)).rejects.toThrow('run/checkpoint-1: was removed while it was read');
  expect(await files.stat('run')).toBeUndefined();
});
