// Images with their classes: pixels of a byte, and a label each, of MNIST's and CIFAR's files or of a folder of PNG images
// (image-folder.ts). Which file is what is told by its content, or by its size and name; gzip is undone on the way.
//
// Invariant: an ImageSet holds whole images of one size, and every label is below `classes`.

import type { ImageSize } from '../formats/families/family.ts';
import type { ReadingHost } from '../runtime/host.ts';
import { readWhole } from '../runtime/read-whole.ts';
import { formatBytes } from '../util/bytes.ts';
import { HoldfastError, messageOf, shortened } from '../util/errors.ts';
import { joinedBytes } from '../util/joined-bytes.ts';
import { Random } from '../util/random.ts';
import { filesOf, type TextIdentity } from './corpus.ts';
import { findImageFolder, type ImageFolder, readImages, type WantedImages } from './image-folder.ts';
import { isSynthetic, SYNTHETIC } from './synthetic.ts';
import { pauseUnlessStopped, type TokenizingOptions } from './tokenized-text.ts';

export interface ImageSet {
  /** (count, channels, height, width) */
  readonly pixels: Uint8Array<ArrayBuffer>;
  /** (count) */
  readonly labels: Uint8Array<ArrayBuffer> | Uint16Array<ArrayBuffer>;
}

/** What a run learns from, and is validated with. */
export interface Images extends ImageSize {
  readonly identity: TextIdentity;
  readonly train: ImageSet;
  /** Where the data brings images to test with. */
  readonly test: ImageSet | undefined;
  /** The number of classes. */
  readonly classes: number;
  /** What they are called, in the order of their numbers, where the data says. */
  readonly classNames?: readonly string[];
  /** Of the files, in their order. */
  readonly names: readonly string[];
}

const CIFAR: ImageSize = { channels: 3, height: 32, width: 32 };
const CIFAR_PIXELS = 3 * 32 * 32;
/** The magic numbers of MNIST's files: bytes, in three dimensions or one. */
const IDX_IMAGES = 0x803;
const IDX_LABELS = 0x801;
const MAGIC_GZIP = 0x1f8b;
/** Of one, unpacked or not: EMNIST's largest has 0.55 GB. */
const MOST_FILE_BYTES = 2 ** 30;
const SMALLER = 'split it into several, or take it away';
/** By the file's own name, whatever folder it lies in. */
const IS_TEST = /(?:^|[/\\])(?:t10k|test)[^/\\]*$/i;

/** A file whose images or labels have been found. */
interface Part {
  readonly path: string;
  readonly size?: ImageSize;
  readonly pixels?: Uint8Array<ArrayBuffer>;
  readonly labels?: Uint8Array<ArrayBuffer>;
  readonly classes: number;
}

interface OpeningOptions extends Pick<TokenizingOptions, 'signal'> {
  readonly testsAlone?: boolean;
  readonly wanted?: WantedImages | undefined;
}

/**
 * Of files, folders, or `synthetic`; with `testsAlone`, those to test with may be all, and are then the ones in `train`. Those of
 * folders become what is `wanted`.
 * Errors: HoldfastError where there are none, and naming a file that is not whole; Stopped where `signal` ends it.
 */
export async function openImages(
  host: ReadingHost,
  sources: readonly string[],
  { testsAlone = false, wanted, signal }: OpeningOptions = {},
): Promise<Images> {
  if (isSynthetic(sources)) return syntheticImages(host);
  if (sources.length === 0) throw new HoldfastError(`no images are named; ${WHAT_WORKS}`);
  const folder = await findImageFolder(host, sources, wanted);
  if (folder) return folderImages(host, folder, sources, { testsAlone, signal });
  const parts: Part[] = [];
  for await (const { path, kind, bytes } of filesOf(host.files, sources)) {
    if (kind !== 'file' || !mayHoldImages(path, bytes, await host.files.readRange(path, 0, Math.min(bytes, 4))))
      continue;
    await pauseUnlessStopped({ signal }, 'the images were read');
    const part = partOf(
      path,
      await unpacked(await readWhole(host.files, path, MOST_FILE_BYTES, { fix: SMALLER }), path),
    );
    if (part) parts.push(part);
  }
  const named = shortened(sources.join(', '));
  const [size = CIFAR, other] = [
    ...new Map(parts.flatMap(({ size }) => (size ? [[JSON.stringify(size), size]] : []))).values(),
  ];
  if (other) throw new HoldfastError(`${named}: images of several sizes; name the files of one data set`);
  const sets = [false, true].map((test) => setOf(parts.filter(({ path }) => IS_TEST.test(path) === test)));
  const [first, second] = sets;
  const [train, test] = !first && testsAlone ? [second] : [first, second];
  if (!train) throw new HoldfastError(`${named}: no images to train on; ${WHAT_WORKS}`);
  const classes = Math.max(...parts.map((part) => part.classes));
  return {
    ...size,
    train,
    test,
    classes,
    names: parts.map(({ path }) => path),
    identity: await identify(host, train, test),
  };
}

