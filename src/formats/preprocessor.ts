// Preparation of images for a vision model, as preprocessor_config.json says it beside published models: brought to a
// size, cut to their middle, their bytes scaled, each channel normalised. How it is done is data/resize.ts and
// data/image-dataset.ts.
//
// Invariant: a field with another meaning than what is done here is refused by name; what comes out of `preprocessorFile` reads as it was.

import { type FolderReader, join } from '../runtime/host.ts';
import { readJSON } from '../runtime/read-whole.ts';
import { formatBytes } from '../util/bytes.ts';
import { HoldfastError, shortened } from '../util/errors.ts';
import { isObject, list, number, object, oneOf, optional, type Schema, show } from '../util/json.ts';
import { describeRange, inRange, realNumber, wholeNumber } from '../util/range.ts';
import { checkSums } from './checkpoint/checksums.ts';
import { OTHER_CHECKPOINT, PREPROCESSOR } from './checkpoint/folder.ts';
import type { ModelConfig } from './config.ts';
import { imagesIn } from './families/index.ts';

/** How many pixels an image has. */
export interface PictureSize {
  readonly height: number;
  readonly width: number;
}

/** Pillow's numbers. */
export const FILTERS = { bilinear: 2, bicubic: 3 } as const;
/** How an image is brought to another size. */
export type Filter = keyof typeof FILTERS;

/** What is done with images, in this order. */
export interface ImagePreparation {
  /** They are brought to this size. @default they have one already */
  readonly resize?: PictureSize & { readonly filter: Filter };
  /** Their middle is left. @default all of them */
  readonly crop?: PictureSize;
  /** A byte becomes (byte x factor - mean) / std, of its channel or of all. @default from -1 to 1 */
  readonly pixels?: { readonly factor: number; readonly mean: readonly number[]; readonly std: readonly number[] };
}

/** Pixels along a side that images are brought to. */
const SIDE = wholeNumber(1, 2 ** 13);
/** Of the pixels of one that has its width and not yet its height. */
const MOST_IMAGE_BYTES = 2 ** 29;

const side = number(SIDE);
const size = { height: side, width: side };
const real = number(realNumber(-Number.MAX_VALUE, Number.MAX_VALUE));
/** What a run's settings hold of it. */
export const imagePreparation: Schema<ImagePreparation> = object({
  resize: optional(object({ ...size, filter: oneOf(Object.keys(FILTERS) as Filter[]) })),
  crop: optional(object(size)),
  pixels: optional(object({ factor: real, mean: list(real), std: list(real) })),
});

const BYTE = 1 / 255;
const HALF = 0.5;
/** What would change pixels in a way that is none of these; grey among colours is as much of each here, too. */
const IS_STEP = /^do_(?!resize$|center_crop$|rescale$|normalize$|convert_rgb$)/;

/**
 * What the file beside a vision model says; undefined where there is none. Errors: HoldfastError naming the file where it is
 * another than was saved, and the field that asks for something else, or does not suit the model.
 */
export async function preparationIn(
  files: FolderReader,
  folder: string,
  config: ModelConfig,
): Promise<ImagePreparation | undefined> {
  const path = join(folder, PREPROCESSOR);
  const images = imagesIn(config);
  if (!images || !(await files.stat(path))) return undefined;
  await checkSums(files, folder, [PREPROCESSOR]);
  const json = await readJSON(files, path, OTHER_CHECKPOINT);
  if (!isObject(json)) throw new HoldfastError(`${path}: is ${show(json)}, not an object; ${OTHER_CHECKPOINT}`);
  return preparationOf(json, path, images);
}

