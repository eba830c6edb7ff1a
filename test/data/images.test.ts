// Images as MNIST's and CIFAR's files hold them, what is refused by name, and the batches that are made of them.

import { constants, deflateRawSync, gzipSync } from 'node:zlib';
import { describe, expect, onTestFinished, test, vi } from 'vitest';
import type { Batch } from '../../src/data/batches.ts';
import { imageDataset } from '../../src/data/image-dataset.ts';
import { openImages } from '../../src/data/images.ts';
import { HoldfastError } from '../../src/util/errors.ts';
import { EVERY_CASE } from '../host.ts';
import { MemoryFiles, memoryHost } from '../memory-files.ts';

const words = (...list: number[]) => {
  const view = new DataView(new ArrayBuffer(4 * list.length));
  list.forEach((word, i) => {
    view.setUint32(4 * i, word);
  });
  return new Uint8Array(view.buffer);
};
const join = (...parts: ArrayLike<number>[]) => Uint8Array.from(parts.flatMap((part) => Array.from(part)));
const pixels = (count: number, by = 7) => Uint8Array.from({ length: count }, (_, i) => (by * i) % 256);
const labels = (count: number) => Uint8Array.from({ length: count }, (_, i) => i % 3);
const idxImages = (count: number) => join(words(0x803, count, 4, 6), pixels(24 * count));
const idxLabels = (count: number) => join(words(0x801, count), labels(count));
/** Records of CIFAR, with so many bytes of labels. */
const cifar = (count: number, labelBytes: number) =>
  join(
    ...Array.from({ length: count }, (_, i) => join([9, 60].slice(0, labelBytes - 1), [i % 10], pixels(3072, i + 1))),
  );

const open = (files: Record<string, Uint8Array>, ...sources: string[]) =>
  openImages(memoryHost(new MemoryFiles(files)), sources);

describe('files of any size', () => {
  /** Of which one is said to be of 10 GB, and none that large is read. */
  class LargeFiles extends MemoryFiles {
    large = '';
    override stat = async (path: string) =>
      path === this.large ? { kind: 'file' as const, bytes: 10e9 } : super.stat(path);
    override read = async (path: string) => (path === this.large ? expect.fail('it was read') : super.read(path));
  }
  const files = new LargeFiles({
    'm/train-images-idx3-ubyte': idxImages(5),
    'm/train-labels-idx1-ubyte': idxLabels(5),
    'm/pytorch_model.bin': join([1, 2, 3, 4]),
    'm/readme.txt': join([65, 66, 67, 68]),
  });
  const found = () => openImages(memoryHost(files), ['m']);

  test('images of 10 GB are refused before they are read', async () => {
    files.large = 'm/train-images-idx3-ubyte';
    await expect(found()).rejects.toThrow(
      `${files.large}: has 10.0 GB, at most 1.07 GB are read of such a file; split it into several, or take it away`,
    );
  });

  test.each(['readme.txt', 'pytorch_model.bin'])('what is no images is passed over, and not read: %s', async (name) => {
    files.large = `m/${name}`;
    expect((await found()).names).toHaveLength(2);
  });

  test('a small file that becomes gigabytes is refused by name', async () => {
    const header = gzipSync('').subarray(0, 10);
    const piece = deflateRawSync(new Uint8Array(2 ** 26), { finishFlush: constants.Z_FULL_FLUSH });
    const bomb = Buffer.concat([header, ...Array.from({ length: EVERY_CASE ? 17 : 1 }, () => piece)]);
    // What gigabytes take to unpack, in pieces of 16 KB, is the runtime's own; here one piece is all of them.
    if (!EVERY_CASE) {
      const unpacked = new Uint8Array(2 ** 24);
      const transform = (_: Uint8Array, to: TransformStreamDefaultController) => {
        for (let pieces = 0; pieces < 65; pieces++) to.enqueue(unpacked);
      };
      vi.stubGlobal(
        'DecompressionStream',
        new Proxy(DecompressionStream, { construct: () => new TransformStream({ transform }) }),
      );
      onTestFinished(() => void vi.unstubAllGlobals());
    }
    await expect(open({ 'm/images.gz': bomb }, 'm')).rejects.toThrow(
      'm/images.gz: unpacked, it has more than 1.07 GB; split it into several, or take it away',
    );
  });
});

