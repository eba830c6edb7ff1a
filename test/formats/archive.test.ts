// A zip as a folder: what is in it is what was put into it, or an error that says what is wrong.

import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import os from 'node:os';
import path from 'node:path';
import fc from 'fast-check';
import { zipSync } from 'fflate';
import { describe, expect, test } from 'vitest';
import { filesIn, importCheckpoint } from '../../src/browser/import.ts';
import { importModel, openModel } from '../../src/browser/models.ts';
import { openZip } from '../../src/formats/archive.ts';
import { sourceAt } from '../../src/formats/byte-source.ts';
import { findModel, loadCheckpoint, loadWeights, saveCheckpoint } from '../../src/formats/checkpoint.ts';
import { parseConfig } from '../../src/formats/config.ts';
import { makeModel } from '../../src/nn/index.ts';
import { initialWeights } from '../../src/nn/initialise.ts';
import { headlessHost } from '../../src/runtime/headless.ts';
import { HoldfastError, messageOf } from '../../src/util/errors.ts';
import { collect } from '../../src/values/tensor-source.ts';
import { field } from '../entry.ts';
import { MemoryFiles, memoryHost } from '../memory-files.ts';
import { CHECKPOINT, changedRun, STEPS } from '../saved-run.ts';
import { floats, type Stored, shardedFolder } from './raw-tensors.ts';
import { deflated, rawZip } from './raw-zip.ts';

const config = parseConfig(
  { model_type: 'gpt2', vocab_size: 5, n_positions: 3, n_embd: 4, n_layer: 1, n_head: 2 },
  'test',
);
const model = makeModel(config);
const weights = initialWeights(model, 1);
const shapes = new Map(model.parameters.map(({ name, shape }) => [name, shape]));
const files = new MemoryFiles();
await saveCheckpoint(files, 'run', 2, { config, weights, shapes, moment1: weights, moment2: weights, state: {} });
const names = (await files.list('run/checkpoint-2')).filter((name) => !/optimizer|SHA256SUMS/.test(name));
const folder = Object.fromEntries(
  await Promise.all(names.map(async (name) => [name, await files.read(`run/checkpoint-2/${name}`)] as const)),
);
const expected = await collect(weights);

/** The weights in a zip of these bytes; what an error says. */
async function load(bytes: Uint8Array): Promise<unknown> {
  try {
    return await collect((await loadWeights(new MemoryFiles({ 'a/my.zip': bytes }), 'a/my.zip')).weights);
  } catch (error) {
    if (error instanceof HoldfastError) return error.message;
    throw error;
  }
}

describe.each([
  ['stored', 0],
  ['compressed', 9],
] as const)('%s', (_, level) => {
  const zip = zipSync(folder, { level });
  const nested = zipSync({ 'my run': folder }, { level });

  test('the weights are those of the folder, also where the zip has a folder in it', async () => {
    expect(await load(zip)).toEqual(expected);
    expect(await load(nested)).toEqual(expected);
  });

  test('wherever a byte of it is another, or it ends: the same weights, or an error of one line that names it', async () => {
    const said = new Set<string>();
    for (let at = 0; at < zip.length; at += at < zip.length - 400 ? 11 : 1) {
      const damaged = zip.slice();
      damaged[at]! ^= 0x55;
      for (const found of [await load(damaged), await load(zip.slice(0, at))]) {
        if (typeof found !== 'string') expect(found).toEqual(expected);
        else {
          expect(found).toMatch(/^a\/my\.zip[^\n]*$/);
          said.add(found);
        }
      }
    }
    for (const part of ['is no zip file, or it is cut short', 'its checksum is another', 'its table of contents']) {
      expect(
        [...said].some((message) => message.includes(part)),
        part,
      ).toBe(true);
    }
  });
});

test('a zip without weights says what is missing', async () => {
  const { 'model.safetensors': _, ...rest } = folder;
  expect(await load(zipSync(rest as typeof folder))).toMatch(
    /^a\/my\.zip: there is no model\.safetensors, and no model\.safetensors\.index\.json; name the folder/,
  );
  expect(await load(new Uint8Array())).toMatch(/^a\/my\.zip is no zip file/);
});

// ---- Whose files they are ------------------------------------------------------------------------------------

