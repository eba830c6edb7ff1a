// Images brought to the size of a model: beside the filter by its definition, in floating point and all at once; values that Pillow
// is known to give; and folders of images of any size, which are what a model looks at.

import fc from 'fast-check';
import { describe, expect, test } from 'vitest';
import { openImages } from '../../src/data/images.ts';
import { resized } from '../../src/data/resize.ts';
import { MemoryFiles, memoryHost } from '../memory-files.ts';
import { png } from './png-writer.ts';

/** How much of a pixel of a row of `to` is pixel x of a row of `from`: a triangle, as wide as what it stands for and two at least. */
function share(from: number, to: number, i: number, x: number): number {
  const width = Math.max(1, from / to);
  return Math.max(0, 1 - Math.abs(x + 0.5 - ((i + 0.5) * from) / to) / width);
}

function defined(pixels: Uint8Array, from: readonly [number, number], to: readonly [number, number]): number[] {
  const [[height, width], [rows, columns]] = [from, to];
  return Array.from({ length: rows * columns }, (_, at) => {
    const [row, column] = [Math.floor(at / columns), at % columns];
    let [sum, whole] = [0, 0];
    for (let y = 0; y < height; y++) {
      for (let x = 0; x < width; x++) {
        const weight = share(height, rows, row, y) * share(width, columns, column, x);
        sum += weight * (pixels[y * width + x] ?? 0);
        whole += weight;
      }
    }
    return sum / whole;
  });
}

test('each pixel is the filter’s sum, but for the rounding of two passes', () => {
  const side = fc.integer({ min: 1, max: 14 });
  fc.assert(
    fc.property(fc.tuple(side, side), fc.tuple(side, side), fc.infiniteStream(fc.nat(255)), (from, to, values) => {
      const [size, planes] = [from[0] * from[1], 3];
      const pixels = Uint8Array.from(values.take(planes * size));
      const found = resized(pixels, { height: from[0], width: from[1] }, { height: to[0], width: to[1] });
      expect(found).toHaveLength(planes * to[0] * to[1]);
      for (let plane = 0; plane < planes; plane++) {
        const wanted = defined(pixels.subarray(plane * size, (plane + 1) * size), from, to);
        wanted.forEach((value, i) => {
          expect(Math.abs((found[plane * wanted.length + i] ?? Number.NaN) - value)).toBeLessThanOrEqual(1.001);
        });
      }
    }),
    { seed: 7, numRuns: 60 },
  );
});

describe('along a row', () => {
  const row = (values: number[], width: number) => [
    ...resized(Uint8Array.from(values), { height: 1, width: values.length }, { height: 1, width }),
  ];
  test.each<[number[], number[]]>([
    [
      [0, 255],
      [0, 64, 191, 255],
    ],
    [
      [0, 0, 255, 255],
      [36, 219],
    ],
    [[10, 20, 30, 40, 50, 60], [35]],
    [[7], [7, 7, 7]],
    [
      [1, 2, 3],
      [1, 2, 3],
    ],
  ])('%j becomes %j', (values, wanted) => {
    expect(row(values, wanted.length)).toEqual(wanted);
  });
});

describe('the bicubic filter', () => {
  const by = (values: number[], from: [number, number], to: [number, number]) => {
    const [height, width] = from;
    return [...resized(Uint8Array.from(values), { height, width }, { height: to[0], width: to[1] }, 'bicubic')];
  };
  test.each<[number[], number[]]>([
    [
      [0, 255],
      [0, 53, 202, 255],
    ],
    [
      [0, 0, 255, 255],
      [21, 234],
    ],
    [[10, 20, 30, 40, 50, 60], [35]],
    [
      [0, 255, 0, 7, 99],
      [0, 114, 253, 77, 0, 4, 63, 106],
    ],
    [
      [200, 3, 90, 255, 0, 17, 33],
      [97, 125, 17],
    ],
  ])('along a row, Pillow’s own bytes: %j becomes %j', (values, wanted) => {
    expect(by(values, [1, values.length], [1, wanted.length])).toEqual(wanted);
    expect(by(values, [values.length, 1], [wanted.length, 1])).toEqual(wanted);
  });

  test('and along both', () => {
    const picture = Array.from({ length: 20 }, (_, i) => (i * 37 + 11) % 256);
    expect(by(picture, [4, 5], [3, 7])).toEqual([
      ...[59, 84, 90, 57, 80, 119, 148, 168, 197, 184, 107, 139, 102, 37, 65, 85, 119, 156, 188, 178, 150],
    ]);
    expect(by(picture, [4, 5], [6, 3])).toEqual([
      ...[11, 86, 151, 119, 69, 106, 219, 85, 67, 154, 197, 99, 96, 174, 154, 62, 123, 194],
    ]);
  });
});

describe('a folder', () => {
  const flat = (value: number, width: number, height: number, kind: 0 | 2 = 0) =>
    png(new Uint8Array(width * height * (kind === 2 ? 3 : 1)).fill(value), { width, height, kind });
  const open = (files: Record<string, Uint8Array>, wanted?: { channels: number; height: number; width: number }) =>
    openImages(memoryHost(new MemoryFiles(files)), ['d'], { wanted });
  const files = { 'd/a/1.png': flat(9, 3, 5), 'd/b/1.png': flat(200, 8, 2, 2), 'd/b/2.png': flat(70, 4, 4) };

  test('of images of any size, grey and in colours, has those of the model', async () => {
    const { pixels, labels } = (await open(files, { channels: 3, height: 4, width: 4 })).train;
    expect([...pixels]).toEqual([9, 200, 70].flatMap((value) => new Array(48).fill(value)));
    expect([...labels]).toEqual([0, 1, 1]);
    const { channels, height, width } = await open(files, { channels: 1, height: 2, width: 6 });
    expect([channels, height, width]).toEqual([3, 2, 6]);
  });

  test('without a model is of one size', async () => {
    await expect(open(files)).rejects.toThrow('d/b/1.png: is of 2 x 8 pixels, d/a/1.png of 5 x 3; bring all images');
  });
});
