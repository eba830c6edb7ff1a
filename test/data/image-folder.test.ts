// Folders of PNG images: which class and which set a file is of, pixels of every kind of colour, filter and interlacing beside a
// writer of its own; and hostile files, of which each is one line that names it, and takes no memory.

import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { deflateSync } from 'node:zlib';
import fc from 'fast-check';
import { describe, expect, test } from 'vitest';
import { type Images, openImages } from '../../src/data/images.ts';
import { decodePng, pngHeader } from '../../src/data/png.ts';
import { HoldfastError } from '../../src/util/errors.ts';
import { testHost } from '../host.ts';
import { MemoryFiles, memoryHost } from '../memory-files.ts';
import { chunk, type PngOptions, png } from './png-writer.ts';

const open = (files: Record<string, Uint8Array>, ...sources: string[]): Promise<Images> =>
  openImages(memoryHost(new MemoryFiles(files)), sources);
const read = async (file: Uint8Array<ArrayBuffer>) => {
  const header = pngHeader(file, 'x.png');
  return { ...header, pixels: await decodePng(file, header, 'x.png') };
};

/** A grey image whose pixels all are that. */
const grey = (value: number, width = 3, height = 2, more: Partial<PngOptions> = {}) =>
  png(new Uint8Array(width * height).fill(value), { width, height, kind: 0, ...more });

describe('pixels', () => {
  test('of grey, RGB, with alpha or without, under every filter, interlaced or not', async () => {
    const drawn = fc.asyncProperty(
      fc.constantFrom(0 as const, 2 as const, 4 as const, 6 as const),
      fc.integer({ min: 1, max: 11 }),
      fc.integer({ min: 1, max: 11 }),
      fc.boolean(),
      fc.array(fc.integer({ min: 0, max: 4 }), { minLength: 1, maxLength: 5 }),
      fc.infiniteStream(fc.integer({ min: 0, max: 255 })),
      async (kind, width, height, interlaced, filters, values) => {
        const stored = { 0: 1, 2: 3, 4: 2, 6: 4 }[kind];
        const samples = Uint8Array.from(values.take(width * height * stored));
        const filter = (row: number) => filters[row % filters.length] ?? 0;
        const found = await read(png(samples, { width, height, kind, interlaced, filter }));
        const channels = stored > 2 ? 3 : 1;
        expect(found).toMatchObject({ width, height, channels });
        const wanted = Array.from({ length: channels }, (_, channel) =>
          Array.from({ length: width * height }, (_, i) => samples[i * stored + channel]),
        ).flat();
        expect([...found.pixels]).toEqual(wanted);
      },
    );
    await fc.assert(drawn, { seed: 11, numRuns: 150 });
  });

  test.each([1, 2, 4, 8])('of a palette, %d bits a pixel', async (depth) => {
    const palette = Array.from({ length: 3 * Math.min(2 ** depth, 20) }, (_, i) => (37 * i) % 256);
    const colours = palette.length / 3;
    const samples = Array.from({ length: 5 * 3 }, (_, i) => (7 * i) % colours);
    const alpha = chunk('tRNS', [0, 255]);
    const found = await read(png(samples, { width: 5, height: 3, kind: 3, depth, palette }));
    expect(found.channels).toBe(3);
    const wanted = [0, 1, 2].flatMap((channel) => samples.map((colour) => palette[3 * colour + channel]));
    expect([...found.pixels]).toEqual(wanted);
    expect((await read(png(samples, { width: 5, height: 3, kind: 3, depth, palette, extra: [alpha] }))).pixels).toEqual(
      found.pixels,
    );
  });

  test('of a large image, whose compressed bytes are many', async () => {
    const samples = Uint8Array.from({ length: 270 * 261 }, (_, i) => (i * i * 31 + (i >> 3)) % 251);
    const { pixels } = await read(png(samples, { width: 270, height: 261, kind: 0, interlaced: true }));
    expect(pixels.findIndex((value, i) => value !== samples[i])).toBe(-1);
  });
});

