// PNG files written by hand, from the specification and with no code of the library's: any kind of colour, any filters, and
// interlaced, so that what reads them is held against something else.

import { crc32, deflateSync } from 'node:zlib';

export interface PngOptions {
  readonly width: number;
  readonly height: number;
  /** 0 grey, 2 RGB, 3 palette, 4 grey with alpha, 6 RGBA. */
  readonly kind: 0 | 2 | 3 | 4 | 6;
  readonly depth?: number;
  readonly palette?: readonly number[];
  /** Of the row with that number: 0 none, 1 sub, 2 up, 3 average, 4 Paeth. @default 0 */
  readonly filter?: (row: number) => number;
  readonly interlaced?: boolean;
  /** Other parts, behind the header. */
  readonly extra?: readonly Uint8Array[];
  /** In place of the compressed pixels. */
  readonly data?: Uint8Array;
}

const CHANNELS = { 0: 1, 2: 3, 3: 1, 4: 2, 6: 4 } as const;
const SIGNATURE = [0x89, 0x50, 0x4e, 0x47, 0x0d, 0x0a, 0x1a, 0x0a];

export function chunk(type: string, data: ArrayLike<number>): Uint8Array<ArrayBuffer> {
  const bytes = new Uint8Array(12 + data.length);
  const view = new DataView(bytes.buffer);
  view.setUint32(0, data.length);
  bytes.set(new TextEncoder().encode(type), 4);
  bytes.set(data, 8);
  view.setUint32(8 + data.length, crc32(bytes.subarray(4, 8 + data.length)));
  return bytes;
}

function paeth(a: number, b: number, c: number): number {
  const [pa, pb, pc] = [Math.abs(b - c), Math.abs(a - c), Math.abs(a + b - 2 * c)];
  if (pa <= pb && pa <= pc) return a;
  return pb <= pc ? b : c;
}

/** Rows with their filters; `rows` of so many bytes each. */
function filtered(rows: readonly Uint8Array[], pixel: number, filter: (row: number) => number): number[] {
  return rows.flatMap((row, r) => {
    const kind = filter(r);
    const above = rows[r - 1] ?? new Uint8Array(row.length);
    const values = Array.from(row, (value, i) => {
      const [a, b, c] = [row[i - pixel] ?? 0, above[i] ?? 0, above[i - pixel] ?? 0];
      const predicted = [0, a, b, (a + b) >> 1, paeth(a, b, c)][kind] ?? 0;
      return (value - predicted) & 255;
    });
    return [kind, ...values];
  });
}

/** Of samples as they lie in a file: (height, width, channels), or numbers of the palette. */
export function png(samples: ArrayLike<number>, options: PngOptions): Uint8Array<ArrayBuffer> {
  const { width, height, kind, depth = 8, palette, filter = () => 0, interlaced = false, extra = [], data } = options;
  const channels = CHANNELS[kind];
  const rowOf = (y: number, xs: readonly number[]): Uint8Array => {
    const values = xs.flatMap((x) =>
      Array.from({ length: channels }, (_, c) => samples[(y * width + x) * channels + c] ?? 0),
    );
    if (depth === 8) return Uint8Array.from(values);
    const row = new Uint8Array(Math.ceil((values.length * depth) / 8));
    values.forEach((value, i) => {
      const bit = i * depth;
      row[bit >> 3] = (row[bit >> 3] ?? 0) | (value << (8 - depth - (bit & 7)));
    });
    return row;
  };
  const range = (from: number, to: number, by: number) =>
    Array.from({ length: Math.max(0, Math.ceil((to - from) / by)) }, (_, i) => from + i * by);
  const passes = interlaced
    ? [
        [0, 0, 8, 8],
        [4, 0, 8, 8],
        [0, 4, 4, 8],
        [2, 0, 4, 4],
        [0, 2, 2, 4],
        [1, 0, 2, 2],
        [0, 1, 1, 2],
      ]
    : [[0, 0, 1, 1]];
  const raw = passes.flatMap(([x = 0, y = 0, dx = 1, dy = 1]) => {
    const xs = range(x, width, dx);
    const rows = xs.length === 0 ? [] : range(y, height, dy).map((row) => rowOf(row, xs));
    return filtered(rows, channels, filter);
  });
  const header = new Uint8Array(13);
  new DataView(header.buffer).setUint32(0, width);
  new DataView(header.buffer).setUint32(4, height);
  header.set([depth, kind, 0, 0, interlaced ? 1 : 0], 8);
  const packed = data ?? deflateSync(Uint8Array.from(raw));
  // In two parts, as large files have it.
  const half = packed.length >> 1;
  const parts = [
    ...[Uint8Array.from(SIGNATURE), chunk('IHDR', header), ...extra],
    ...(palette ? [chunk('PLTE', palette)] : []),
    ...[chunk('IDAT', packed.subarray(0, half)), chunk('IDAT', packed.subarray(half)), chunk('IEND', [])],
  ];
  const file = new Uint8Array(parts.reduce((sum, { length }) => sum + length, 0));
  let at = 0;
  for (const part of parts) {
    file.set(part, at);
    at += part.length;
  }
  return file;
}
