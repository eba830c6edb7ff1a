import { readdirSync, readFileSync } from 'node:fs';
import fc from 'fast-check';
import { describe, expect, test } from 'vitest';
import {
  parse,
  serialize,
  type TensorData,
  TensorFile,
  type TensorToWrite,
  writeTensors,
} from '../../src/formats/safetensors.ts';
import { HoldfastError } from '../../src/util/errors.ts';
import { entry } from '../entry.ts';
import { MemoryFiles } from '../memory-files.ts';
import { metadataOf } from './metadata.ts';

const REFERENCE = new URL('../fixtures/reference/', import.meta.url);

/** A file with this header, written by hand. */
function file(header: unknown, dataBytes = 0): Uint8Array<ArrayBuffer> {
  const json = new TextEncoder().encode(typeof header === 'string' ? header : JSON.stringify(header));
  const bytes = new Uint8Array(8 + json.length + dataBytes);
  new DataView(bytes.buffer).setBigUint64(0, BigInt(json.length), true);
  bytes.set(json, 8);
  return bytes;
}

const f32 = (shape: unknown, begin: unknown, end: unknown, dtype: unknown = 'F32') => ({
  dtype,
  shape,
  data_offsets: [begin, end],
});

const shapes = fc.array(fc.nat(4), { maxLength: 3 });
const tensors = shapes.chain((shape) => {
  const length = shape.reduce((a, b) => a * b, 1);
  const data: fc.Arbitrary<TensorData> = fc.oneof(
    fc.array(fc.float(), { minLength: length, maxLength: length }).map((values) => Float32Array.from(values)),
    fc.array(fc.integer(), { minLength: length, maxLength: length }).map((values) => Int32Array.from(values)),
    fc.array(fc.double(), { minLength: length, maxLength: length }).map((values) => Float64Array.from(values)),
  );
  return data.map((values) => ({ shape, data: values }));
});
const names = fc
  .oneof(fc.string(), fc.string({ unit: 'binary' }), fc.constantFrom('0', '7', '__proto__', 'h.0.attn.c_attn.weight'))
  .filter((name) => name !== '__metadata__');
const files = fc.uniqueArray(fc.tuple(names, tensors), { maxLength: 5, selector: ([name]) => name });

/** Tensors as a writer takes them, in pieces of up to `size` elements. */
function inPieces(list: readonly [string, { shape: number[]; data: TensorData }][], size: number): TensorToWrite[] {
  return list.map(([name, { shape, data }]) => ({
    name,
    shape,
    dtype: data instanceof Float32Array ? 'F32' : data instanceof Int32Array ? 'I32' : 'F64',
    async *read() {
      for (let first = 0; first < data.length; first += size) yield data.subarray(first, first + size);
    },
  }));
}

const opened = (bytes: Uint8Array) => TensorFile.open(new MemoryFiles({ 'w.safetensors': bytes }), 'w.safetensors');

/** As `parse`: each tensor in the order of their data. */
async function readAll(bytes: Uint8Array): Promise<void> {
  const tensors = await opened(bytes);
  for (const name of tensors.entries.keys()) await tensors.read(name);
}

