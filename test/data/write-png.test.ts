// Pixels of a page as a model sees them: the same values as from a PNG file of these pixels, which something else wrote.

import { expect, test } from 'vitest';
import { readImage } from '../../src/data/image-folder.ts';
import { encodePng } from '../../src/data/write-png.ts';
import { png } from './png-writer.ts';

const [width, height] = [7, 5];
const MODELS = [
  { channels: 3, height, width },
  { channels: 3, height: 4, width: 4 },
  {
    channels: 3,
    height: 3,
    width: 4,
    preparation: { resize: { height: 6, width: 9, filter: 'bicubic' }, crop: { height: 3, width: 4 } },
  },
] as const;
const data = Uint8ClampedArray.from({ length: width * height * 4 }, (_, i) => (i * 89 + (i >> 3) * 31) % 256);
const grey = data.map((_, i) => (i % 4 === 3 ? 255 : (data[i - (i % 4)] ?? 0)));

test('the values of a PNG of these pixels, brought to a model’s size; what is seen through is left out', async () => {
  for (const pixels of [data, grey]) {
    const [drawn, file] = [await encodePng({ width, height, data: pixels }), png(pixels, { width, height, kind: 6 })];
    for (const wanted of MODELS)
      expect(await readImage(drawn, wanted, 'drawn')).toEqual(await readImage(file, wanted, 'file'));
  }
});

test('grey pixels are an image for a model of grey images; colours are refused in one line', async () => {
  const wanted = { channels: 1, height, width };
  const samples = Uint8Array.from({ length: width * height }, (_, i) => grey[4 * i] ?? 0);
  expect(await readImage(await encodePng({ width, height, data: grey }), wanted, 'drawn')).toEqual(samples);
  await expect(readImage(await encodePng({ width, height, data }), wanted, 'drawn')).rejects.toThrow(
    'drawn: has colours, and the model knows grey images; bring a grey one',
  );
});
