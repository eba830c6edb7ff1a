// Folders of PNG images, as MNIST, CIFAR and others are published: a folder for each class, below one to train on and one to
// test with, if there are such. How a file is decoded is png.ts.
//
// Invariant: images are of one size, which is seen from their first bytes before memory is taken for any, or brought to one that
// a model has (resize.ts); classes are numbered by their names in order, whichever set they are in.

import type { ImageSize } from '../formats/families/family.ts';
import { MOST_CLASSES } from '../formats/families/labels.ts';
import { checkPrepared, type ImagePreparation, type PictureSize } from '../formats/preprocessor.ts';
import type { FolderReader, ReadingHost } from '../runtime/host.ts';
import { readWhole } from '../runtime/read-whole.ts';
import { formatBytes } from '../util/bytes.ts';
import { HoldfastError, shortened } from '../util/errors.ts';
import { sortedNames } from './classes.ts';
import { filesOf } from './corpus.ts';
import { decodePng, MOST_PNG_BYTES, PNG_HEADER_BYTES, type PngHeader, pngHeader } from './png.ts';
import { cropped, resized } from './resize.ts';
import { pauseUnlessStopped, type TokenizingOptions } from './tokenized-text.ts';

/** Some hundredths of a second. */
const IMAGES_BETWEEN_PAUSES = 64;

/** An image that was found. */
interface FoundImage {
  readonly path: string;
  readonly bytes: number;
  /** Folders from the one that was named to the image. */
  readonly folders: readonly string[];
}

/** Images of a folder, as their first bytes have it. */
export interface ImageFolder {
  readonly channels: 1 | 3;
  readonly height: number;
  readonly width: number;
  /** In order. */
  readonly classNames: readonly string[];
  readonly train: readonly LabelledFile[];
  readonly test: readonly LabelledFile[];
  /** How they become of this size. @default by the bilinear filter */
  readonly preparation?: ImagePreparation | undefined;
}

/** An image, and the number of its class. */
interface LabelledFile extends FoundImage {
  readonly header: PngHeader;
  readonly label: number;
}

const PNG = /\.png$/i;
/** Those that would be left out silently. */
const OTHER_IMAGES = /\.(?:jpe?g|webp|gif|bmp|tiff?)$/i;
const TRAIN = /^(?:train|training)$/i;
const SETS = /^(?:train|training|test|testing|val|valid|validation)$/i;
const CLASSES = 'give each class a folder of its name with its images, such as data/cat/1.png';
/** Of all pixels. */
const MOST_BYTES = 2 ** 32;

/** What images are to be for a model: of any size, they are brought to its own, and grey ones to its colours. */
export interface WantedImages extends ImageSize {
  /** How they are brought there. @default by the bilinear filter */
  readonly preparation?: ImagePreparation | undefined;
}

/**
 * Undefined where the sources have no PNG. `wanted`: what its images become. @default as they are, all of one size. Errors:
 * HoldfastError naming the file that does not fit.
 */
export async function findImageFolder(
  host: ReadingHost,
  sources: readonly string[],
  wanted?: WantedImages,
): Promise<ImageFolder | undefined> {
  const found: FoundImage[] = [];
  let other: string | undefined;
  for await (const { path, name, folders, kind, bytes } of filesOf(host.files, sources)) {
    // What macOS leaves beside files is called as they are, behind a dot.
    if (kind !== 'file' || name.startsWith('.')) continue;
    if (PNG.test(name)) found.push({ path, bytes, folders });
    else if (OTHER_IMAGES.test(name)) other ??= path;
  }
  if (found.length === 0) {
    if (other === undefined) return undefined;
    throw new HoldfastError(`${other}: is no PNG; images of folders are read as PNG, save them so`);
  }
  if (other !== undefined)
    throw new HoldfastError(`${other}: is no PNG, as other images there are; save it so, or take it away`);
  const hasSets = found.every(({ folders: [first = '', second] }) => second !== undefined && SETS.test(first));
  const classOf = ({ path, folders }: FoundImage): string => {
    const name = folders[hasSets ? 1 : 0];
    if (name !== undefined) return name;
    throw new HoldfastError(`${path}: lies in no folder of a class; ${CLASSES}`);
  };
  const classNames = sortedNames(found.map(classOf));
  if (classNames.length > MOST_CLASSES)
    throw new HoldfastError(`${sources.join(', ')}: ${classNames.length} folders; ${MOST_CLASSES} classes at most`);
  const numbers = new Map(classNames.map((name, i) => [name, i]));
  const files: LabelledFile[] = [];
  for (const image of found) {
    const label = numbers.get(classOf(image)) ?? 0;
    files.push({ ...image, label, header: await headerOf(host.files, image, wanted ?? files[0]) });
  }
  const channels = wanted?.channels === 3 || files.some(({ header }) => header.channels === 3) ? 3 : 1;
  const [{ height, width } = { height: 0, width: 0 }] = wanted ? [wanted] : files.map(({ header }) => header);
  const bytes = files.length * channels * height * width;
  if (bytes > MOST_BYTES)
    throw new HoldfastError(
      `${shortened(sources.join(', '))}: the pixels of ${files.length} images are ${formatBytes(bytes)}, ${formatBytes(MOST_BYTES)} at most are held in memory; use fewer, or smaller ones`,
    );
  const isTrained = ({ folders: [first = ''] }: FoundImage) => !hasSets || TRAIN.test(first);
  const [train, test] = [files.filter(isTrained), files.filter((file) => !isTrained(file))];
  return { channels, height, width, classNames, train, test, preparation: wanted?.preparation };
}