const WHAT_WORKS =
  'name the folder of MNIST (train-images-idx3-ubyte and its labels, .gz or not) or of the binary CIFAR-10 or CIFAR-100 ' +
  `(data_batch_1.bin, train.bin), one of PNG images with a folder for each class, or ${SYNTHETIC}`;

/** What of images is known before any is decoded. */
export async function imageFacts(
  host: ReadingHost,
  sources: readonly string[],
  wanted?: WantedImages,
): Promise<ImageSize & Pick<Images, 'classes' | 'classNames'>> {
  const folder = sources.length > 0 && !isSynthetic(sources) ? await findImageFolder(host, sources, wanted) : undefined;
  return folder ? { ...folder, classes: folder.classNames.length } : openImages(host, sources);
}

async function folderImages(
  host: ReadingHost,
  folder: ImageFolder,
  sources: readonly string[],
  { testsAlone = false, signal }: OpeningOptions,
): Promise<Images> {
  const { channels, height, width, classNames } = folder;
  const [first, second] = folder.train.length === 0 && testsAlone ? [folder.test, []] : [folder.train, folder.test];
  if (first.length === 0)
    throw new HoldfastError(
      `${shortened(sources.join(', '))}: no images to train on, all are to test with; ${WHAT_WORKS}`,
    );
  const train = await readImages(host, folder, first, { signal });
  const test = second.length > 0 ? await readImages(host, folder, second, { signal }) : undefined;
  return {
    ...{ channels, height, width, classNames, train, test, classes: classNames.length },
    names: [...first, ...second].map(({ path }) => path),
    identity: await identify(host, train, test),
  };
}

/** By its first four bytes, or its name and size; others may be as large as they are, and are not read. */
function mayHoldImages(path: string, bytes: number, head: Uint8Array): boolean {
  const magic = head.reduce((word, byte) => 256 * word + byte, 0);
  return isPacked(head) || magic === IDX_IMAGES || magic === IDX_LABELS || labelBytesOf(path, bytes) !== undefined;
}

/** One byte of a label, or a coarse and a fine one, before the pixels; undefined for what is none of CIFAR's files. */
const labelBytesOf = (path: string, bytes: number): 1 | 2 | undefined =>
  /\.bin$/i.test(path) && bytes > 0
    ? ([1, 2] as const).find((count) => bytes % (count + CIFAR_PIXELS) === 0)
    : undefined;

const isPacked = ([first = 0, second = 0]: Uint8Array): boolean => (first << 8) + second === MAGIC_GZIP;

async function unpacked(bytes: Uint8Array<ArrayBuffer>, path: string): Promise<Uint8Array<ArrayBuffer>> {
  if (!isPacked(bytes)) return bytes;
  const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream('gzip'));
  const pieces: Uint8Array[] = [];
  try {
    const reader = stream.getReader();
    for (let size = 0; size <= MOST_FILE_BYTES; ) {
      const { done, value } = await reader.read();
      if (done) return joinedBytes(pieces);
      size += value.length;
      pieces.push(value);
    }
    await reader.cancel();
  } catch (error) {
    throw new HoldfastError(`${path}: is damaged (${messageOf(error)}); copy it again`);
  }
  throw new HoldfastError(`${path}: unpacked, it has more than ${formatBytes(MOST_FILE_BYTES)}; ${SMALLER}`);
}