function preparationOf(
  json: Readonly<Record<string, unknown>>,
  path: string,
  model: PictureSize & { readonly channels: number },
): ImagePreparation {
  const refuse = (field: string, words: string) => {
    const value = json[field];
    const shown = Array.isArray(value) ? `[${value.slice(0, 4).map(show).join(', ')}]` : shownSize(value);
    return new HoldfastError(`${path}: ${shortened(field)} is ${shown}; ${words}`);
  };
  const isAsked = (field: string, byDefault: boolean): boolean => {
    const value = json[field] ?? byDefault;
    if (typeof value === 'boolean') return value;
    throw refuse(field, 'it must be true or false');
  };
  const other = Object.keys(json).find((field) => IS_STEP.test(field) && json[field] !== false && json[field] !== null);
  if (other) throw refuse(other, 'images are resized, cut, rescaled and normalised here, and nothing else');
  if ((json['crop_pct'] ?? undefined) !== undefined)
    throw refuse('crop_pct', 'images are brought to a size, and cut to crop_size here');
  const sizeIn = (field: string): PictureSize => {
    const value = json[field] ?? { height: model.height, width: model.width };
    const found = typeof value === 'number' ? { height: value, width: value } : value;
    if (isObject(found) && Object.keys(found).length === 2) {
      const { height, width } = found;
      if (inRange(SIDE, height) && inRange(SIDE, width)) return { height, width };
    }
    throw refuse(field, `it must be a height and a width, each ${describeRange(SIDE)}`);
  };
  const filterIn = (): Filter => {
    const [first, second] = Object.entries(FILTERS) as [Filter, number][];
    const found = [first, second].find((filter) => filter?.[1] === (json['resample'] ?? FILTERS.bilinear));
    if (found) return found[0];
    const words = Object.entries(FILTERS).map(([name, value]) => `${value}, ${name}`);
    throw refuse('resample', `images are read with ${words.join(', or ')} here`);
  };
  const channelsIn = (field: string, byDefault: number): readonly number[] => {
    const value = json[field] ?? byDefault;
    const found: readonly unknown[] = Array.isArray(value) ? value : [value];
    const isStd = field === 'image_std';
    const numbers = found.filter((each) => typeof each === 'number' && Number.isFinite(each) && !(isStd && each === 0));
    if (numbers.length === found.length && [1, model.channels].includes(found.length)) return numbers as number[];
    const what = isStd ? 'a number other than 0' : 'a number';
    throw refuse(field, `it must be ${what} for each of the ${model.channels} channels`);
  };
  const resize = isAsked('do_resize', true) ? { ...sizeIn('size'), filter: filterIn() } : undefined;
  const crop = isAsked('do_center_crop', false) ? sizeIn('crop_size') : undefined;
  if (resize && crop && (crop.height > resize.height || crop.width > resize.width))
    throw refuse('crop_size', `no more than the size, ${sizeText(resize)}, is there to be cut`);
  const last = crop ?? resize;
  if (last && !isOfSize(last, model))
    throw refuse(crop ? 'crop_size' : 'size', `the model's images are of ${sizeText(model)}`);
  const rescales = isAsked('do_rescale', true);
  const factor = rescales ? (json['rescale_factor'] ?? BYTE) : 1;
  if (typeof factor !== 'number' || !Number.isFinite(factor)) throw refuse('rescale_factor', 'it must be a number');
  const normalises = isAsked('do_normalize', true);
  const [mean, std] = normalises ? [channelsIn('image_mean', HALF), channelsIn('image_std', HALF)] : [[0], [1]];
  const made = unheld({ factor, mean, std }, model.channels);
  if (made !== undefined) throw refuse('rescale_factor', `with the mean and the deviation it makes ${made} of a byte`);
  const isUsual = Math.abs(factor * 255 - 1) < 1e-5 && [...mean, ...std].every((value) => value === HALF);
  return { ...(resize && { resize }), ...(crop && { crop }), ...(!isUsual && { pixels: { factor, mean, std } }) };
}

/** The file that says so, as Hugging Face's library writes it. */
export function preprocessorFile(preparation: ImagePreparation | undefined, config: ModelConfig): string | undefined {
  const images = imagesIn(config);
  if (!images) return undefined;
  const { channels, height, width } = images;
  const { resize, crop, pixels } = preparation ?? { resize: { height, width, filter: 'bilinear' as const } };
  const ofEach = Array.from({ length: channels }, () => HALF);
  const { factor, mean, std } = pixels ?? { factor: BYTE, mean: ofEach, std: ofEach };
  const json = {
    ...(crop && { crop_size: crop, do_center_crop: true }),
    ...{ do_normalize: true, do_rescale: true, do_resize: resize !== undefined, image_mean: mean },
    ...{ image_processor_type: crop ? 'DeiTImageProcessor' : 'ViTImageProcessor', image_std: std },
    ...(resize && { resample: FILTERS[resize.filter] }),
    rescale_factor: factor,
    size: resize ? { height: resize.height, width: resize.width } : { height, width },
  };
  return `${JSON.stringify(json, undefined, 2)}\n`;
}

