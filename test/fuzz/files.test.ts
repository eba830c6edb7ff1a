// Mutants of zips and of safetensors files, through the readers: each is an error of one line that names the file, or what
// it was before; and no reader takes more bytes or memory than a few times what the file has.

import { zipSync } from 'fflate';
import { afterAll, describe, expect, test } from 'vitest';
import { loadCheckpoint, loadWeights, saveCheckpoint } from '../../src/formats/checkpoint.ts';
import { parseConfig } from '../../src/formats/config.ts';
import { parse, serialize, TensorFile } from '../../src/formats/safetensors.ts';
import { LENGTH_BYTES, parseHeader } from '../../src/formats/safetensors-header.ts';
import { writeZip } from '../../src/formats/zip.ts';
import { makeModel } from '../../src/nn/index.ts';
import { initialWeights } from '../../src/nn/initialise.ts';
import { HoldfastError } from '../../src/util/errors.ts';
import { Random } from '../../src/util/random.ts';
import { collect } from '../../src/values/tensor-source.ts';
import { entry } from '../entry.ts';
import { type Stored, shardedFolder } from '../formats/raw-tensors.ts';
import { deflated, rawZip } from '../formats/raw-zip.ts';
import { MemoryFiles } from '../memory-files.ts';
import { mutant, placesOf } from './bytes.ts';

const MB = 2 ** 20;
const all = process.env['HOLDFAST_TESTS'] === 'all';
/** Of each format. */
const MUTANTS = all ? 100_000 : 1500;

/** Counts what is read of one file. */
class CountedFiles extends MemoryFiles {
  bytes = 0;
  reads = 0;

  override async readRange(path: string, offset: number, bytes: number) {
    this.reads++;
    this.bytes += bytes;
    return super.readRange(path, offset, bytes);
  }
}

const before = process.memoryUsage().rss;
let largest = before;
const look = (i: number) => {
  if (i % 100 === 0) largest = Math.max(largest, process.memoryUsage().rss);
};
afterAll(() => expect(largest - before, 'bytes of memory that all of it took').toBeLessThan(1024 * MB));

/** What is made of it, or what the error says. */
async function outcome(work: () => unknown): Promise<{ made: unknown } | { said: string }> {
  try {
    return { made: await work() };
  } catch (error) {
    if (error instanceof HoldfastError) return { said: error.message };
    throw error;
  }
}

const config = parseConfig(
  { model_type: 'gpt2', vocab_size: 2, n_positions: 1, n_embd: 2, n_layer: 1, n_head: 1 },
  'test',
);
const model = makeModel(config);
const weights = initialWeights(model, 1);
const shapes = new Map(model.parameters.map(({ name, shape }) => [name, shape]));
const disk = new MemoryFiles();
await saveCheckpoint(disk, 'run', 7, { config, weights, shapes, moment1: weights, moment2: weights, state: { at: 7 } });
await writeZip(disk, 'run/checkpoint-7', 'own.zip');
const files = Object.fromEntries([...disk.contents].filter(([path]) => path.startsWith('run/')));
const entries = Object.entries(files).map(([path, bytes]) => deflated(path, bytes));

async function checkpointOf(disk: MemoryFiles) {
  const { state, ...loaded } = await loadCheckpoint(disk, 'my.zip');
  const [weights, moment1, moment2] = await Promise.all([
    collect(loaded.weights),
    collect(loaded.moment1),
    collect(loaded.moment2),
  ]);
  return { config: loaded.config, state, weights, moment1, moment2 };
}

