// Images as the preprocessor_config.json of published vision models asks for them: the numbers of Pillow and NumPy for DeiT's
// file, their effect on what is measured and trained, the file in checkpoints, and what is refused by name.

import { describe, expect, test } from 'vitest';
import { parseConfig } from '../../src/formats/config.ts';
import { type ImagePreparation, preparationIn, preprocessorFile } from '../../src/formats/preprocessor.ts';
import { examplesToTest } from '../../src/train/run/class-data.ts';
import { chooseVariants } from '../choose-variants.ts';
import { png } from '../data/png-writer.ts';
import { EVERY_CASE } from '../host.ts';
import { MemoryFiles, memoryHost } from '../memory-files.ts';
import { done } from './in-process.ts';
import { QUICK } from './published-bert.ts';

chooseVariants(5);

/** As facebook/deit-base-patch16-224 has it, with sizes of 8 for 256 and of 6 for 224. */
const DEIT = {
  ...{ crop_size: 6, do_center_crop: true, do_normalize: true, do_resize: true },
  ...{ feature_extractor_type: 'DeiTFeatureExtractor', image_mean: [0.485, 0.456, 0.406] },
  ...{ image_std: [0.229, 0.224, 0.225], resample: 3, size: 8 },
};
/** As google/vit-base-patch16-224 has it. */
const VIT = {
  ...{ do_normalize: true, do_rescale: true, do_resize: true, image_mean: [0.5, 0.5, 0.5], image_std: [0.5, 0.5, 0.5] },
  ...{ image_processor_type: 'ViTImageProcessor', resample: 2, rescale_factor: 0.00392156862745098 },
  size: { height: 6, width: 6 },
};
const config = parseConfig(
  {
    ...{ model_type: 'vit', architectures: ['ViTForImageClassification'], image_size: 6, patch_size: 3 },
    ...{ hidden_size: 8, intermediate_size: 16, num_hidden_layers: 1, num_attention_heads: 2 },
    ...{ id2label: { 0: 'a', 1: 'b' }, label2id: { a: 0, b: 1 } },
  },
  'the config',
);
const labels = { id2label: { 0: 'a', 1: 'b' }, label2id: { a: 0, b: 1 } };

const prepared = (fields: object) =>
  preparationIn(new MemoryFiles({ 'm/preprocessor_config.json': JSON.stringify(fields) }), 'm', config);

async function pixelsOf(images: ImagePreparation | undefined, values: number[], width: number, height: number) {
  const files = { 'd/a/1.png': png(Uint8Array.from(values), { width, height, kind: 2 }) };
  const sources = { config, labels, data: ['d'], seq: 5, images, tokenizer: undefined as never };
  const { pixels } = await (await examplesToTest(memoryHost(new MemoryFiles(files)), sources)).batch([0]);
  return pixels as Float32Array;
}

/** 4 rows of 5 pixels of 3 channels. */
const PICTURE = Array.from({ length: 60 }, (_, i) => (i * 37 + 11) % 256);

test('DeiT’s: the middle of a bicubically resized picture, normalised, to the last bit of Pillow and NumPy', async () => {
  const found = await pixelsOf(await prepared(DEIT), PICTURE, 5, 4);
  const firstRows = [
    ...[-1.1075435876846313, 0.19393789768218994, 1.0501755475997925, 0.7248052358627319, -0.4739275872707367],
    ...[0.6391814351081848, -0.17997196316719055, 0.8354342579841614, -1.0553220510482788, -1.3529410362243652],
    ...[0.18767505884170532, 1.0455182790756226, 0.7402180433273315, 1.803398847579956, -0.14867094159126282],
    ...[-0.3752504587173462, 1.1410894393920898, -0.28810447454452515],
  ];
  expect([0, 36, 72].flatMap((at) => [...found.subarray(at, at + 6)])).toEqual(firstRows);
  expect(found.reduce((sum, value) => sum + value, 0)).toBeCloseTo(46.06031354237348, 10);
});