/** For a person. */
export function preparationWords({ resize, crop, pixels }: ImagePreparation): string {
  return [
    resize ? `brought to ${sizeText(resize)} (${resize.filter})` : 'not resized',
    ...(crop ? [`cut to ${sizeText(crop)}`] : []),
    ...(pixels ? [`mean ${pixels.mean.join(', ')}`, `deviation ${pixels.std.join(', ')}`] : ['from -1 to 1']),
  ].join('; ');
}

/** What a byte of a channel becomes: with the roundings of Hugging Face's library, which computes in f32. */
export function pixelValue(byte: number, channel: number, pixels: ImagePreparation['pixels']): number {
  if (!pixels) return byte / 127.5 - 1;
  const own = (values: readonly number[]) => Math.fround(values[channel] ?? values[0] ?? 0);
  const { factor, mean, std } = pixels;
  return Math.fround(Math.fround(Math.fround(byte * factor) - own(mean)) / own(std));
}

/** Of what bytes become, the first that is not finite; undefined where all are. Between the ends they rise or fall. */
function unheld(pixels: ImagePreparation['pixels'], channels: number): number | undefined {
  const ends = Array.from({ length: channels }, (_, channel) =>
    [0, 255].map((byte) => pixelValue(byte, channel, pixels)),
  );
  return ends.flat().find((value) => !Number.isFinite(value));
}

/** Whether it makes images of this model. `refuse` is called with the first field that does not, and what it must be. */
export function checkPreparation(
  { resize, crop, pixels }: ImagePreparation,
  config: ModelConfig,
  refuse: (problem: string) => never,
): void {
  const images = imagesIn(config);
  if (!images) return;
  const { channels, height, width } = images;
  if (resize && crop && (crop.height > resize.height || crop.width > resize.width))
    refuse(
      `crop is ${sizeText(crop)}; no more than ${sizeText(resize)}, to which images are brought, is there to be cut`,
    );
  const last = crop ?? resize;
  if (last && !isOfSize(last, { height, width }))
    refuse(
      `${crop ? 'crop' : 'resize'} is ${sizeText(last)}; the model's images are of ${sizeText({ height, width })}`,
    );
  for (const field of ['mean', 'std'] as const) {
    const numbers = pixels?.[field] ?? [0];
    if (![1, channels].includes(numbers.length))
      refuse(
        `pixels.${field} is a list of ${numbers.length}; it must be a number for each of the ${channels} channels`,
      );
  }
  const made = unheld(pixels, channels);
  if (made !== undefined) refuse(`pixels makes ${made} of a byte; its factor, mean and std must leave finite numbers`);
}

/** Errors: HoldfastError for an image, called `path`, of which this does not make one of the size that is wanted. */
export function checkPrepared(
  { resize, crop }: ImagePreparation,
  image: PictureSize & { readonly channels: number },
  wanted: PictureSize,
  path: string,
): void {
  const before = resize ?? image;
  const isThere = !crop || (crop.height <= before.height && crop.width <= before.width);
  if (!isThere || !isOfSize(crop ?? before, wanted))
    throw new HoldfastError(
      `${path}: is of ${sizeText(image)} pixels, and the model's ${PREPROCESSOR} brings no image to its ${sizeText(wanted)} (do_resize false); bring it there`,
    );
  // Rows first (resize.ts).
  const bytes = image.channels * image.height * before.width;
  if (bytes > MOST_IMAGE_BYTES)
    throw new HoldfastError(
      `${path}: is of ${sizeText(image)} pixels, ${formatBytes(bytes)} when it is ${before.width} wide; ${formatBytes(MOST_IMAGE_BYTES)} at most are held for one, use a smaller one`,
    );
}

const isOfSize = (a: PictureSize, b: PictureSize): boolean => a.height === b.height && a.width === b.width;
const sizeText = ({ height, width }: PictureSize): string => `${height} x ${width}`;
const shownSize = (value: unknown): string =>
  isObject(value) ? `{${shortened(Object.keys(value).slice(0, 4).join(', '))}}` : show(value);