describe('safetensors', () => {
  test('parse returns what serialize was given', () => {
    fc.assert(
      fc.property(files, fc.dictionary(fc.string(), fc.string()), (list, metadata) => {
        const bytes = serialize(list, metadata);
        const parsed = parse(bytes, 'x');
        expect(parsed.size).toBe(list.length);
        for (const [name, { shape, data }] of list) {
          expect(parsed.get(name)?.shape).toEqual(shape);
          expect(parsed.get(name)?.data).toEqual(data);
        }
        expect(metadataOf(bytes)).toEqual(new Map(Object.entries(metadata)));
      }),
    );
  });

  test('tensors keep their order, names like numbers included', () => {
    const one = { shape: [], data: Float32Array.of(1) };
    expect([
      ...parse(
        serialize([
          ['b', one],
          ['1', one],
          ['a', one],
          ['0', one],
        ]),
        'x',
      ).keys(),
    ]).toEqual(['b', '1', 'a', '0']);
  });

  test('data begins at a multiple of 8 bytes, after spaces', () => {
    for (let length = 1; length <= 8; length++) {
      const bytes = serialize([['n'.repeat(length), { shape: [1], data: Float64Array.of(1) }]]);
      const [header] = bytes;
      expect(header! % 8).toBe(0);
      expect(new TextDecoder().decode(bytes.subarray(8, 8 + header!))).toMatch(/^\{.*\} *$/);
    }
  });

  test('a parsed tensor is a copy, from bytes at any address', () => {
    const bytes = serialize([['a', { shape: [2], data: Float32Array.of(1, 2) }]]);
    const shifted = new Uint8Array(bytes.length + 1);
    shifted.set(bytes, 1);
    const tensor = parse(shifted.subarray(1), 'x').get('a');
    shifted.fill(0);
    expect(tensor).toEqual({ dtype: 'F32', shape: [2], data: Float32Array.of(1, 2) });
  });

  test('F16 and BF16 widen to float32 exactly', () => {
    const bytes = file({ h: f32([6], 0, 12, 'F16'), b: f32([4], 12, 20, 'BF16') }, 20);
    const words = [0x3c00, 0xc000, 0x0001, 0x7bff, 0xfc00, 0x8000, 0x3f80, 0xc049, 0x0001, 0x7f80];
    const view = new DataView(bytes.buffer, bytes.length - 20);
    for (const [i, word] of words.entries()) view.setUint16(2 * i, word, true);
    const parsed = parse(bytes, 'x');
    expect(parsed.get('h')?.dtype).toBe('F16');
    expect(parsed.get('h')?.data).toEqual(Float32Array.of(1, -2, 2 ** -24, 65504, -Infinity, -0));
    expect(parsed.get('b')?.data).toEqual(Float32Array.of(1, -3.140625, 2 ** -133, Infinity));
  });

  test("reads the reference's files, and writes weights back byte for byte", () => {
    for (const folder of readdirSync(REFERENCE, { withFileTypes: true }).filter((entry) => entry.isDirectory())) {
      const inside = readdirSync(new URL(`${folder.name}/`, REFERENCE)).filter((name) => name.endsWith('.safetensors'));
      for (const name of inside) {
        const bytes = new Uint8Array(readFileSync(new URL(`${folder.name}/${name}`, REFERENCE)));
        const parsed = parse(bytes, name);
        expect(parsed.size).toBeGreaterThan(0);
        if (name === 'weights.safetensors') {
          const again = serialize(parsed, Object.fromEntries(metadataOf(bytes)));
          expect(Buffer.from(again).equals(bytes)).toBe(true);
        }
      }
    }
  });
});

