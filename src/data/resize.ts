// Images of bytes brought to another size as the published preprocessors of vision models do it: Pillow's bilinear filter
// (`resample: 2`), which averages over all pixels that a smaller image's pixel stands for. Along rows first, then along
// columns, each rounded to bytes.
//
// Invariant: the bytes of Pillow, whose weights are whole numbers of 22 binary places; an image of that size already is itself.

interface Size {
  readonly height: number;
  readonly width: number;
}

const PLACES = 22;
const ONE = 2 ** PLACES;

/** Of one pixel: the first that it is made of, and their weights, which are ONE together but for rounding. */
interface Taps {
  readonly first: number;
  readonly weights: Int32Array;
}

function tapsOf(from: number, to: number): Taps[] {
  const scale = from / to;
  // A larger image is made of the nearest two; a smaller one's pixels reach as far as they are wide.
  const reach = Math.max(1, scale);
  return Array.from({ length: to }, (_, i) => {
    const center = (i + 0.5) * scale;
    const first = Math.max(0, Math.trunc(center - reach + 0.5));
    const end = Math.min(from, Math.trunc(center + reach + 0.5));
    const shares = Float64Array.from({ length: end - first }, (_, x) =>
      Math.max(0, 1 - Math.abs((x + first - center + 0.5) * (1 / reach))),
    );
    const sum = shares.reduce((a, b) => a + b, 0);
    return { first, weights: Int32Array.from(shares, (share) => Math.trunc(0.5 + (share / sum) * ONE)) };
  });
}

/** The pixels (channels, height, width) of an image, brought to another size. */
export function resized(pixels: Uint8Array<ArrayBuffer>, from: Size, to: Size): Uint8Array<ArrayBuffer> {
  const rows = pixels.length / from.width;
  const wide = from.width === to.width ? pixels : alongRows(pixels, rows, from.width, tapsOf(from.width, to.width));
  if (from.height === to.height) return wide;
  const taps = tapsOf(from.height, to.height);
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

const byteOf = (sum: number): number => Math.min(255, Math.floor(sum / ONE));