/** Undefined for what is none of them. */
function partOf(path: string, bytes: Uint8Array<ArrayBuffer>): Part | undefined {
  const words = new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength);
  const magic = bytes.length >= 8 ? words.getUint32(0) : 0;
  if (magic === IDX_LABELS || (magic === IDX_IMAGES && bytes.length >= 16)) {
    const isImages = magic === IDX_IMAGES;
    const [height, width] = isImages ? [words.getUint32(8), words.getUint32(12)] : [1, 1];
    const content = bytes.subarray(isImages ? 16 : 8);
    const wanted = words.getUint32(4) * height * width;
    if (content.length !== wanted || wanted === 0)
      throw new HoldfastError(
        `${path}: has ${content.length} bytes behind its header, which says ${wanted}; copy it again`,
      );
    if (isImages) return { path, size: { channels: 1, height, width }, pixels: content, classes: 0 };
    return { path, labels: content, classes: 1 + content.reduce((a, b) => Math.max(a, b)) };
  }
  const labelBytes = labelBytesOf(path, bytes.length);
  if (labelBytes === undefined) return undefined;
  const record = labelBytes + CIFAR_PIXELS;
  const count = bytes.length / record;
  const pixels = new Uint8Array(count * CIFAR_PIXELS);
  const labels = new Uint8Array(count);
  const classes = labelBytes === 1 ? 10 : 100;
  for (let i = 0; i < count; i++) {
    const label = bytes[i * record + labelBytes - 1] ?? 0;
    if (label >= classes)
      throw new HoldfastError(`${path}: image ${i} is of class ${label}, there are ${classes}; copy it again`);
    labels[i] = label;
    pixels.set(bytes.subarray(i * record + labelBytes, (i + 1) * record), i * CIFAR_PIXELS);
  }
  return { path, size: CIFAR, pixels, labels, classes };
}

/** All images of some files, in their order. Errors: HoldfastError for images without labels. */
function setOf(parts: readonly Part[]): ImageSet | undefined {
  const images = parts.filter(({ pixels }) => pixels);
  const [first] = images;
  if (!first) return undefined;
  const pixels = joinedBytes(images.flatMap(({ pixels }) => pixels ?? []));
  const labels = joinedBytes(parts.flatMap(({ labels }) => labels ?? []));
  const { channels, height, width } = first.size ?? CIFAR;
  const count = pixels.length / (channels * height * width);
  if (labels.length !== count)
    throw new HoldfastError(
      `${first.path}: ${count} images and ${labels.length} labels; put the file of their labels beside it`,
    );
  return { pixels, labels };
}

async function identify(host: ReadingHost, ...sets: readonly (ImageSet | undefined)[]): Promise<TextIdentity> {
  const sum = await host.files.sha256();
  let bytes = 0;
  for (const set of sets) {
    for (const part of set ? [set.pixels, set.labels] : []) {
      sum.update(new Uint8Array(part.buffer, part.byteOffset, part.byteLength));
      bytes += part.byteLength;
    }
  }
  return { bytes, sha256: sum.hex() };
}

/** Images like CIFAR's, each its class's own pattern under noise: they can be learned. The same for every seed. */
async function syntheticImages(host: ReadingHost): Promise<Images> {
  const random = new Random(0, 'synthetic images');
  const classes = 10;
  const patterns = Uint8Array.from({ length: classes * CIFAR_PIXELS }, () => random.below(256));
  const draw = (count: number): ImageSet => {
    const labels = Uint8Array.from({ length: count }, () => random.below(classes));
    const pixels = new Uint8Array(count * CIFAR_PIXELS);
    for (let i = 0; i < pixels.length; i++) {
      const label = labels[Math.floor(i / CIFAR_PIXELS)] ?? 0;
      pixels[i] = ((patterns[label * CIFAR_PIXELS + (i % CIFAR_PIXELS)] ?? 0) + 3 * random.below(256)) / 4;
    }
    return { pixels, labels };
  };
  const [train, test] = [draw(2048), draw(256)];
  return { ...CIFAR, train, test, classes, names: [SYNTHETIC], identity: await identify(host, train, test) };
}
