// Images as examples to learn from and to be told: pixels as a model reads them. Where images come from is images.ts, in
// which order they come examples.ts.

import type { Batch } from './batches.ts';
import type { Dataset } from './dataset.ts';
import { type ExampleOptions, type Examples, exampleDataset } from './examples.ts';
import type { ImageSet, ImageSize, Images } from './images.ts';

export interface ImageOptions extends ExampleOptions {
  /** Rows that one is to the model. */
  readonly seq: number;
}

/** Images (batch, channels, height, width) from -1 to 1 as `pixels`, and their classes (batch) as `targets`. */
export function imageExamples(
  { pixels: all, labels }: ImageSet,
  { channels, height, width }: ImageSize,
  seq: number,
): Examples {
  const size = channels * height * width;
  return {
    count: labels.length,
    batch(chosen): Batch {
      const pixels = new Float32Array(chosen.length * size);
      const targets = new Int32Array(chosen.length);
      chosen.forEach((image, row) => {
        targets[row] = labels[image] ?? 0;
        for (let i = 0; i < size; i++) pixels[row * size + i] = (all[image * size + i] ?? 0) / 127.5 - 1;
      });
      return { pixels, targets, batch: chosen.length, seq };
    },
  };
}

/** Epochs of images. */
export function imageDataset(images: Images, options: ImageOptions): Dataset {
  const { identity, train, test, names, channels, height, width, classes } = images;
  const examples = (set: ImageSet) => imageExamples(set, images, options.seq);
  const number = (value: number) => value.toLocaleString('en');
  const sets = {
    ...{ identity, word: 'image', train: examples(train), test: test && examples(test) },
    note: (trained: number, validated: number, unseen: number) =>
      `${number(trained)} images of ${channels} x ${height} x ${width} in ${classes} classes to train on, ` +
      `${number(validated)} of ${number(unseen)} others to validate on (${names.length === 1 ? names[0] : `${names.length} files`})`,
  };
  return exampleDataset(sets, options);
}
