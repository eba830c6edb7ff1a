// Pieces of safetensors files that are read into memory that is used again: the values of the file whatever is read beside, two
// buffers however large a tensor is, and no file left open where reading ends early. And parts that are read to where they go.

import { expect, test } from 'vitest';
import { TensorFile } from '../../src/formats/safetensors.ts';
import type { FolderReader } from '../../src/runtime/host.ts';
import { Random } from '../../src/util/random.ts';
import { bytesPerElement, type StoredElement } from '../../src/values/stored-elements.ts';
import { MemoryFiles } from '../memory-files.ts';
import { fileOf, floats, type Stored } from './raw-tensors.ts';

const SIZE = 100_003;
const random = new Random(5, 'values');
const values = Float32Array.from({ length: SIZE }, () => random.normal());
const halves = Uint8Array.from({ length: 2 * SIZE }, () => random.below(120));
const stored = new Map<string, Stored>([
  ['a', floats([SIZE], values)],
  ['b', { dtype: 'BF16', shape: [SIZE], bytes: halves }],
]);

/** Files that read into what they are given, as those of Node do. */
async function opened() {
  const memory = new MemoryFiles({ f: fileOf(stored) });
  const buffers = new Set<ArrayBuffer>();
  let open = 0;
  let opened = 0;
  const readRange: FolderReader['readRange'] = async (path, offset, bytes, into) => {
    const read = await memory.readRange(path, offset, bytes);
    if (!into) return read;
    into.set(read);
    buffers.add(into.buffer);
    return into.subarray(0, bytes);
  };
  const files: FolderReader = {
    ...{ read: (path) => memory.read(path), stat: (path) => memory.stat(path), list: (path) => memory.list(path) },
    ...{ sha256: () => memory.sha256(), readRange },
    async open(path) {
      open++;
      opened++;
      const { bytes, close } = await memory.open(path);
      const closed = async () => {
        open--;
        await close();
      };
      return { bytes, readRange: (...range) => readRange(path, ...range), close: closed };
    },
  };
  return { file: await TensorFile.open(files, 'f'), buffers, isOpen: () => open, opened: () => opened };
}

const widened = Float32Array.from({ length: SIZE }, (_, i) => {
  const word = new DataView(new ArrayBuffer(4));
  word.setUint16(2, halves[2 * i]! | (halves[2 * i + 1]! << 8), true);
  return word.getFloat32(0, true);
});

const isSame = (a: ArrayBufferView, b: ArrayBufferView) =>
  Buffer.from(a.buffer, a.byteOffset, a.byteLength).equals(Buffer.from(b.buffer, b.byteOffset, b.byteLength));

test('a tensor is read through two buffers, which the next one has too', async () => {
  const { file, buffers, isOpen } = await opened();
  for (const name of ['a', 'b', 'a']) {
    let at = 0;
    const wanted = name === 'a' ? values : widened;
    for await (const piece of file.pieces(name, 20_000)) {
      expect(isSame(piece, wanted.subarray(at, at + piece.length)), `${name} from ${at} on`).toBe(true);
      at += piece.length;
    }
    expect(at).toBe(SIZE);
  }
  expect(buffers.size).toBe(2);
  expect(isOpen()).toBe(0);
});

test('readers side by side have buffers of their own, and one that stops leaves nothing open', async () => {
  const { file, isOpen } = await opened();
  const [one, other] = [file.pieces('a', 20_000), file.pieces('a', 20_000)].map((pieces) =>
    pieces[Symbol.asyncIterator](),
  );
  const first = (await one?.next())?.value;
  for (let i = 0; i < 4; i++) await other?.next();
  expect(first && isSame(first, values.subarray(0, 20_000))).toBe(true);
  expect(isOpen()).toBe(2);
  await one?.return?.();
  await other?.return?.();
  expect(isOpen()).toBe(0);
});

/** Parts of odd sizes, all read at once, in memory that they share. */
async function readParts(file: TensorFile, name: string, element: StoredElement) {
  const reader = file.reader(name, element);
  expect(reader?.count).toBe(SIZE);
  const width = bytesPerElement(element);
  const memory = new Uint8Array(SIZE * width).fill(0xee);
  const seen = new Map<number, Uint8Array>();
  const parts: Promise<void>[] = [];
  for (let first = 0, size = 4; first < SIZE; first += size, size += 7_000) {
    const into = memory.subarray(first * width, Math.min(SIZE, first + size) * width);
    parts.push(reader?.read(first, into, (bytes) => seen.set(first, bytes.slice())) ?? expect.fail());
  }
  await Promise.all(parts);
  return { memory, stored: Buffer.concat([...seen].sort(([a], [b]) => a - b).map(([, bytes]) => bytes)) };
}

test.each([true, false])(
  'parts are read to where they go, widened there, by one opening (where the place can: %s)',
  async (can) => {
    const places = await opened();
    const file = can ? places.file : await TensorFile.open(new MemoryFiles({ f: fileOf(stored) }), 'f');
    const wanted = [
      ['a', 'f32', values, values],
      ['b', 'f32', widened, halves],
      ['b', 'bf16', halves, halves],
    ] as const;
    for (const [name, element, inMemory, inFile] of wanted) {
      const read = await readParts(file, name, element);
      expect(isSame(read.memory, inMemory), `${name} as ${element}`).toBe(true);
      expect(isSame(read.stored, inFile), `${name} as it is stored`).toBe(true);
    }
    if (can) expect([places.opened(), places.isOpen()]).toEqual([wanted.length, 0]);
    expect(file.reader('a', 'bf16')).toBeUndefined();
    expect(file.reader('b', 'f16')).toBeUndefined();
  },
);
