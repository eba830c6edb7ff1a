// Weights in shards: what one file would give, whatever the shards; and an index that lies about them is one line that
// names the file, before any data are read.

import fc from 'fast-check';
import { describe, expect, test } from 'vitest';
import { findModel, finiteWeights, loadWeights, withWeights } from '../../src/formats/checkpoint.ts';
import { makeModel } from '../../src/nn/index.ts';
import { defaultSettings } from '../../src/train/run/run-settings.ts';
import { startWeights } from '../../src/train/run/start-weights.ts';
import { HoldfastError } from '../../src/util/errors.ts';
import { collect, PIECE_ELEMENTS } from '../../src/values/tensor-source.ts';
import { MemoryFiles, memoryHost } from '../memory-files.ts';
import { config, parameters, valuesOf } from './checkpoints.ts';
import { fileOf, floats, type Stored, shardedFolder } from './raw-tensors.ts';

const INDEX = 'm/model.safetensors.index.json';
const values = valuesOf(0, 1);
const stored = new Map(
  parameters.map(({ name, shape }) => [name, floats(shape, values.get(name) ?? new Float32Array())]),
);
const CONFIG = { 'm/config.json': JSON.stringify(config) };

/** The tensors dealt to shards: `shardOf(i)` is the number of the i-th's. */
function dealt(shardOf: (i: number) => number, tensors: ReadonlyMap<string, Stored> = stored) {
  const shards: Record<string, Map<string, Stored>> = {};
  for (const [i, [name, tensor]] of [...tensors].entries()) {
    const shard = `model-${shardOf(i)}.safetensors`;
    const list = shards[shard] ?? new Map();
    shards[shard] = list.set(name, tensor);
  }
  return shards;
}

const folder = (more: Record<string, string | Uint8Array | undefined> = {}) => {
  const all = {
    ...CONFIG,
    ...shardedFolder(
      'm',
      dealt((i) => i % 3),
    ),
    ...more,
  };
  return new MemoryFiles(
    Object.fromEntries(
      Object.entries(all).flatMap(([path, content]) => (content === undefined ? [] : [[path, content]])),
    ),
  );
};

test('shards of any kind give the weights of one file', async () => {
  await fc.assert(
    fc.asyncProperty(fc.array(fc.integer({ min: 0, max: 4 }), { minLength: 1, maxLength: 20 }), async (deal) => {
      const files = new MemoryFiles({
        ...CONFIG,
        ...shardedFolder(
          'm',
          dealt((i) => deal[i % deal.length] ?? 0),
        ),
      });
      const { weights, shapes } = await loadWeights(files, 'm');
      expect(await collect(weights)).toEqual(values);
      expect([...shapes.keys()].sort()).toEqual(parameters.map(({ name }) => name).sort());
      expect(await withWeights(files, 'm', ({ weights }) => collect(weights))).toEqual(values);
      expect(await findModel(files, 'm')).toEqual({ config, from: 'm' });
    }),
    { seed: 1, numRuns: 30 },
  );
});

test('one file counts before an index, as in Transformers', async () => {
  const files = folder({ 'm/model.safetensors': fileOf(stored), [INDEX]: '{' });
  expect(await collect((await loadWeights(files, 'm')).weights)).toEqual(values);
});

test('shards of half the size are widened, in pieces of the same memory', async () => {
  const length = 2 * PIECE_ELEMENTS + 3;
  const halves = Uint16Array.from({ length }, (_, i) => 0x3f80 + (i % 77));
  const tensor = { dtype: 'BF16', shape: [length], bytes: new Uint8Array(halves.buffer) };
  const files = new MemoryFiles({ ...CONFIG, ...shardedFolder('m', { 'a.safetensors': new Map([['x', tensor]]) }) });
  const { weights } = await loadWeights(files, 'm');
  const memory = new Set<ArrayBuffer>();
  let at = 0;
  for await (const piece of weights.read('x')) {
    memory.add(piece.buffer);
    const bits = new Uint32Array(piece.buffer, 0, piece.length);
    if (!bits.every((word, i) => word === (halves[at + i] ?? 0) << 16)) expect.fail(`a piece at ${at}`);
    at += piece.length;
  }
  expect(at).toBe(length);
  expect(memory.size).toBe(1);
});