const others = initialWeights(model, 2);
await saveCheckpoint(files, 'other', 3, {
  config,
  weights: others,
  shapes,
  moment1: others,
  moment2: others,
  state: {},
});
const whole = await filesOf('run/checkpoint-2');
const other = await filesOf('other/checkpoint-3');

/** Without its sums, which are of all its files: parts of it are zipped here. */
async function filesOf(folder: string): Promise<Record<string, Uint8Array<ArrayBuffer>>> {
  const names = (await files.list(folder)).filter((name) => name !== 'SHA256SUMS');
  return Object.fromEntries(
    await Promise.all(names.map(async (name) => [name, await files.read(`${folder}/${name}`)] as const)),
  );
}

const under = (folder: string, content: Record<string, Uint8Array>) =>
  Object.fromEntries(Object.entries(content).map(([name, bytes]) => [folder + name, bytes]));
/** In the order given, compressed, by names as they are. */
const zipOf = (...parts: Record<string, Uint8Array>[]) =>
  rawZip(parts.flatMap((part) => Object.entries(part).map(([name, bytes]) => deflated(name, bytes))));

/** What a person's page stores of a zip. */
async function imported(bytes: Uint8Array): Promise<unknown> {
  const stored = new MemoryFiles();
  try {
    const host = memoryHost(stored);
    await importCheckpoint(host, 'new', await filesIn(host, [new File([Uint8Array.from(bytes)], 'my.zip')]));
    return await collect((await loadWeights(stored, 'new')).weights);
  } catch (error) {
    if (error instanceof HoldfastError) return error.message.replace(/^my/, 'a/my');
    throw error;
  }
}

test('the newest checkpoint of a run is taken', async () => {
  const run = [under('checkpoint-10/', whole), under('checkpoint-9/', other), under('checkpoint-1/', other)];
  expect(await load(zipOf(...run))).toEqual(expected);
});

const { 'holdfast_state.json': _state, 'optimizer.safetensors': _moments, ...model2 } = whole;

describe.each([
  ['loaded', load],
  ['imported by the page', imported],
])('what is taken from a zip, %s', (_, take) => {
  test.each([
    ['its files alone', ''],
    ['a checkpoint', 'checkpoint-2/'],
    ['a run', 'run-1/checkpoint-2/'],
    ['the folder of a run', 'runs/run-1/checkpoint-2/'],
    ['the folder of a model', 'hub/my-model/'],
    ['from Windows, by an old program', 'runs\\run-1\\checkpoint-2\\'],
    ['with needless parts in its names', './runs//run-1/./'],
    ['with names from the root', '/home/me/run-1/'],
  ])('%s', async (_, prefix) => {
    expect(await take(zipOf(under(prefix, model2)))).toEqual(expected);
  });

  test.each([
    ['before', [under('run-1/.checkpoint-3.partial/', other), under('run-1/checkpoint-2/', model2)]],
    ['behind', [under('run-1/checkpoint-2/', model2), under('run-1/.checkpoint-3.partial/', other)]],
    ['as one alone', [under('.checkpoint-3.partial/', other), model2]],
  ])('not what a checkpoint that was cut off has left %s', async (_, parts) => {
    expect(await take(zipOf(...parts))).toEqual(expected);
  });

  test('not what macOS leaves beside', async () => {
    const beside = [under('__MACOSX/run/._', other), { 'run/.DS_Store': new Uint8Array(3) }];
    expect(await take(zipOf(...beside, under('run/', model2)))).toEqual(expected);
  });

  test.each([
    ['two models', [under('a/', model2), under('b/', other)], 'holds 2 models or runs (a, b); zip one of them alone'],
    ['two runs', [under('r/run-1/checkpoint-2/', model2), under('r/run-2/checkpoint-3/', other)], '(r/run-1, r/run-2)'],
    [
      'the parts of two models',
      [{ 'a/config.json': field(whole, 'config.json') }, { 'b/model.safetensors': field(other, 'model.safetensors') }],
      '(a, b)',
    ],
    [
      'weights that belong to nothing beside a model',
      [under('a/', model2), { 'b/model.safetensors': field(other, 'model.safetensors') }],
      '(a, b)',
    ],
    ['one name twice', [model2, other], 'a/my.zip has config.json twice; zip the folder again'],
    [
      'one name in two ways',
      [under('run/', model2), under('./run//', other)],
      'a/my.zip has both run/config.json and ./run//config.json',
    ],
    [
      'one name in two cases',
      [under('run/', model2), under('Run/', other)],
      'a/my.zip has both run/config.json and Run/config.json',
    ],
    ['a name that leads out', [under('a/../', model2)], 'a/my.zip: "a/../config.json" is no name for a file in it'],
    ['a name that leads out backwards', [under('..\\..\\', model2)], 'is no name for a file in it'],
    ['a name of two lines', [under('a\nb/', model2)], 'a/my.zip: "a\\nb/config.json" is no name for a file in it'],
    ['a name without end', [under(`${'a'.repeat(5000)}/`, model2)], `${'a'.repeat(399)} is no name for a file in it`],
    ['folders without end', [under('a/'.repeat(33), model2)], 'is no name for a file in it'],
  ])('%s: refused, and all are named', async (_, parts, message) => {
    expect(await take(zipOf(...parts))).toContain(message);
  });
});