describe('in pieces', () => {
  const sizes = fc.integer({ min: 1, max: 9 });

  test('writeTensors makes the file that serialize makes', async () => {
    await fc.assert(
      fc.asyncProperty(files, sizes, fc.dictionary(fc.string(), fc.string()), async (list, size, metadata) => {
        const disk = new MemoryFiles();
        await writeTensors(disk, 'w', inPieces(list, size), metadata);
        expect(disk.contents).toEqual(new Map([['w', serialize(list, metadata)]]));
      }),
    );
  });

  test('TensorFile gives what parse gives: whole, in ranges and in pieces of any size', async () => {
    await fc.assert(
      fc.asyncProperty(files, sizes, async (list, size) => {
        const bytes = serialize(list);
        const file = await opened(bytes);
        const parsed = parse(bytes, 'w');
        expect([...file.entries.keys()]).toEqual([...parsed.keys()]);
        for (const [name, { dtype, shape, data }] of parsed) {
          expect(file.entries.get(name)).toMatchObject({ dtype, shape });
          expect(await file.read(name)).toEqual(data);
          const middle = data.slice(data.length >> 2, data.length >> 1);
          expect(await file.readRange(name, data.length >> 2, middle.length)).toEqual(middle);
          const pieces: number[] = [];
          for await (const piece of file.pieces(name, size)) {
            expect(piece.length).toBeLessThanOrEqual(size);
            pieces.push(...piece);
          }
          expect(pieces).toEqual([...data]);
        }
      }),
    );
  });

  test('F16 and BF16 widen in ranges as they do whole', async () => {
    const bytes = file({ h: f32([5], 0, 10, 'F16'), b: f32([3], 10, 16, 'BF16') }, 16);
    for (let i = bytes.length - 16; i < bytes.length; i++) bytes[i] = (i * 73) & 0x3f;
    const parsed = parse(bytes, 'w');
    const tensors = await opened(bytes);
    for (const name of ['h', 'b']) {
      const { data } = entry(parsed, name);
      expect(await tensors.readRange(name, 1, 2)).toEqual(data.slice(1, 3));
    }
  });

  test('a writer whose pieces fail, are too few, too many or of another type leaves the old file', async () => {
    const old = serialize([['a', { shape: [1], data: Float32Array.of(7) }]]);
    const tensor = (...pieces: (TensorData | Error)[]): TensorToWrite => ({
      name: 'a',
      dtype: 'F32',
      shape: [2],
      async *read() {
        for (const piece of pieces) {
          if (piece instanceof Error) throw piece;
          yield piece;
        }
      },
    });
    const one = Float32Array.of(1);
    const disk = new MemoryFiles({ w: old });
    const write = (...pieces: (TensorData | Error)[]) => writeTensors(disk, 'w', [tensor(...pieces)]);
    await expect(write(one, new Error('the device is lost'))).rejects.toThrow('the device is lost');
    await expect(write(one)).rejects.toThrow(new HoldfastError('a has 2 elements ([2]), 1 were given'));
    await expect(write(one, one, one)).rejects.toThrow(new HoldfastError('a has 2 elements ([2]), 3 were given'));
    await expect(write(one, Int32Array.of(1))).rejects.toThrow('a piece of a is I32, not F32');
    expect(disk.contents).toEqual(new Map([['w', old]]));
    await write(one, one);
    expect(parse(entry(disk.contents, 'w'), 'w').get('a')?.data).toEqual(Float32Array.of(1, 1));
  });

  test('a file that is not there, or shrinks after it was opened, is named', async () => {
    await expect(TensorFile.open(new MemoryFiles(), 'w.safetensors')).rejects.toThrow('w.safetensors: no such file');
    const disk = new MemoryFiles({ w: serialize([['a', { shape: [4], data: new Float32Array(4) }]]) });
    const shrunk = await TensorFile.open(disk, 'w');
    disk.contents.set('w', entry(disk.contents, 'w').slice(0, -4));
    expect(await shrunk.readRange('a', 0, 3)).toEqual(new Float32Array(3));
    await expect(shrunk.read('a')).rejects.toThrow('w: ends at byte');
  });
});