test('the usual file changes no bit, and so does none', async () => {
  const wide = Array.from({ length: 108 }, (_, i) => (i * 89) % 256);
  const without = await pixelsOf(undefined, wide, 6, 6);
  for (const fields of [VIT, { ...VIT, image_mean: 0.5, image_std: [0.5], size: 6 }, {}])
    expect(await pixelsOf(await prepared(fields), wide, 6, 6)).toEqual(without);
  expect([...without]).toEqual(
    Array.from({ length: 108 }, (_, i) => Math.fround((wide[(i % 36) * 3 + Math.floor(i / 36)] ?? 0) / 127.5 - 1)),
  );
});

test('bytes stay what they are where nothing is done, of one size', async () => {
  const raw = { ...VIT, do_rescale: false, do_normalize: false, do_resize: false };
  const wide = Array.from({ length: 108 }, (_, i) => (i * 89) % 256);
  const found = await pixelsOf(await prepared(raw), wide, 6, 6);
  expect([...found.subarray(36, 40)]).toEqual([wide[1], wide[4], wide[7], wide[10]]);
  const halves = { ...raw, do_rescale: true, rescale_factor: 0.5 };
  expect(await pixelsOf(await prepared(halves), wide, 6, 6)).toEqual(found.map((byte) => byte / 2));
  for (const images of [await prepared(raw), { crop: { height: 1, width: 1 } }])
    await expect(pixelsOf(images, PICTURE, 5, 4)).rejects.toThrow(
      'd/a/1.png: is of 4 x 5 pixels, and the model’s preprocessor_config.json brings no image'.replace('’', "'"),
    );
});

test.each([DEIT, VIT, { ...VIT, do_resize: false, do_normalize: false }])(
  'what is written of it says the same (%#)',
  async (fields) => {
    const found = await prepared(fields);
    const written = JSON.parse(preprocessorFile(found, config) ?? '') as object;
    expect(await prepared(written)).toEqual(found);
  },
);

test('what is measured and trained goes by it, and its checkpoints say so', async () => {
  const images = (name: string, of: (value: number) => number) =>
    Object.fromEntries(
      ['a', 'b'].flatMap((label, i) =>
        Array.from({ length: 4 }, (_, n) => {
          const values = Uint8Array.from({ length: 108 }, (_, at) => of((at * (7 + 5 * n) + 90 * i) % 256));
          return [`${name}/${label}/${n}.png`, png(values, { width: 6, height: 6, kind: 2 })];
        }),
      ),
    );
  const here = new MemoryFiles({ ...images('d', (value) => value), ...images('inverted', (value) => 255 - value) });
  const shape = ['--model', 'vit', '--layers', '1', '--width', '8', '--heads', '2', '--patch', '3'];
  await done(here, ['train', ...shape, '--data', 'd', '--out', 'run', ...QUICK, '--lr', '5e-2']);
  const folder = 'run/checkpoint-2';
  expect(JSON.parse(new TextDecoder().decode(await here.read(`${folder}/preprocessor_config.json`)))).toMatchObject(
    VIT,
  );
  const lossOf = async (model: string, data: string) =>
    (JSON.parse(await done(here, ['eval', model, '--data', data, '--json'])) as { loss: number }).loss;
  const before = await lossOf('run', 'd');
  expect(Math.abs((await lossOf('run', 'inverted')) - before)).toBeGreaterThan(1e-4);
  for (const name of ['config.json', 'model.safetensors'])
    await here.writeAtomic(`m/${name}`, await here.read(`${folder}/${name}`));
  const ask = (fields: object) => here.writeAtomic('m/preprocessor_config.json', JSON.stringify({ ...VIT, ...fields }));
  // The picture upside down, and the deviation below 0: the same but for rounding.
  await ask({ image_std: [-0.5, -0.5, -0.5] });
  expect(Math.abs((await lossOf('m', 'inverted')) - before)).toBeLessThan(1e-6);
  const { image_mean, image_std } = DEIT;
  await ask({ image_mean, image_std });
  const withMeans = await lossOf('m', 'd');
  expect(Math.abs(withMeans - before)).toBeGreaterThan(5e-6);
  // A run in two parts is the run in one, and its model is measured as it was trained.
  const tune = ['finetune', 'm', '--data', 'd', ...QUICK, '--lr', '1e-2'];
  await done(here, [...tune, '--out', 'whole']);
  const weights = (run: string) => here.read(`${run}/checkpoint-2/model.safetensors`);
  if (EVERY_CASE) {
    await done(here, [...tune, '--out', 'parts', '--until', '1']);
    await done(here, ['train', '--resume', '--out', 'parts']);
    expect(await weights('parts')).toEqual(await weights('whole'));
  }
  const saved = await here.read('whole/checkpoint-2/preprocessor_config.json');
  expect(JSON.parse(new TextDecoder().decode(saved))).toMatchObject({ image_mean, image_std });
  await here.writeAtomic('m/model.safetensors', await weights('whole'));
  expect(await lossOf('whole', 'd')).toBe(await lossOf('m', 'd'));
});