test('an image that another thing took the place of since it was found is not read', async () => {
  const files = new MemoryFiles({ 'd/cat/a.png': grey(1), 'd/dog/b.png': grey(2) });
  const { stat } = files;
  let seen = 0;
  files.stat = async (path) =>
    path === 'd/dog/b.png' && seen++ > 0 ? { kind: 'pipe', bytes: 0 } : stat.call(files, path);
  await expect(openImages(memoryHost(files), ['d'])).rejects.toThrow('d/dog/b.png: is a pipe, not a file');
});

describe('folders', () => {
  test('classes are the folders, in order of their names; what is no image is passed over', async () => {
    const found = await open(
      {
        ...{ 'd/dog/b.png': grey(3), 'd/cat/b.png': grey(2), 'd/cat/a.png': grey(1), 'd/Zebra/x/y/1.PNG': grey(4) },
        ...{ 'd/cat/._a.png': Uint8Array.of(1), 'd/notes.txt': Uint8Array.of(65) },
      },
      'd',
    );
    expect(found).toMatchObject({ channels: 1, height: 2, width: 3, classes: 3, classNames: ['Zebra', 'cat', 'dog'] });
    expect(found.names).toEqual(['d/Zebra/x/y/1.PNG', 'd/cat/a.png', 'd/cat/b.png', 'd/dog/b.png']);
    expect([...found.train.labels]).toEqual([0, 1, 1, 2]);
    expect([...found.train.pixels]).toEqual([4, 1, 2, 3].flatMap((value) => Array.from({ length: 6 }, () => value)));
    expect(found.test).toBeUndefined();
  });

  test('however slashes are written, a class has its whole name', async () => {
    const folder = mkdtempSync(path.join(tmpdir(), 'holdfast-images-'));
    for (const name of ['cat', 'bat']) {
      mkdirSync(path.join(folder, 'd', name), { recursive: true });
      writeFileSync(path.join(folder, 'd', name, '1.png'), grey(1));
    }
    for (const source of ['d', 'd/', 'd//', '/d', './/d//', 'd/./']) {
      const { classNames } = await openImages(testHost, [`${folder}/${source}`]);
      expect(classNames, source).toEqual(['bat', 'cat']);
    }
    rmSync(folder, { recursive: true });
  });

  test('what tests lies apart, and may have classes of its own; a folder whose name begins like that does not', async () => {
    const files = {
      ...{ 'm/training/0/1.png': grey(1), 'm/training/7/1.png': grey(2) },
      ...{ 'm/testing/0/1.png': grey(3), 'm/testing/8/2.png': grey(4) },
    };
    const found = await open(files, 'm');
    expect(found.classNames).toEqual(['0', '7', '8']);
    expect([...found.train.labels]).toEqual([0, 1]);
    expect([...(found.test?.labels ?? [])]).toEqual([0, 2]);
    const other = await open({ 'test-data/testudo/1.png': grey(1), 'test-data/train/2.png': grey(2) }, 'test-data');
    expect(other.classNames).toEqual(['testudo', 'train']);
  });

  test('grey images among coloured ones are as much of each colour, and many classes are numbered', async () => {
    const files = Object.fromEntries(
      Array.from({ length: 300 }, (_, i) => [`d/${String(i).padStart(3, '0')}/1.png`, grey(i % 256, 1, 1)]),
    );
    const red = png([9, 8, 7, 6], { width: 1, height: 1, kind: 6 });
    const found = await open({ ...files, 'd/299/2.png': red }, 'd');
    expect(found.channels).toBe(3);
    expect([...found.train.pixels.slice(-6)]).toEqual([43, 43, 43, 9, 8, 7]);
    expect([...found.train.labels.slice(-3)]).toEqual([298, 299, 299]);
  });
});