describe.each([
  ['as Holdfast writes it', entry(disk.contents, 'own.zip')],
  ['stored', zipSync(files, { level: 0 })],
  ['deflated', rawZip(entries)],
  [
    'of the 64-bit kind',
    rawZip(
      entries.map((entry) => ({ ...entry, zip64: true })),
      { zip64: true },
    ),
  ],
])('a zip %s', (name, bytes) => {
  test('a mutant is what it was, or an error', async () => {
    const random = new Random(1, `zip ${name}`);
    const expected = JSON.stringify(await checkpointOf(new MemoryFiles({ 'my.zip': bytes })), plain);
    const headers = placesOf(bytes, [0x50, 0x4b]);
    const count = { same: 0, refused: 0 };
    for (let i = 0; i < MUTANTS / 4; i++) {
      const made = mutant(random, bytes, headers);
      const disk = new CountedFiles({ 'my.zip': made });
      const found = await outcome(() => checkpointOf(disk));
      if ('said' in found) {
        expect(found.said, `mutant ${i}`).toMatch(/^my\.zip.{1,1200}$/);
        count.refused++;
      } else {
        expect(JSON.stringify(found.made, plain), `mutant ${i}`).toBe(expected);
        count.same++;
      }
      expect(disk.reads, `mutant ${i}`).toBeLessThan(500);
      expect(disk.bytes, `mutant ${i}`).toBeLessThan(20 * made.length + 100_000);
      look(i);
    }
    // Both kinds are there.
    expect(Math.min(count.same, count.refused)).toBeGreaterThan(MUTANTS / 400);
  });
});

/** Maps and arrays of numbers in JSON. */
const plain = (_: string, value: unknown) =>
  value instanceof Map ? [...value] : value instanceof Float32Array ? [...value] : value;

describe('a safetensors file', () => {
  const bytes = serialize(
    [
      ['wte', { shape: [2, 3], data: Float32Array.of(1, 2, 3, 4, 5, 6) }],
      ['h.0.bias', { shape: [], data: Float64Array.of(0.5) }],
      ['none', { shape: [0, 4], data: new Float32Array() }],
      ['ids "a"\\', { shape: [2], data: Int32Array.of(-1, 7) }],
    ],
    { format: 'pt', note: 'two\nlines' },
  );
  const length = Number(new DataView(bytes.buffer).getBigUint64(0, true));
  const json = bytes.subarray(LENGTH_BYTES, LENGTH_BYTES + length);
  const withHeader = (header: Uint8Array) => {
    const made = new Uint8Array(LENGTH_BYTES + header.length + bytes.length - LENGTH_BYTES - length);
    new DataView(made.buffer).setBigUint64(0, BigInt(header.length), true);
    made.set(header, LENGTH_BYTES);
    made.set(bytes.subarray(LENGTH_BYTES + length), LENGTH_BYTES + header.length);
    return made;
  };

  // Only its header says what the data are: another byte there, or in the data, may be another file as good as this.
  test.each([
    ['of the whole file', (random: Random) => mutant(random, bytes, [0])],
    ['of its header', (random: Random) => withHeader(mutant(random, json))],
  ])(
    'a mutant %s fills its data exactly, read in one piece or by ranges, or both are the same error',
    async (name, next) => {
      const random = new Random(1, `safetensors ${name}`);
      for (let i = 0; i < MUTANTS / 2; i++) {
        const made = next(random);
        const whole = await outcome(() => parse(made, 'w'));
        const disk = new CountedFiles({ w: made });
        const ranges = await outcome(async () => {
          const file = await TensorFile.open(disk, 'w');
          const found = new Map<string, unknown>();
          for (const [tensor, { dtype, shape }] of file.entries) {
            found.set(tensor, { dtype, shape, data: await file.read(tensor) });
          }
          return found;
        });
        expect(ranges, `mutant ${i}`).toEqual(whole);
        if ('said' in whole) expect(whole.said, `mutant ${i}`).toMatch(/^w: .{1,1200}$/);
        else {
          const tensors = [...(whole.made as ReturnType<typeof parse>).values()];
          const data = tensors.reduce(
            (sum, { dtype, data }) => sum + data.length * { F32: 4, I32: 4, F64: 8, F16: 2, BF16: 2 }[dtype],
            0,
          );
          const start = LENGTH_BYTES + Number(new DataView(made.buffer).getBigUint64(0, true));
          expect(data, `mutant ${i}`).toBe(made.length - start);
        }
        expect(disk.bytes, `mutant ${i}`).toBeLessThanOrEqual(made.length + LENGTH_BYTES);
        look(i);
      }
    },
  );

  test('a mutant of a header is read as JSON.parse reads it', async () => {
    const random = new Random(1, 'header');
    const count = { same: 0, refused: 0 };
    for (let i = 0; i < MUTANTS; i++) {
      const made = mutant(random, json);
      const found = await outcome(() => parseHeader(made, 'w'));
      let expected: unknown;
      try {
        expected = JSON.parse(new TextDecoder('utf-8', { fatal: true, ignoreBOM: true }).decode(made));
      } catch {}
      const isObject = typeof expected === 'object' && expected !== null && !Array.isArray(expected);
      if ('said' in found) {
        if (!found.said.includes(' twice; ')) expect(isObject, `mutant ${i}: ${found.said}`).toBe(false);
        count.refused++;
      } else {
        const header = found.made as ReturnType<typeof parseHeader>;
        const values = [...header].map(([member, fields]) => [member, fields && Object.fromEntries(fields)]);
        const objects = Object.entries(expected as object).map(([member, value]) => [
          member,
          typeof value === 'object' && value !== null && !Array.isArray(value) ? value : undefined,
        ]);
        expect(Object.fromEntries(values), `mutant ${i}`).toEqual(Object.fromEntries(objects));
        count.same++;
      }
      look(i);
    }
    expect(Math.min(count.same, count.refused)).toBeGreaterThan(MUTANTS / 100);
  });
});