test('moments and state are those beside the weights', async () => {
  const state = { 'holdfast_state.json': new TextEncoder().encode('{"mine": true}') };
  const zip = zipOf(under('run/.checkpoint-3.partial/', other), under('run/checkpoint-2/', { ...whole, ...state }));
  const loaded = await loadCheckpoint(new MemoryFiles({ 'k.zip': zip }), 'k.zip');
  expect(await collect(loaded.moment1)).toEqual(expected);
  expect(loaded.state).toEqual({ mine: true });
});

test('a configuration and the weights beside it, from wherever in the zip they lie', async () => {
  const at = (zip: Uint8Array) => findModel(new MemoryFiles({ 'm.zip': zip }), 'm.zip');
  expect(await at(zipOf(under('hub/m/', model2)))).toEqual({ config, storedAs: 'f32', from: 'm.zip' });
  const { 'model.safetensors': _, ...without } = model2;
  expect(await at(zipOf(under('hub/m/', without)))).toEqual({ config, storedAs: 'f32' });
});

test('two files of one name, chosen by themselves, are refused', async () => {
  const chosen = [whole, other].flatMap((content) =>
    Object.entries(content).map(([name, bytes]) => new File([bytes], name)),
  );
  const host = memoryHost(new MemoryFiles());
  await expect(importCheckpoint(host, 'new', await filesIn(host, chosen))).rejects.toThrow(
    'there are two files config.json',
  );
});

test('a path is written in many ways', async () => {
  const folder = mkdtempSync(path.join(os.tmpdir(), 'holdfast-archive-'));
  try {
    mkdirSync(path.join(folder, 'sub'));
    writeFileSync(path.join(folder, 'sub', 'my.zip'), zipOf(under('run/checkpoint-2/', model2)));
    for (const way of ['sub/my.zip', 'sub//my.zip', './/sub/./my.zip', 'sub/../sub//my.zip']) {
      const { weights } = await loadWeights(headlessHost().files, `${folder}/${way}`);
      expect(await collect(weights), way).toEqual(expected);
    }
  } finally {
    rmSync(folder, { recursive: true });
  }
});

test('the zip of any folder reads as the folder does', async () => {
  const name = fc.stringMatching(/^[a-z0-9_.-]{1,8}$/).filter((part) => !/^\.|partial/.test(part));
  const tree = fc.dictionary(
    fc.array(name, { minLength: 1, maxLength: 4 }).map((parts) => parts.join('/')),
    fc.uint8Array({ maxLength: 40 }),
    { maxKeys: 8, noNullPrototype: true },
  );
  const isFolderToo = (paths: string[]) => paths.some((a) => paths.some((b) => b.startsWith(`${a}/`)));
  const given = tree.filter((files) => !isFolderToo(Object.keys(files)));
  const all = process.env['HOLDFAST_TESTS'] === 'all';
  await fc.assert(
    fc.asyncProperty(given, fc.constantFrom(0 as const, 6 as const), async (content, level) => {
      const folder = new MemoryFiles(under('z/', content));
      const bytes = zipSync(content, { level });
      const zip = await openZip(sourceAt(new MemoryFiles({ z: bytes }), 'z', bytes.length), 'z', () =>
        new MemoryFiles().sha256(),
      );
      const compare = async (path: string): Promise<void> => {
        const stat = await folder.stat(path);
        expect(await zip.stat(path)).toEqual(stat);
        if (stat?.kind === 'folder') {
          const names = await folder.list(path);
          expect(await zip.list(path)).toEqual(names);
          for (const name of names) await compare(`${path}/${name}`);
        } else if (stat) {
          expect(await zip.read(path)).toEqual(await folder.read(path));
          expect(await zip.readRange(path, stat.bytes >> 1, stat.bytes >> 2)).toEqual(
            await folder.readRange(path, stat.bytes >> 1, stat.bytes >> 2),
          );
        }
      };
      if (Object.keys(content).length > 0) await compare('z');
      expect(await zip.stat('z/none/of/them')).toBeUndefined();
    }),
    { seed: 1, numRuns: all ? 3000 : 150 },
  );
});

