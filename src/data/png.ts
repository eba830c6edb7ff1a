// PNG images as pixels of a byte, their channels one behind the other: grey, or red, green and blue; what is seen through is
// left out, as elsewhere where images are learned from. Decoded by fast-png, to which only what an image consists of is given.
//
// Invariant: what a file claims is checked before memory is taken for it, and no file makes more memory than its pixels need
// and a fixed bound; what is no PNG, or damaged, is refused in one line.

import { HoldfastError, messageOf } from '../util/errors.ts';

/** What a PNG says of itself. */
export interface PngHeader {
  readonly width: number;
  readonly height: number;
  /** 1, grey, or 3. */
  readonly channels: 1 | 3;
  /** As in the file: with what is seen through, or of a palette 1. */
  readonly stored: 1 | 2 | 3 | 4;
  readonly depth: number;
  readonly palette: boolean;
  readonly interlaced: boolean;
}

/** Bytes of a file that its header is in. */
export const PNG_HEADER_BYTES = 33;
/** A file has no more: the pixels of the largest image, twice. */
export const MOST_PNG_BYTES = 2 ** 27;

const SIGNATURE = [0x89, 0x50, 0x4e, 0x47, 0x0d, 0x0a, 0x1a, 0x0a];
const MOST_PIXELS = 2 ** 24;
/** By the kind of colour in a header. */
const STORED: Readonly<Record<number, PngHeader['stored']>> = { 0: 1, 2: 3, 3: 1, 4: 2, 6: 4 };
const PALETTE = 3;
/** Compressed bytes, of which no more than 64 MiB come whatever they are: Deflate makes 1032 of one at most. */
const HARMLESS = 2 ** 16;
/** The parts of a file that its pixels come from. Others may be compressed, too, and of any size. */
const OF_PIXELS = ['IHDR', 'PLTE', 'IDAT', 'IEND'];
const CHUNK_BYTES = 12;

const damaged = (path: string, how: string) => new HoldfastError(`${path}: ${how}; copy it again`);

/** The header in a file's first bytes. Errors: HoldfastError for what is no PNG, or of a kind or a size that is not read. */
export function pngHeader(bytes: Uint8Array, path: string): PngHeader {
  if (bytes.length < PNG_HEADER_BYTES || SIGNATURE.some((byte, i) => bytes[i] !== byte) || typeAt(bytes, 8) !== 'IHDR')
    throw damaged(path, 'is no PNG image');
  const view = new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength);
  const [width, height] = [view.getUint32(16), view.getUint32(20)];
  const [depth, kind, interlace] = [view.getUint8(24), view.getUint8(25), view.getUint8(28)];
  if (width === 0 || height === 0 || width * height > MOST_PIXELS)
    throw new HoldfastError(
      `${path}: says that it has ${width} x ${height} pixels, images have from 1 to ${MOST_PIXELS}; use smaller ones`,
    );
  const stored = STORED[kind];
  if (stored === undefined || interlace > 1) throw damaged(path, 'has a header that is none of PNG');
  const palette = kind === PALETTE;
  const interlaced = interlace === 1;
  if (depth !== 8 && !(palette && !interlaced && [1, 2, 4].includes(depth)))
    throw new HoldfastError(
      `${path}: has ${depth} bits a ${palette ? 'pixel' : 'channel'}${interlaced ? ', interlaced' : ''}; save it with 8 bits`,
    );
  return { width, height, channels: palette || stored > 2 ? 3 : 1, stored, depth, palette, interlaced };
}

/**
 * The pixels (channels, height, width) of a file with that header. Errors: HoldfastError where it is damaged, or ends too
 * early.
 */
export async function decodePng(
  bytes: Uint8Array<ArrayBuffer>,
  header: PngHeader,
  path: string,
): Promise<Uint8Array<ArrayBuffer>> {
  const { width, height, channels, stored, palette } = header;
  const parts = partsOf(bytes, path);
  const data = parts.filter(({ type }) => type === 'IDAT').map(({ begin, end }) => bytes.subarray(begin + 8, end - 4));
  if (data.length === 0) throw damaged(path, 'has no pixels');
  if (data.reduce((sum, { length }) => sum + length, 0) > HARMLESS) await checkInflated(data, header, path);
  const { decode, convertIndexedToRgb } = await import('fast-png');
  const size = width * height;
  try {
    const image = decode(pixelsAlone(bytes, parts), { checkCrc: true });
    const all = palette ? convertIndexedToRgb(image) : image.data;
    const each = palette ? 3 : stored;
    if (all.length !== size * each) throw new Error(`${all.length} bytes where ${size * each} should be`);
    const pixels = new Uint8Array(channels * size);
    for (let channel = 0; channel < channels; channel++)
      for (let i = 0; i < size; i++) pixels[channel * size + i] = all[i * each + channel] ?? 0;
    return pixels;
  } catch (error) {
    throw damaged(path, `is damaged (${messageOf(error)})`);
  }
}

interface Part {
  readonly type: string;
  readonly begin: number;
  readonly end: number;
}

/** Those that pixels come from, in their order. Errors: HoldfastError where the file ends too early. */
function partsOf(bytes: Uint8Array, path: string): Part[] {
  const view = new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength);
  const parts: Part[] = [];
  for (let begin = SIGNATURE.length; begin + CHUNK_BYTES <= bytes.length; ) {
    const end = begin + CHUNK_BYTES + view.getUint32(begin);
    const type = typeAt(bytes, begin);
    if (end > bytes.length) break;
    if (OF_PIXELS.includes(type)) parts.push({ type, begin, end });
    if (type === 'IEND') return parts;
    begin = end;
  }
  throw damaged(path, `is cut short, at ${bytes.length} bytes`);
}

/** The type of the part that begins there. */
const typeAt = (bytes: Uint8Array, begin: number): string =>
  String.fromCharCode(...bytes.subarray(begin + 4, begin + 8));

/** A file of those parts alone. */
function pixelsAlone(bytes: Uint8Array, parts: readonly Part[]): Uint8Array<ArrayBuffer> {
  const file = new Uint8Array(parts.reduce((sum, { begin, end }) => sum + end - begin, SIGNATURE.length));
  file.set(SIGNATURE);
  let at = SIGNATURE.length;
  for (const { begin, end } of parts) {
    file.set(bytes.subarray(begin, end), at);
    at += end - begin;
  }
  return file;
}

/** Counts what compressed pixels become, and keeps none of it. Errors: HoldfastError where that is more than the header says. */
async function checkInflated(
  data: readonly Uint8Array<ArrayBuffer>[],
  { width, height, stored, depth, interlaced }: PngHeader,
  path: string,
): Promise<void> {
  // A byte before each row; interlaced there are at most twice the rows, and of each row a byte is begun.
  const most = (interlaced ? 2 : 1) * height * (2 + Math.ceil((width * stored * depth) / 8));
  const stream = new Blob([...data]).stream().pipeThrough(new DecompressionStream('deflate'));
  let inflated = 0;
  try {
    for (const reader = stream.getReader(); inflated <= most; ) {
      const { done, value } = await reader.read();
      if (done) return;
      inflated += value.length;
      if (inflated > most) await reader.cancel();
    }
  } catch (error) {
    throw damaged(path, `is damaged (${messageOf(error)})`);
  }
  throw damaged(path, `holds more than the ${width} x ${height} pixels that it says`);
}