describe('refused in one line that names the file', () => {
  const index = (change: (places: Record<string, unknown>) => Record<string, unknown>) => {
    const { weight_map } = JSON.parse(
      String(
        shardedFolder(
          'm',
          dealt((i) => i % 3),
        )[INDEX],
      ),
    );
    return { [INDEX]: JSON.stringify({ weight_map: change(weight_map) }) };
  };
  const shard = (number: number, change: (tensors: Map<string, Stored>) => unknown) => {
    const tensors = new Map(dealt((i) => i % 3)[`model-${number}.safetensors`]);
    change(tensors);
    return { [`m/model-${number}.safetensors`]: fileOf(tensors) };
  };
  const cut = (bytes: number) => ({
    'm/model-1.safetensors': fileOf(dealt((i) => i % 3)['model-1.safetensors'] ?? new Map()).slice(0, bytes),
  });
  const one = floats([1], Float32Array.of(1));
  const [first = '', second = ''] = [...stored.keys()];

  test.each<[string, Record<string, string | Uint8Array | undefined>, RegExp]>([
    ['a missing shard', { 'm/model-1.safetensors': undefined }, /^m\/model-1\.safetensors is missing: .* and \d+ more/],
    ['a shard that is cut short', cut(400), /^m\/model-1\.safetensors: /],
    ['an empty shard', cut(0), /^m\/model-1\.safetensors: 0 bytes, too short/],
    ['no index', { [INDEX]: undefined }, /^m: there is no model\.safetensors, and no model\.safetensors\.index\.json/],
    [
      'no index, but a pickle',
      { [INDEX]: undefined, 'm/pytorch_model.bin': 'x' },
      /its pytorch_model\.bin is a program as much as it is data/,
    ],
    ['an index that is no JSON', { [INDEX]: '{"weight_map": ' }, /index\.json: not JSON/],
    ['an index with an odd end of line', { [INDEX]: '{"a\u2028b":m}' }, /index\.json: not JSON \(.*\)/],
    ['an index without a map', { [INDEX]: '{}' }, /index\.json: weight_map is missing; it must be an object/],
    ['an index with a list', { [INDEX]: '{"weight_map": []}' }, /weight_map is a list of 0; it must be an object/],
    ['an index of nothing', { [INDEX]: '{"weight_map": {}}' }, /index\.json: names no tensor/],
    ['a shard that is no text', index((map) => ({ ...map, x: 7 })), /weight_map\.x is 7; it must be a text/],
    ...[
      '../a.safetensors',
      '/etc/a.safetensors',
      'b/a.safetensors',
      'b\\a.safetensors',
      '',
      'model.bin',
      'a\n.safetensors',
    ].map((name): [string, Record<string, string>, RegExp] => [
      `a shard named ${JSON.stringify(name)}`,
      index((map) => ({ ...map, x: name })),
      /index\.json: ".*" is no name of a safetensors file in the same folder/,
    ]),
    [
      'a tensor that is in no shard',
      index((map) => ({ ...map, extra: 'model-1.safetensors' })),
      /^m\/model-1\.safetensors: has no extra, .* says that it is in it/,
    ],
    [
      'a tensor that the index lacks',
      shard(2, (tensors) => tensors.set('extra', one)),
      /^m\/model-2\.safetensors: has extra, .* says that it is in no shard/,
    ],
    [
      'a tensor in two shards',
      shard(1, (tensors) => tensors.set(first, stored.get(first) ?? one)),
      new RegExp(`^m/model-1\\.safetensors: has ${first}, .* says that it is in model-0\\.safetensors`),
    ],
    [
      'a tensor in another shard',
      index((map) => ({ ...map, [second]: 'model-2.safetensors' })),
      new RegExp(`^m/model-[12]\\.safetensors: has (no )?${second}, `),
    ],
    ...['I8', 'F8_E4M3', 'I64', 'BOOL'].map((dtype): [string, Record<string, Uint8Array>, RegExp] => [
      `weights of ${dtype}`,
      shard(1, (tensors) => tensors.set(second, { dtype, shape: [1], bytes: new Uint8Array(dtype === 'I64' ? 8 : 1) })),
      new RegExp(`^m/model-1\\.safetensors: ${second} is ${dtype}; weights and moments are F32, F16 or BF16`),
    ]),
    [
      'a name of any length',
      shard(2, (tensors) => tensors.set('x'.repeat(100_000), one)),
      /^m\/model-2\.safetensors: has x{200}\.\.\., .* in no shard/,
    ],
  ])('%s', async (_, more, message) => {
    const files = folder(more);
    const before = [...files.contents.keys()];
    for (const load of [loadWeights, (files: MemoryFiles, at: string) => withWeights(files, at, async () => {})]) {
      const error = await load(files, 'm').catch((error) => error);
      expect(error).toBeInstanceOf(HoldfastError);
      expect(error.message).toMatch(message);
      expect(error.message).toMatch(/^.{1,900}$/);
    }
    expect([...files.contents.keys()]).toEqual(before);
  });

  test('an index of any length is not read', async () => {
    const files = folder();
    const { stat } = files;
    files.stat = async (path) => (path === INDEX ? { kind: 'file', bytes: 1e9 } : stat.call(files, path));
    files.read = async (path) =>
      path === INDEX ? expect.fail('it was read') : MemoryFiles.prototype.read.call(files, path);
    await expect(loadWeights(files, 'm')).rejects.toThrow('index.json: has 1.00 GB, at most 67.1 MB are read');
  });
});

