// Pixels of a page, of a canvas for one, as a PNG file: images that are drawn are then learned from and told as those of files
// are. Written by fast-png.
//
// Invariant: the file reads (png.ts) as the pixels that were given; what is seen through is left out, as it is of files.

import * as v from 'valibot';
import { HoldfastError } from '../util/errors.ts';
import { check, number, object } from '../util/json.ts';
import { wholeNumber } from '../util/range.ts';

/** Pixels as a page has them: red, green, blue and how much is seen, row by row. An `ImageData` is one. */
export interface Pixels {
  /** In pixels. */
  readonly width: number;
  /** In pixels. */
  readonly height: number;
  /** (height, width, 4) */
  readonly data: ArrayLike<number>;
}

const list = v.custom<ArrayLike<number>>(
  (value) => typeof value === 'object' && value !== null && Number.isSafeInteger((value as ArrayLike<number>).length),
  'a list of numbers',
);
const side = number(wholeNumber(1, 1 << 20));
const pixelsOf = object({ width: side, height: side, data: list });

/**
 * A PNG file of one channel where all pixels are grey, which models of grey images read too; else of three. Errors:
 * HoldfastError for what are no pixels.
 */
export async function encodePng(pixels: Pixels): Promise<Uint8Array<ArrayBuffer>> {
  const { width, height, data } = check(pixelsOf, pixels, 'the pixels');
  const size = width * height;
  if (data.length !== 4 * size)
    throw new HoldfastError(
      `the pixels are ${data.length} values; ${width} x ${height} of them must be ${4 * size}, four for each`,
    );
  const isGrey = Array.from({ length: size }, (_, i) => 4 * i).every(
    (i) => data[i] === data[i + 1] && data[i] === data[i + 2],
  );
  const channels = isGrey ? 1 : 3;
  const samples = new Uint8Array(size * channels);
  for (let i = 0; i < samples.length; i++) samples[i] = data[4 * Math.floor(i / channels) + (i % channels)] ?? 0;
  const { encode } = await import('fast-png');
  return Uint8Array.from(encode({ width, height, channels, depth: 8, data: samples }));
}
