// Pixels of a page, of a canvas for one, as a PNG file: images that are drawn are then learned from and told as those of files
// are. Written by fast-png.
//
// Invariant: the file reads (png.ts) as the pixels that were given; what is seen through is left out, as it is of files.

/** Pixels as a page has them: red, green, blue and how much is seen, row by row. An `ImageData` is one. */
export interface Pixels {
  /** In pixels. */
  readonly width: number;
  /** In pixels. */
  readonly height: number;
  /** (height, width, 4) */
  readonly data: ArrayLike<number>;
}

/** A PNG file of one channel where all pixels are grey, which models of grey images read too; else of three. */
export async function encodePng({ width, height, data }: Pixels): Promise<Uint8Array<ArrayBuffer>> {
  const size = width * height;
  const isGrey = Array.from({ length: size }, (_, i) => 4 * i).every(
    (i) => data[i] === data[i + 1] && data[i] === data[i + 2],
  );
  const channels = isGrey ? 1 : 3;
  const samples = new Uint8Array(size * channels);
  for (let i = 0; i < samples.length; i++) samples[i] = data[4 * Math.floor(i / channels) + (i % channels)] ?? 0;
  const { encode } = await import('fast-png');
  return Uint8Array.from(encode({ width, height, channels, depth: 8, data: samples }));
}