test('a run whose folder in the zip is of another step than its state is refused, imported as a run or as a model', async () => {
  const saved = await changedRun(({ trainer }) => {
    trainer.step++;
    // Updates.
    trainer.control[7]++;
  });
  const content = new Map([...saved.contents].filter(([path]) => path.startsWith(`${CHECKPOINT}/`)));
  const take = async (folder: string) => {
    const zip = zipSync(
      Object.fromEntries([...content].map(([path, bytes]) => [path.replace(CHECKPOINT, folder), bytes])),
    );
    const file = new File([Uint8Array.from(zip)], 'my.zip');
    const host = memoryHost(new MemoryFiles());
    const asRun = async () => importCheckpoint(host, 'new', await filesIn(host, [file]));
    const asModel = async () => importModel(host, 'model', await openModel(host, [{ path: 'my.zip', file }]));
    return Promise.all([asRun, asModel].map((way) => way().then(({ savedStep }) => savedStep, messageOf)));
  };
  const refused = `my.zip/out/checkpoint-${STEPS}/holdfast_state.json: trainer.step is ${STEPS + 1}; the folder's name says ${STEPS}`;
  expect(await take(`out/checkpoint-${STEPS}`)).toEqual([refused, refused]);
  for (const folder of [`out/checkpoint-${STEPS + 1}`, 'my run'])
    expect(await take(folder)).toEqual([STEPS + 1, STEPS + 1]);
});

describe('a model in shards, chosen by itself', () => {
  const { parameters } = makeModel(config);
  const tensors = parameters.map(({ name, shape }, i): [string, Stored] => [
    name,
    floats(shape, new Float32Array(shape.reduce((a, b) => a * b, 1)).fill(i)),
  ]);
  const model = {
    'm/config.json': JSON.stringify(config),
    'm/tokenizer.json': '{}',
    'm/README.md': 'more',
    ...shardedFolder('m', {
      'a.safetensors': new Map(tensors.slice(0, 3)),
      'b.safetensors': new Map(tensors.slice(3)),
    }),
  };
  const chosen = (paths: readonly string[]) => {
    const { contents } = new MemoryFiles(model);
    return paths.map((at) => new File([contents.get(at) ?? ''], at.slice(2)));
  };

  test('or in a zip is stored as it is, and read', async () => {
    const zip = zipSync(Object.fromEntries(new MemoryFiles(model).contents), { level: 0 });
    for (const files of [chosen(Object.keys(model)), [new File([Uint8Array.from(zip)], 'my.zip')]]) {
      const stored = new MemoryFiles();
      const host = memoryHost(stored);
      expect(await importCheckpoint(host, 'new', await filesIn(host, files))).toEqual({ savedStep: 0 });
      expect(await stored.list('new')).toEqual([
        'a.safetensors',
        'b.safetensors',
        'config.json',
        'model.safetensors.index.json',
        'tokenizer.json',
      ]);
      const { weights } = await loadWeights(stored, 'new');
      const found = await collect(weights);
      for (const [i, { name }] of parameters.entries()) expect(found.get(name)?.[0], name).toBe(i);
    }
  });

  test.each([
    ['b.safetensors', /new\/b\.safetensors is missing/],
    ['model.safetensors.index.json', /there is no model\.safetensors among the 5 files/],
  ])('without %s names it', async (left, message) => {
    const host = memoryHost(new MemoryFiles());
    const files = chosen(Object.keys(model).filter((at) => at !== `m/${left}`));
    await expect(importCheckpoint(host, 'new', await filesIn(host, files))).rejects.toThrow(message);
  });
});