describe('weights that are not finite', () => {
  test('no run starts from them', async () => {
    const model = makeModel(config);
    const bad = new Map([...values].map(([name, all]) => [name, all.slice()]));
    bad.get('ln_f.bias')?.fill(Infinity, 4, 5);
    const tensors = parameters.map(
      ({ name, shape }) => [name, floats(shape, bad.get(name) ?? new Float32Array())] as const,
    );
    const files = new MemoryFiles({ ...CONFIG, 'm/model.safetensors': fileOf(new Map(tensors)) });
    const { weights } = await startWeights(memoryHost(files), defaultSettings({ config, from: 'm' }), model);
    await expect(collect(weights)).rejects.toThrow('m: ln_f.bias is Infinity at [4]; training needs finite weights');
  });

  test.each([Number.NaN, Infinity, -Infinity])('%d is refused with its tensor and index', async (value) => {
    const [, { name, shape } = { name: '', shape: [] }] = parameters.filter(({ shape }) => shape.length === 2);
    const [, columns = 1] = shape;
    const bad = new Map([...values].map(([name, all]) => [name, all.slice()]));
    bad.get(name)?.fill(value, 2 * columns + 3, 2 * columns + 4);
    const tensors = new Map(
      parameters.map(({ name, shape }) => [name, floats(shape, bad.get(name) ?? new Float32Array())]),
    );
    const found = await loadWeights(new MemoryFiles({ ...CONFIG, 'm/model.safetensors': fileOf(tensors) }), 'm');
    await expect(collect(finiteWeights(found, 'm'))).rejects.toThrow(
      `m: ${name} is ${value} at [2, 3]; training needs finite weights`,
    );
    // Subnormals and the largest are weights like others.
    const extremes = {
      ...found,
      weights: {
        names: ['x'],
        async *read() {
          yield Float32Array.of(1e-45, -3.4028234663852886e38, 3.4028234663852886e38);
        },
      },
    };
    expect((await collect(finiteWeights(extremes, 'm'))).get('x')?.length).toBe(3);
  });
});