describe('a damaged file is named', () => {
  const cases: [string, Uint8Array, string][] = [
    ['too short', new Uint8Array(7), 'w.safetensors: 7 bytes'],
    ['header past the end', file('{}').subarray(0, 9), 'w.safetensors: the header claims 2 bytes, the file has 1'],
    ['a huge header', new Uint8Array(64).fill(255), 'w.safetensors: the header claims'],
    ['not JSON', file('{"a":'), 'not a JSON object'],
    ['a list', file('[]'), 'not a JSON object'],
    ['not UTF-8', Uint8Array.of(1, 0, 0, 0, 0, 0, 0, 0, 0xff), 'not a JSON object'],
    ['unknown dtype', file({ a: f32([1], 0, 8, 'I64') }, 8), 'tensor "a" has dtype "I64"; supported: F32'],
    ['a dtype of Object', file({ a: f32([1], 0, 8, 'constructor') }, 8), 'has dtype "constructor"'],
    ['no dtype', file({ a: {} }), 'tensor "a" has no dtype'],
    ['no entry', file({ a: null }), 'tensor "a" has no dtype'],
    ['a negative dimension', file({ a: f32([-1], 0, 4) }, 4), 'tensor "a" has no shape'],
    ['fractional offsets', file({ a: f32([1], 0.5, 4.5) }, 5), 'tensor "a" has no data_offsets'],
    ['too few bytes', file({ a: f32([2, 3], 0, 20) }, 20), '20 bytes, F32 of shape [2, 3] needs 24'],
    ['past the data', file({ a: f32([2], 0, 8) }, 4), 'tensor "a" lies at bytes 0 to 8 of 4'],
    ['backwards', file({ a: f32([1], 8, 4) }, 8), 'tensor "a" lies at bytes 8 to 4'],
    ['overlap', file({ a: f32([2], 0, 8), b: f32([1], 4, 8) }, 8), 'tensor "b" begins at data byte 4 and overlaps'],
    ['gap', file({ a: f32([1], 0, 4), b: f32([1], 8, 12) }, 12), 'tensor "b" begins at data byte 8 and leaves a gap'],
    ['stray bytes', file({ a: f32([1], 0, 4) }, 5), '5 bytes of data, but the tensors cover 4'],
    ['a name twice', file('{"a":{"x":"{\\"a\\":"},"\\u0061":{}}'), 'the header has "a" twice'],
    ['a field twice', file('{"a":{"dtype":"F32","dtype":"F64"}}'), 'the header has "dtype" twice'],
    ['metadata twice in itself', file('{"__metadata__":{"a":"1","b":"2","a":"3"}}'), 'the header has "a" twice'],
    ['two commas', file('{"a":{},,"b":{}}'), 'not a JSON object'],
    ['a comma at the end', file('{"a":{},}'), 'not a JSON object'],
    ['no comma', file('{"a":{} "b":{}}'), 'not a JSON object'],
    ['no colon', file('{"a" {}}'), 'not a JSON object'],
    ['something behind it', file('{} {}'), 'not a JSON object'],
    ['a key that is no string', file('{1:{}}'), 'not a JSON object'],
    ['a value that is none', file('{"a":}'), 'not a JSON object'],
    ['brackets of two kinds', file('{"a":[}]}'), 'not a JSON object'],
    ['a string without end', file('{"a'), 'not a JSON object'],
    ['a string that ends in an escape', file('{"a\\'), 'not a JSON object'],
    ['a name without end in the message', file(`{"${'a'.repeat(1e6)}":{}}`), `${'a'.repeat(190)}`],
  ];
  test.each(cases)('%s', async (_, bytes, message) => {
    expect(() => parse(bytes, 'w.safetensors')).toThrow(HoldfastError);
    expect(() => parse(bytes, 'w.safetensors')).toThrow(message);
    await expect(readAll(bytes)).rejects.toThrow(HoldfastError);
    await expect(readAll(bytes)).rejects.toThrow(message);
  });

  test('a tensor of a type that is not known hinders none beside it', async () => {
    const mixed = await opened(file({ a: f32([2], 0, 8), b: f32([3], 8, 11, 'BOOL') }, 11));
    expect(await mixed.read('a')).toEqual(new Float32Array(2));
    await expect(mixed.read('b')).rejects.toThrow('w.safetensors: tensor "b" has dtype "BOOL"; supported: F32');
  });

  test('a header larger than the format allows is not read', async () => {
    const bytes = file('');
    new DataView(bytes.buffer).setBigUint64(0, 100_000_001n, true);
    const disk = new MemoryFiles({ w: bytes });
    disk.stat = async () => ({ kind: 'file', bytes: 2 ** 40 });
    await expect(TensorFile.open(disk, 'w')).rejects.toThrow('claims 100000001 bytes, at most 100000000 are allowed');
  });

  test('a header is read to its end whatever it is made of: 20 MB of escapes, 100,000 tensors, deep lists', () => {
    const escapes = file(`{"__metadata__":{"${'\\nx'.repeat(7e6)}":"","y":"\\\\"}}`);
    expect([...metadataOf(escapes).keys()].map((key) => key.length)).toEqual([14e6, 1]);
    const count = 100_000;
    const many = Array.from({ length: count }, (_, i) => `"${i}":{"dtype":"F32","shape":[0],"data_offsets":[0,0]}`);
    const tensors = parse(file(`{${many.join()}}`), 'w');
    // Numbers, too, stay in their order.
    expect([tensors.size, [...tensors.keys()].at(-1)]).toEqual([count, `${count - 1}`]);
    expect(() => parse(file(`{${[...many, many[7]].join()}}`), 'w')).toThrow('the header has "7" twice');
    expect(() => parse(file(`{"a":${'['.repeat(1e7)}`), 'w')).toThrow(HoldfastError);
    expect(() => parse(file(`{"a":${'{"a":'.repeat(1e6)}1${'}'.repeat(1e6)}}`), 'w')).toThrow(HoldfastError);
  });

  test('a message is a line that can be read', () => {
    const shape = JSON.stringify(new Array(1e5).fill(1));
    const long = file(`{"${'n'.repeat(1e6)}":{"dtype":"F32","shape":${shape},"data_offsets":[0,0]}}`);
    expect(() => parse(long, 'w')).toThrow(/^w: tensor "n{199}\.\.\. has 0 bytes, .{100,300}$/);
  });

  test('the header is what JSON.parse reads, whatever its spaces and escapes', () => {
    const space = fc.stringMatching(/^[ \t\n\r]{0,2}$/);
    const member = fc.tuple(fc.string({ unit: 'binary', maxLength: 5 }), fc.string({ unit: 'binary', maxLength: 5 }));
    const unique = fc.uniqueArray(member, { selector: ([key]) => key, maxLength: 5 });
    fc.assert(
      fc.property(unique, space, (members, s) => {
        const inside = members
          .map(([k, v]) => [JSON.stringify(k), JSON.stringify(v)].join(`${s}:${s}`))
          .join(`${s},${s}`);
        const text = `${s}{${s}"__metadata__"${s}:${s}{${s}${inside}${s}}${s}}${s}`;
        expect([...metadataOf(file(text))]).toEqual(members);
        expect(Object.fromEntries(members)).toEqual(JSON.parse(text)['__metadata__']);
      }),
      { seed: 1, numRuns: 500 },
    );
  });

  test('every truncation is detected', async () => {
    const bytes = serialize([['a', { shape: [3], data: Float32Array.of(1, 2, 3) }]], { k: 'v' });
    for (let length = 0; length < bytes.length; length++) {
      expect(() => parse(bytes.subarray(0, length), 'w')).toThrow(HoldfastError);
      await expect(opened(bytes.subarray(0, length))).rejects.toThrow(HoldfastError);
    }
  });

  test('random corruption gives a HoldfastError in one line that names the file, or tensors that fit', async () => {
    const flips = fc.array(fc.tuple(fc.nat(400), fc.nat(255)), { minLength: 1, maxLength: 4 });
    await fc.assert(
      fc.asyncProperty(files, flips, async (list, changes) => {
        const bytes = serialize(list);
        for (const [at, value] of changes) bytes[at % bytes.length] = value;
        try {
          for (const { shape, data } of parse(bytes, 'w.safetensors').values()) {
            expect(data.length).toBe(shape.reduce((a, b) => a * b, 1));
          }
        } catch (error) {
          if (!(error instanceof HoldfastError)) throw error;
          expect(error.message).toMatch(/^w\.safetensors: .+$/);
          await expect(readAll(bytes)).rejects.toThrow(error);
        }
      }),
      { numRuns: 500 },
    );
  });
});