describe('files', () => {
  test("MNIST's, as they are or packed, with what tests apart", async () => {
    const plain = {
      'm/train-images-idx3-ubyte': idxImages(5),
      'm/train-labels-idx1-ubyte': idxLabels(5),
      'm/t10k-images-idx3-ubyte': idxImages(2),
      'm/t10k-labels-idx1-ubyte': idxLabels(2),
      'm/readme.txt': join([65, 66]),
    };
    const found = await open(plain, 'm');
    expect(found).toMatchObject({ channels: 1, height: 4, width: 6, classes: 3 });
    expect(found.train).toEqual({ pixels: pixels(120), labels: labels(5) });
    expect(found.test).toEqual({ pixels: pixels(48), labels: labels(2) });
    expect(found.names).toHaveLength(4);
    const packed = Object.fromEntries(
      Object.entries(plain).map(([name, bytes]) => [`${name}.gz`, Uint8Array.from(gzipSync(bytes))]),
    );
    const { names: _, ...again } = await open(packed, 'm');
    expect(found).toMatchObject(again);
  });

  test.each([
    ['CIFAR-10', 1, 10],
    ['CIFAR-100', 2, 100],
  ])("%s's", async (_, labelBytes, classes) => {
    const files = { 'c/data_batch_1.bin': cifar(3, labelBytes), 'c/data_batch_2.bin': cifar(2, labelBytes) };
    const found = await open({ ...files, 'c/test_batch.bin': cifar(1, labelBytes) }, 'c');
    const below = await open({ 'tests/c/data_batch_1.bin': cifar(3, labelBytes) }, 'tests/c');
    expect([below.train.labels.length, below.test]).toEqual([3, undefined]);
    expect(found).toMatchObject({ channels: 3, height: 32, width: 32, classes });
    expect([...found.train.labels]).toEqual([0, 1, 2, 0, 1]);
    expect(found.train.pixels.slice(3072, 2 * 3072)).toEqual(pixels(3072, 2));
    expect(found.test?.labels).toEqual(Uint8Array.of(0));
  });

  test.each<[string, Record<string, Uint8Array>, string]>([
    ['no images', { 'd/a.txt': Uint8Array.of(1, 2) }, 'd: no images to train on; name the folder of MNIST'],
    ['images without labels', { 'd/train-images': idxImages(2) }, 'd/train-images: 2 images and 0 labels'],
    [
      'a file cut short',
      { 'd/train-images': idxImages(2).slice(0, 40) },
      'd/train-images: has 24 bytes behind its header, which says 48',
    ],
    ['damaged gzip', { 'd/x.gz': Uint8Array.of(0x1f, 0x8b, 3, 4) }, 'd/x.gz: is damaged'],
    [
      'a class that is none',
      { 'd/data_batch_1.bin': cifar(2, 1).fill(11, 0, 1) },
      'd/data_batch_1.bin: image 0 is of class 11, there are 10',
    ],
    [
      'images of several sizes',
      { 'd/a': idxImages(1), 'd/b': idxLabels(2), 'd/data_batch_1.bin': cifar(1, 1), 'd/c': idxLabels(127) },
      'd: images of several sizes',
    ],
  ])('%s: one clear line', async (_, files, message) => {
    await expect(open(files, 'd')).rejects.toThrow(HoldfastError);
    await expect(open(files, 'd')).rejects.toThrow(message);
  });
});

describe('batches', () => {
  const options = { batch: 4, seq: 65, seed: 1, evalWindows: 64 };
  const files = { 'm/train-images': idxImages(23), 'm/train-labels': idxLabels(23) };
  /** Which image each row is, by its first pixels. */
  const seen = (batch: Batch) => {
    const values = batch['pixels'] as Float32Array;
    return Array.from({ length: batch.batch }, (_, row) => {
      const first = [0, 1].map((i) => Math.round((values[24 * row + i]! + 1) * 127.5));
      return Array.from({ length: 23 }, (_, i) => i).find((i) => pixels(24 * 23)[24 * i] === first[0]);
    });
  };

  test('each epoch has every image once, none of which is held back, and goes on where it was', async () => {
    const images = await open(files, 'm');
    const dataset = await imageDataset(images, options);
    const heldBack = seen(dataset.validation);
    expect(heldBack).toHaveLength(2);
    const epoch = () => Array.from({ length: 21 }, () => 0);
    const rows: (number | undefined)[] = [];
    while (rows.length < 2 * 21) rows.push(...seen(await dataset.next()));
    for (const part of [rows.slice(0, 21), rows.slice(21, 42)]) {
      expect(new Set(part).size).toBe(epoch().length);
      expect(part.filter((image) => heldBack.includes(image))).toEqual([]);
    }
    expect(rows.slice(0, 21)).not.toEqual(rows.slice(21, 42));
    expect(dataset.rowsIn(3)).toBe(63);
    const state = dataset.state();
    const wanted = await dataset.next();
    const other = await imageDataset(images, options);
    other.restore(state);
    expect(await other.next()).toEqual(wanted);
    expect(() => other.restore([0, 22])).toThrow('place 22 of epoch 0');
  });

  test('pixels are from -1 to 1, and synthetic images are the same each time', async () => {
    const images = await open({}, 'synthetic');
    const { pixels: values, targets } = await (await imageDataset(images, options)).next();
    const list = values as Float32Array;
    expect(list).toHaveLength(4 * 3072);
    expect(list.every((value) => value >= -1 && value <= 1)).toBe(true);
    expect((targets as Int32Array).every((target) => target >= 0 && target < 10)).toBe(true);
    expect((await open({}, 'synthetic')).identity).toEqual(images.identity);
    expect((await imageDataset(images, options)).validation.batch).toBe(64);
  });
});