async function headerOf(
  files: FolderReader,
  { path, bytes }: FoundImage,
  other: LabelledFile | WantedImages | undefined,
) {
  checkFile(path, bytes);
  const header = pngHeader(await files.readRange(path, 0, Math.min(bytes, PNG_HEADER_BYTES)), path);
  if (other === undefined) return header;
  if (!('header' in other)) {
    checkPrepared(preparationOf(other), header, other, path);
    return header;
  }
  const { height, width } = other.header;
  if (header.height === height && header.width === width) return header;
  throw new HoldfastError(
    `${path}: is of ${header.height} x ${header.width} pixels, ${shortened(other.path)} of ${height} x ${width}; bring all images to one size`,
  );
}

function checkFile(path: string, bytes: number): void {
  if (bytes <= MOST_PNG_BYTES) return;
  throw new HoldfastError(
    `${path}: has ${formatBytes(bytes)}, an image has ${formatBytes(MOST_PNG_BYTES)} at most; use a smaller one`,
  );
}

/** By the bilinear filter, where the model does not say. */
const preparationOf = ({ preparation, height, width }: WantedImages): ImagePreparation =>
  preparation ?? { resize: { height, width, filter: 'bilinear' } };

/**
 * The pixels (channels, height, width) of a PNG file as a model wants them, as those of a folder are brought there. Errors:
 * HoldfastError for what is no such file, and for colours where the model has none.
 */
export async function readImage(
  bytes: Uint8Array<ArrayBuffer>,
  wanted: WantedImages,
  path: string,
): Promise<Uint8Array<ArrayBuffer>> {
  checkFile(path, bytes.length);
  const header = pngHeader(bytes, path);
  if (header.channels > wanted.channels)
    throw new HoldfastError(`${path}: has colours, and the model knows grey images; bring a grey one`);
  checkPrepared(preparationOf(wanted), header, wanted, path);
  const pixels = new Uint8Array(wanted.channels * wanted.height * wanted.width);
  putImage(pixels, await decodePng(bytes, header, path), header, wanted);
  return pixels;
}

/** The pixels (count, channels, height, width) of some of a folder's images, and their labels. Errors: as `decodePng`, and Stopped. */
export async function readImages(
  { files }: ReadingHost,
  { classNames, ...wanted }: ImageFolder,
  chosen: readonly LabelledFile[],
  options: Pick<TokenizingOptions, 'signal'> = {},
) {
  const size = wanted.channels * wanted.height * wanted.width;
  const pixels = new Uint8Array(chosen.length * size);
  const labels = classNames.length > 256 ? new Uint16Array(chosen.length) : new Uint8Array(chosen.length);
  for (const [i, { path, header, label }] of chosen.entries()) {
    if (i % IMAGES_BETWEEN_PAUSES === 0) await pauseUnlessStopped(options, 'the images were read');
    const whole = await decodePng(await readWhole(files, path, MOST_PNG_BYTES), header, path);
    labels[i] = label;
    putImage(pixels.subarray(i * size, (i + 1) * size), whole, header, wanted);
  }
  return { pixels, labels };
}

/** Writes an image as it is wanted; grey among colours is as much of each. */
function putImage(into: Uint8Array, whole: Uint8Array<ArrayBuffer>, header: PngHeader, wanted: WantedImages): void {
  const { channels, height, width } = wanted;
  const size = height * width;
  const image = prepared(whole, header, preparationOf(wanted));
  for (let channel = 0; channel < channels; channel++) {
    const own = header.channels === 1 ? 0 : channel;
    into.set(image.subarray(own * size, (own + 1) * size), channel * size);
  }
}

function prepared(
  pixels: Uint8Array<ArrayBuffer>,
  from: PictureSize,
  { resize, crop }: ImagePreparation,
): Uint8Array<ArrayBuffer> {
  const whole = resize ? resized(pixels, from, resize, resize.filter) : pixels;
  return crop ? cropped(whole, resize ?? from, crop) : whole;
}