describe('a folder of shards', () => {
  const DTYPES = ['F32', 'F16', 'BF16'];
  const bytesOf = { F32: 4, F16: 2, BF16: 2 } as Readonly<Record<string, number>>;
  const tensors = new Map(
    model.parameters.map(({ name, shape }, i): [string, Stored] => {
      const dtype = DTYPES[i % 3] ?? 'F32';
      const count = shape.reduce((a, b) => a * b, bytesOf[dtype] ?? 4);
      return [name, { dtype, shape, bytes: Uint8Array.from({ length: count }, (_, at) => (at * 37 + i) & 0x3f) }];
    }),
  );
  const shards = ['a', 'b', 'c'].map((letter, shard) => [
    `model-${letter}.safetensors`,
    new Map([...tensors].filter((_, i) => i % 3 === shard)),
  ]);
  const folder = { 'm/config.json': JSON.stringify(config), ...shardedFolder('m', Object.fromEntries(shards)) };
  const paths = Object.keys(folder).filter((path) => !path.endsWith('config.json'));
  const { contents } = new MemoryFiles(folder);

  // A header may be changed into another that is as good: of a mutant that loads, only what is read is checked.
  test('a mutant of its index or of a shard is one line that names the folder, or has weights that fill its files', async () => {
    const random = new Random(1, 'shards');
    const count = { made: 0, refused: 0 };
    const read = async (disk: MemoryFiles) => {
      const { weights, shapes } = await loadWeights(disk, 'm');
      return { values: await collect(weights), shapes };
    };
    const whole = (await outcome(() => read(new MemoryFiles(folder)))) as {
      made: { values: Map<string, Float32Array> };
    };
    expect([...whole.made.values.keys()].sort()).toEqual(model.parameters.map(({ name }) => name).sort());
    for (let i = 0; i < MUTANTS; i++) {
      const path = paths[random.below(paths.length)] ?? '';
      const made = mutant(random, contents.get(path) ?? new Uint8Array(), [0]);
      const disk = new CountedFiles({ ...folder, [path]: made });
      // A shard that is missing, or two that are exchanged.
      if (random.below(8) === 0) disk.contents.delete(paths[random.below(paths.length)] ?? '');
      const before = [...disk.contents.keys()];
      const found = await outcome(() => read(disk));
      if ('said' in found) {
        expect(found.said, `mutant ${i}`).toMatch(/^m[:/].{1,1200}$/);
        count.refused++;
      } else {
        const { values, shapes } = found.made as Awaited<ReturnType<typeof read>>;
        for (const [name, shape] of shapes) {
          expect(values.get(name)?.length, `mutant ${i}: ${name}`).toBe(shape.reduce((a, b) => a * b, 1));
        }
        count.made++;
      }
      expect(disk.bytes, `mutant ${i}`).toBeLessThan(4 * made.length + 20_000);
      expect([...disk.contents.keys()], `mutant ${i}`).toEqual(before);
      look(i);
    }
    expect(Math.min(count.made, count.refused)).toBeGreaterThan(MUTANTS / 100);
  });
});
