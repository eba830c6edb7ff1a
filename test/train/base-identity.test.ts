// The identity of an adapter's base: of the values of its weights, whichever way they were read on their way to the device.

import { expect, test } from 'vitest';
import { loadWeights } from '../../src/formats/checkpoint.ts';
import { parseConfig } from '../../src/formats/config.ts';
import { makeModel } from '../../src/nn/index.ts';
import { roundedWeights } from '../../src/train/run/base-dtype.ts';
import { checkBase, SummedSource } from '../../src/train/run/base-identity.ts';
import { Random } from '../../src/util/random.ts';
import { narrowFloats, widen } from '../../src/values/floats.ts';
import { bytesPerElement, type StoredElement } from '../../src/values/stored-elements.ts';
import { collect, type TensorSource } from '../../src/values/tensor-source.ts';
import { fileOf, floats, type Stored } from '../formats/raw-tensors.ts';
import { MemoryFiles } from '../memory-files.ts';

const fields = { model_type: 'gpt2', vocab_size: 301, n_positions: 33, n_embd: 36, n_layer: 1, n_head: 2 };
const { parameters } = makeModel(parseConfig(fields, 'a model'));

type Dtype = 'F32' | 'BF16' | 'F16';

/** The same values in files of any type. `change`: of one value. */
async function folder(dtype: Dtype, change = 0) {
  const random = new Random(3, 'values');
  const tensors = parameters.map(({ name, shape }): [string, Stored] => {
    const size = shape.reduce((a, b) => a * b, 1);
    // Few bits: what every type has.
    const values = Float32Array.from({ length: size }, () => (random.below(255) - 127) / 64);
    if (name === 'h.0.ln_1.bias') values[7] = (values[7] ?? 0) + change;
    if (dtype === 'F32') return [name, floats(shape, values)];
    const [halves, back] = [new Uint16Array(size), new Float32Array(size)];
    narrowFloats(dtype, values, halves);
    widen(dtype, halves, back);
    expect(back).toEqual(values);
    return [name, { dtype, shape, bytes: new Uint8Array(halves.buffer) }];
  });
  const files = new MemoryFiles({
    'm/config.json': JSON.stringify(fields),
    'm/model.safetensors': fileOf(new Map(tensors)),
  });
  return { files, ...(await loadWeights(files, 'm')) };
}

/** Reads every tensor in parts of any size, the last first, all at once. */
async function readParts(source: TensorSource, element: StoredElement): Promise<void> {
  const random = new Random(9, 'parts');
  for (const name of source.names) {
    const reader = source.reader?.(name, element);
    if (!reader) expect.fail(`${name} comes in pieces alone`);
    const parts: [number, number][] = [];
    for (let first = 0; first < reader.count; ) {
      // From multiples of 4 bytes on.
      const count = Math.min(reader.count - first, 2 * (1 + random.below(1500)));
      parts.unshift([first, count]);
      first += count;
    }
    await Promise.all(
      parts.map(([first, count]) => reader.read(first, new Uint8Array(count * bytesPerElement(element)))),
    );
  }
}

const STORED = { F32: 'f32', BF16: 'bf16', F16: 'f16' } as const;

test('one identity, of any type, read in pieces, as stored, straight to where it goes, or for its own sake', async () => {
  const { files, weights } = await folder('F32');
  const wanted = await new SummedSource(weights, files).sum();
  expect(wanted).toMatch(/^sums:[0-9a-f]{64}$/);
  for (const dtype of ['F32', 'BF16', 'F16'] as const) {
    const ways: [string, (source: SummedSource) => Promise<unknown>][] = [
      ['in pieces', (source) => collect(source)],
      [
        'as stored',
        async (source) => {
          for (const name of source.names) for await (const _ of source.packed(name)?.read() ?? []);
        },
      ],
      ['as stored, to its place', (source) => readParts(source, STORED[dtype])],
      ['as float32, to its place', (source) => readParts(source, 'f32')],
      [
        'some of it',
        async (source) => {
          for await (const _ of source.read('wte.weight')) break;
        },
      ],
    ];
    for (const [way, read] of ways) {
      const found = await folder(dtype);
      const summed = new SummedSource(found.weights, found.files);
      await read(summed);
      expect(await summed.sum(), `${dtype}, ${way}`).toBe(wanted);
    }
  }
});

test('another value is another identity, and is refused; what was saved in another form is not', async () => {
  const sumOf = async (change: number) => {
    const { files, weights } = await folder('F32', change);
    return new SummedSource(weights, files).sum();
  };
  const [found, other] = [await sumOf(0), await sumOf(2 ** -6)];
  expect(other).not.toBe(found);
  expect(() => checkBase(found, other, 'base', 'run')).toThrow(
    'run: its adapter was trained on other weights than base has now; give the base that it began with',
  );
  for (const saved of [found, undefined, 'a'.repeat(64)]) checkBase(found, saved, 'base', 'run');
});

test('a base that is kept as its files have it, or widened, is read straight to its place; one that is rounded is not', async () => {
  const { weights } = await folder('BF16');
  const readerFor = (stored: StoredElement, element: StoredElement) =>
    roundedWeights(weights, () => stored, 'm').reader?.('wte.weight', element);
  expect(readerFor('bf16', 'bf16')?.stored).toBe('bf16');
  expect(readerFor('f32', 'f32')?.stored).toBe('bf16');
  expect(readerFor('f16', 'f16')).toBeUndefined();
  expect(readerFor('q8_0', 'f32')).toBeUndefined();
});
