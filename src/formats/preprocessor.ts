// Preparation of images for a vision model, as preprocessor_config.json says it beside published models: brought to a
// size, cut to their middle, their bytes scaled, each channel normalised. How it is done is data/resize.ts and
// data/image-dataset.ts.
//
// Invariant: a field with another meaning than what is done here is refused by name; what comes out of `preprocessorFile` reads as it was.

import { type FolderReader, join } from '../runtime/host.ts';
import { HoldfastError, shortened } from '../util/errors.ts';
import { figure, isObject, list, number, object, oneOf, optional, parseJSON, type Schema, show } from '../util/json.ts';
import { wholeNumber } from '../util/range.ts';
import { OTHER_CHECKPOINT, PREPROCESSOR } from './checkpoint/folder.ts';
import type { ModelConfig } from './config.ts';
import { sidesOf } from './families/vit.ts';

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

const side = number(wholeNumber(1));
const size = { height: side, width: side };
/** What a run's settings hold of it. */
export const imagePreparation: Schema<ImagePreparation> = object({
  resize: optional(object({ ...size, filter: oneOf(Object.keys(FILTERS) as Filter[]) })),
  crop: optional(object(size)),
  pixels: optional(object({ factor: figure, mean: list(figure), std: list(figure) })),
});

const BYTE = 1 / 255;
const HALF = 0.5;
/** What would change pixels in a way that is none of these; grey among colours is as much of each here, too. */
const IS_STEP = /^do_(?!resize$|center_crop$|rescale$|normalize$|convert_rgb$)/;

/**
 * What the file beside a vision model says; undefined where there is none. Errors: HoldfastError naming the field that asks
 * for something else, or does not suit the model.
 */
export async function preparationIn(
  files: FolderReader,
  folder: string,
  config: ModelConfig,
): Promise<ImagePreparation | undefined> {
  const path = join(folder, PREPROCESSOR);
  if (config.model_type !== 'vit' || !(await files.stat(path))) return undefined;
  const json = parseJSON(await files.read(path), path, OTHER_CHECKPOINT);
  if (!isObject(json)) throw new HoldfastError(`${path}: is ${show(json)}, not an object; ${OTHER_CHECKPOINT}`);
  const [height, width] = sidesOf(config.image_size);
  return preparationOf(json, path, { channels: config.num_channels, height, width });
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
      if (isSide(height) && isSide(width)) return { height, width };
    }
    throw refuse(field, 'it must be a height and a width');
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
  const isUsual = Math.abs(factor * 255 - 1) < 1e-5 && [...mean, ...std].every((value) => value === HALF);
  return { ...(resize && { resize }), ...(crop && { crop }), ...(!isUsual && { pixels: { factor, mean, std } }) };
}

/** The file that says so, as Hugging Face's library writes it. */
export function preprocessorFile(preparation: ImagePreparation | undefined, config: ModelConfig): string | undefined {
  if (config.model_type !== 'vit') return undefined;
  const [height, width] = sidesOf(config.image_size);
  const { resize, crop, pixels } = preparation ?? { resize: { height, width, filter: 'bilinear' as const } };
  const ofEach = Array.from({ length: config.num_channels }, () => HALF);
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

/** Errors: HoldfastError for an image, called `path`, of which this does not make one of the size that is wanted. */
export function checkPrepared(
  { resize, crop }: ImagePreparation,
  image: PictureSize,
  wanted: PictureSize,
  path: string,
): void {
  const before = resize ?? image;
  const fits = crop ? crop.height <= before.height && crop.width <= before.width : isOfSize(before, wanted);
  if (fits) return;
  throw new HoldfastError(
    `${path}: is of ${sizeText(image)} pixels, and the model's ${PREPROCESSOR} brings no image to its ${sizeText(wanted)} (do_resize false); bring it there`,
  );
}

const isSide = (value: unknown): value is number => Number.isSafeInteger(value) && (value as number) > 0;
const isOfSize = (a: PictureSize, b: PictureSize): boolean => a.height === b.height && a.width === b.width;
const sizeText = ({ height, width }: PictureSize): string => `${height} x ${width}`;
const shownSize = (value: unknown): string =>
  isObject(value) ? `{${shortened(Object.keys(value).slice(0, 4).join(', '))}}` : show(value);
