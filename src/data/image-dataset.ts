// Images as examples to learn from and to be told: pixels as a model reads them. Where images come from is images.ts, in
// which order they come examples.ts.

import type { ImageSize } from '../formats/families/family.ts';
import type { Labels } from '../formats/families/labels.ts';
import { type ImagePreparation, pixelValue } from '../formats/preprocessor.ts';
import { counted } from '../util/counted.ts';
import type { Batch } from './batches.ts';
import { countsOf, describeCounts } from './classes.ts';
import type { Dataset } from './dataset.ts';
import { type ExampleOptions, type Examples, exampleDataset } from './examples.ts';
import type { ImageSet, Images } from './images.ts';

export interface ImageOptions extends ExampleOptions {
  /** Rows that one is to the model. */
  readonly seq: number;
  /** What is done with bytes. @default they become -1 to 1 */
  readonly images?: ImagePreparation | undefined;
  /** By which it is said how many images each class has. @default it is not said */
  readonly labels?: Labels | undefined;
}

/** What each byte of a channel becomes. */
const valuesOf = (preparation: ImagePreparation | undefined, channel: number): Float32Array =>
  Float32Array.from({ length: 256 }, (_, byte) => pixelValue(byte, channel, preparation?.pixels));

/** Images (batch, channels, height, width) as the model sees them, as `pixels`, and their classes (batch) as `targets`. */
export function imageExamples(
  { pixels: all, labels }: ImageSet,
  { channels, height, width }: ImageSize,
  { seq, images }: Pick<ImageOptions, 'seq' | 'images'>,
): Examples {
  const size = channels * height * width;
  const tables = Array.from({ length: channels }, (_, channel) => valuesOf(images, channel));
  return {
    count: labels.length,
    async batch(chosen): Promise<Batch> {
      const pixels = new Float32Array(chosen.length * size);
      const targets = new Int32Array(chosen.length);
      chosen.forEach((image, row) => {
        targets[row] = labels[image] ?? 0;
        for (let i = 0; i < size; i++) {
          const table = tables[Math.floor(i / (height * width))];
          pixels[row * size + i] = table?.[all[image * size + i] ?? 0] ?? 0;
        }
      });
      return { pixels, targets, batch: chosen.length, seq };
    },
  };
}

/** Epochs of images. */
export async function imageDataset(images: Images, options: ImageOptions): Promise<Dataset> {
  const { labels } = options;
  const { identity, train, test, names, channels, height, width, classes } = images;
  const examples = (set: ImageSet) => imageExamples(set, images, options);
  const number = (value: number) => value.toLocaleString('en');
  const counts = labels ? `: ${describeCounts(labels, countsOf(labels, train.labels))}` : '';
  const sets = {
    ...{ identity, word: 'image', train: examples(train), test: test && examples(test) },
    note: (trained: number, validated: number, unseen: number) =>
      `${counted(trained, 'image', number(trained))} of ${channels} x ${height} x ${width} in ${counted(classes, 'class')} to train on, ` +
      `${number(validated)} of ${number(unseen)} others to validate on (${names.length === 1 ? names[0] : `${names.length} files`}${counts})`,
  };
  return exampleDataset(sets, options);
}