describe('what is refused in one line', () => {
  const good = grey(7, 8, 8);
  const withHeader = (change: (header: DataView) => void) => {
    const file = good.slice();
    change(new DataView(file.buffer, 16));
    return file;
  };
  const flipped = good.slice();
  flipped[50] = (flipped[50] ?? 0) ^ 1;
  const bomb = deflateSync(new Uint8Array(2 ** 27));
  const cases: [string, Record<string, Uint8Array>, string][] = [
    ['no class', { 'd/1.png': good }, 'd/1.png: lies in no folder of a class; give each class a folder of its name'],
    [
      'another size',
      { 'd/a/1.png': good, 'd/b/1.png': grey(7, 8, 7) },
      'd/b/1.png: is of 7 x 8 pixels, d/a/1.png of 8 x 8',
    ],
    ['a JPEG', { 'd/a/1.png': good, 'd/b/1.jpg': good }, 'd/b/1.jpg: is no PNG, as other images there are'],
    ['JPEGs alone', { 'd/b/1.jpeg': good }, 'd/b/1.jpeg: is no PNG; images of folders are read as PNG'],
    [
      'another file',
      { 'd/a/1.png': Uint8Array.from({ length: 99 }, (_, i) => i) },
      'd/a/1.png: is no PNG image; copy it again',
    ],
    ['nothing', { 'd/a/1.png': new Uint8Array() }, 'd/a/1.png: is no PNG image'],
    [
      'an absurd size',
      { 'd/a/1.png': withHeader((v) => v.setUint32(0, 0xffffffff)) },
      'd/a/1.png: says that it has 4294967295 x 8 pixels',
    ],
    ['no pixels', { 'd/a/1.png': withHeader((v) => v.setUint32(4, 0)) }, 'd/a/1.png: says that it has 8 x 0 pixels'],
    [
      'a kind of no colour',
      { 'd/a/1.png': withHeader((v) => v.setUint8(9, 5)) },
      'd/a/1.png: has a header that is none of PNG',
    ],
    [
      '16 bits',
      { 'd/a/1.png': withHeader((v) => v.setUint8(8, 16)) },
      'd/a/1.png: has 16 bits a channel; save it with 8 bits',
    ],
    ['one bit', { 'd/a/1.png': grey(0, 8, 8, { depth: 1 }) }, 'd/a/1.png: has 1 bits a channel; save it with 8 bits'],
    ['another bit', { 'd/a/1.png': flipped }, 'd/a/1.png: is damaged ('],
    [
      'a larger size than its pixels',
      { 'd/a/1.png': grey(1, 8, 8, { data: deflateSync(new Uint8Array(9 * 7)) }) },
      'd/a/1.png: is damaged (',
    ],
    [
      'a bomb',
      { 'd/a/1.png': grey(0, 8, 8, { data: bomb }) },
      'd/a/1.png: holds more than the 8 x 8 pixels that it says',
    ],
    ['tests alone', { 'd/test/a/1.png': good }, 'd: no images to train on, all are to test with'],
  ];
  test.each(cases)('%s', async (_, files, message) => {
    const error = await open(files, 'd').catch((error: unknown) => error);
    expect(error).toBeInstanceOf(HoldfastError);
    expect((error as Error).message).toContain(message);
    expect((error as Error).message).not.toContain('\n');
  });

  test('a colour profile that would become large is never unpacked', async () => {
    const profile = chunk('iCCP', [120, 0, 0, ...bomb.subarray(0, 60_000)]);
    expect([...(await read(grey(5, 2, 1, { extra: [profile] }))).pixels]).toEqual([5, 5]);
  });

  test('a file that ends anywhere, and one of which any byte is another: read, or one line', async () => {
    for (let end = 0; end < good.length; end++)
      await expect(open({ 'd/a/1.png': good.slice(0, end) }, 'd')).rejects.toThrow(
        /^d\/a\/1\.png: is (no PNG|cut short)/,
      );
    const drawn = fc.asyncProperty(fc.nat(good.length - 1), fc.integer({ min: 1, max: 255 }), async (place, change) => {
      const file = good.slice();
      file[place] = (file[place] ?? 0) ^ change;
      const found = await open({ 'd/a/1.png': file }, 'd').catch((error: unknown) => error);
      if (found instanceof Error) {
        expect(found).toBeInstanceOf(HoldfastError);
        expect(found.message).toMatch(/^d\/a\/1\.png: [^\n]+$/);
      } else expect((found as Images).train.pixels.every((value) => value === 7)).toBe(true);
    });
    await fc.assert(drawn, { seed: 3, numRuns: 300 });
  });
});
