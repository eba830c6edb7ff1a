// Images of bytes brought to another size as the published preprocessors of vision models do it: Pillow's bilinear filter
// (`resample: 2`) or its bicubic one (3), which average over all pixels that a smaller image's pixel stands for. Along rows
// first, then along columns, each rounded to bytes.
//
// Invariant: the bytes of Pillow, whose weights are whole numbers of 22 binary places; an image of that size already is itself.

import type { Filter, PictureSize } from '../formats/preprocessor.ts';

const PLACES = 22;
const ONE = 2 ** PLACES;

/** Of one pixel: the first that it is made of, and their weights, which are ONE together but for rounding. */
interface Taps {
  readonly first: number;
  readonly weights: Int32Array;
}

/** By the distance from a pixel's middle, in pixels of the larger image: how much it counts; and up to where it does. */
const KERNELS: Readonly<Record<Filter, { readonly reach: number; share(distance: number): number }>> = {
  bilinear: { reach: 1, share: (x) => Math.max(0, 1 - Math.abs(x)) },
  // Keys's, with a = -1/2.
  bicubic: {
    reach: 2,
    share(distance) {
      const x = Math.abs(distance);
      if (x < 1) return (1.5 * x - 2.5) * x * x + 1;
      return x < 2 ? -0.5 * (((x - 5) * x + 8) * x - 4) : 0;
    },
  },
};

function tapsOf(from: number, to: number, filter: Filter): Taps[] {
  const scale = from / to;
  const kernel = KERNELS[filter];
  // A larger image is made of the nearest two, or four; a smaller one's pixels reach as far as they are wide.
  const wide = Math.max(1, scale);
  const reach = kernel.reach * wide;
  return Array.from({ length: to }, (_, i) => {
    const center = (i + 0.5) * scale;
    const first = Math.max(0, Math.trunc(center - reach + 0.5));
    const end = Math.min(from, Math.trunc(center + reach + 0.5));
    const shares = Float64Array.from({ length: end - first }, (_, x) =>
      kernel.share((x + first - center + 0.5) * (1 / wide)),
    );
    const sum = shares.reduce((a, b) => a + b, 0);
    const rounded = (share: number) => Math.trunc(Math.sign(share) * 0.5 + (share / sum) * ONE);
    return { first, weights: Int32Array.from(shares, rounded) };
  });
}

/** The pixels (channels, height, width) of an image, brought to another size. */
export function resized(
  pixels: Uint8Array<ArrayBuffer>,
  from: PictureSize,
  to: PictureSize,
  filter: Filter = 'bilinear',
): Uint8Array<ArrayBuffer> {
  const rows = pixels.length / from.width;
  const wide =
    from.width === to.width ? pixels : alongRows(pixels, rows, from.width, tapsOf(from.width, to.width, filter));
  if (from.height === to.height) return wide;
  const taps = tapsOf(from.height, to.height, filter);
  const channels = rows / from.height;
  const made = new Uint8Array(channels * to.height * to.width);
  for (let channel = 0; channel < channels; channel++) {
    const begin = channel * from.height * to.width;
    taps.forEach(({ first, weights }, row) => {
      const into = (channel * to.height + row) * to.width;
      for (let x = 0; x < to.width; x++) {
        let sum = ONE / 2;
        weights.forEach((weight, i) => {
          sum += weight * (wide[begin + (first + i) * to.width + x] ?? 0);
        });
        made[into + x] = byteOf(sum);
      }
    });
  }
  return made;
}

function alongRows(
  pixels: Uint8Array<ArrayBuffer>,
  rows: number,
  width: number,
  taps: readonly Taps[],
): Uint8Array<ArrayBuffer> {
  const made = new Uint8Array(rows * taps.length);
  for (let row = 0; row < rows; row++) {
    taps.forEach(({ first, weights }, x) => {
      let sum = ONE / 2;
      weights.forEach((weight, i) => {
        sum += weight * (pixels[row * width + first + i] ?? 0);
      });
      made[row * taps.length + x] = byteOf(sum);
    });
  }
  return made;
}

const byteOf = (sum: number): number => Math.max(0, Math.min(255, Math.floor(sum / ONE)));

/** The middle of an image, which is as large at least. */
export function cropped(pixels: Uint8Array<ArrayBuffer>, from: PictureSize, to: PictureSize): Uint8Array<ArrayBuffer> {
  const [top, left] = [Math.floor((from.height - to.height) / 2), Math.floor((from.width - to.width) / 2)];
  const rows = (pixels.length / (from.height * from.width)) * to.height;
  const made = new Uint8Array(rows * to.width);
  for (let row = 0; row < rows; row++) {
    const own = Math.floor(row / to.height) * from.height + top + (row % to.height);
    made.set(pixels.subarray(own * from.width + left, own * from.width + left + to.width), row * to.width);
  }
  return made;
}