describe('refused by name:', () => {
  const HERE = 'm/preprocessor_config.json: ';
  test.each<[object, string]>([
    [{ ...VIT, resample: 1 }, 'resample is 1; images are read with 2, bilinear, or 3, bicubic here'],
    [{ ...VIT, size: 8 }, "size is 8; the model's images are of 6 x 6"],
    [{ ...VIT, size: { shortest_edge: 6 } }, 'size is {shortest_edge}; it must be a height and a width'],
    [{ ...DEIT, crop_size: 5 }, "crop_size is 5; the model's images are of 6 x 6"],
    [{ ...DEIT, size: 5 }, 'crop_size is 6; no more than the size, 5 x 5, is there to be cut'],
    [
      { ...DEIT, size: { height: 1e9, width: 1e9 } },
      'size is {height, width}; it must be a height and a width, each a whole number from 1 to 8192',
    ],
    [{ ...DEIT, size: 1e12 }, 'size is 1000000000000; it must be a height and a width, each a whole number from 1'],
    [{ ...VIT, crop_pct: 0.875 }, 'crop_pct is 0.875'],
    [{ ...VIT, image_mean: [0.5, 0.5] }, 'image_mean is [0.5, 0.5]; it must be a number for each of the 3 channels'],
    [{ ...VIT, image_std: [0.2, 0, 0.2] }, 'image_std is [0.2, 0, 0.2]; it must be a number other than 0'],
    [
      { ...VIT, image_std: [0.2, 1e-50, 0.2] },
      'rescale_factor is 0.00392156862745098; with the mean and the deviation it makes -Infinity of a byte',
    ],
    [{ ...VIT, rescale_factor: 1e38 }, 'rescale_factor is 1e+38; with the mean and the deviation it makes Infinity'],
    [{ ...VIT, rescale_factor: 'x' }, 'rescale_factor is "x"; it must be a number'],
    [{ ...VIT, do_normalize: 1 }, 'do_normalize is 1; it must be true or false'],
    [[VIT], 'is a list of 1, not an object'],
    [{ ...VIT, size: { 'a\nb': 6 } }, 'size is {a b}; it must be a height and a width'],
    [{ ...VIT, 'do_\nx': 1 }, 'do_ x is 1; images are resized, cut'],
    [{ ...VIT, do_pad: true }, 'do_pad is true; images are resized, cut'],
    [{ ...VIT, do_flip_channel_order: true }, 'do_flip_channel_order is true; images are'],
  ])('%j', async (fields, message) => {
    await expect(prepared(fields)).rejects.toThrow(HERE + message);
  });

  test('a picture that takes too much memory on its way', async () => {
    const images = await prepared({ ...DEIT, size: 8192 });
    await expect(
      pixelsOf(
        images,
        Array.from({ length: 90_000 }, () => 0),
        1,
        30_000,
      ),
    ).rejects.toThrow(
      'd/a/1.png: is of 30000 x 1 pixels, 737 MB when it is 8192 wide; 537 MB at most are held for one, use a smaller one',
    );
  });

  test('a set of one file, which is not cut', async () => {
    const here = memoryHost(new MemoryFiles({ 'data_batch_1.bin': new Uint8Array(3073) }));
    const larger = parseConfig({ ...config, image_size: 32, patch_size: 16 }, 'the config');
    const images = await preparationIn(
      new MemoryFiles({ 'm/preprocessor_config.json': JSON.stringify({ ...DEIT, size: 40, crop_size: 32 }) }),
      ...(['m', larger] as const),
    );
    const sources = { config: larger, labels, data: ['data_batch_1.bin'], seq: 5, tokenizer: undefined as never };
    await expect(examplesToTest(here, { ...sources, images })).rejects.toThrow(
      'preprocessor_config.json: do_center_crop is true, which is done with PNG images alone',
    );
  });
});
