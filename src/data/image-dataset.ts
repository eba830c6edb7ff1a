// Batches of images: all of them once an epoch, in another order each, and those that are held back. Where images come from
// is images.ts.
//
// Invariant: what comes next follows from the seed, the epoch and the place in it, which are the state.

import { HoldfastError } from '../util/errors.ts';
import { Random } from '../util/random.ts';
import type { Batch } from './batches.ts';
import type { Dataset } from './dataset.ts';
import type { ImageSet, Images } from './images.ts';
import { permutation } from './packing.ts';

export interface ImageOptions {
  /** Images in a batch. */
  readonly batch: number;
  /** Rows that one is to the model. */
  readonly seq: number;
  readonly seed: number;
  /** Images of the validation, at most. */
  readonly evalWindows: number;
  /** The part that is held back where there are no others to test with. @default a tenth */
  readonly validationShare?: number | undefined;
}

/** Images (batch, channels, height, width) from -1 to 1 as `pixels`, and their classes (batch) as `targets`. */
export function imageDataset(images: Images, options: ImageOptions): Dataset {
  const { batch, seq, seed, evalWindows, validationShare = 0.1 } = options;
  const { identity, train, test, names, channels, height, width, classes } = images;
  const count = train.labels.length;
  const heldBack = test ? 0 : Math.max(1, Math.round(count * validationShare));
  if (heldBack >= count) throw new HoldfastError('the data is one image: nothing is left to validate on; give more');
  const order = permutation(count, new Random(0, 'validation'));
  const trained = order.subarray(heldBack);
  const size = channels * height * width;

  const batchOf = (set: ImageSet, chosen: readonly number[]): Batch => {
    const pixels = new Float32Array(chosen.length * size);
    const targets = new Int32Array(chosen.length);
    chosen.forEach((image, row) => {
      targets[row] = set.labels[image] ?? 0;
      for (let i = 0; i < size; i++) pixels[row * size + i] = (set.pixels[image * size + i] ?? 0) / 127.5 - 1;
    });
    return { pixels, targets, batch: chosen.length, seq };
  };
  const unseen = test ? test.labels.length : heldBack;
  const validated = Array.from({ length: Math.min(evalWindows, unseen) }, (_, i) => {
    const place = Math.floor((i * unseen) / Math.min(evalWindows, unseen));
    return test ? place : (order[place] ?? 0);
  });

  let epoch = 0;
  let at = 0;
  const shuffled = () => permutation(trained.length, new Random(seed, `images of epoch ${epoch}`));
  let places = shuffled();
  const next = (): number => {
    if (at === places.length) {
      epoch++;
      at = 0;
      places = shuffled();
    }
    return trained[places[at++] ?? 0] ?? 0;
  };
  const number = (value: number) => value.toLocaleString('en');
  return {
    identity,
    validation: batchOf(test ?? train, validated),
    next: () => batchOf(train, Array.from({ length: batch }, next)),
    state: () => [epoch, at],
    restore([savedEpoch = -1, savedAt = -1]) {
      if (savedEpoch < 0 || savedAt < 0 || savedAt > trained.length)
        throw new HoldfastError(
          `place ${savedAt} of epoch ${savedEpoch}: is none in ${trained.length} images; give the same --data`,
        );
      epoch = savedEpoch;
      at = savedAt;
      places = shuffled();
    },
    rowsIn: (epochs) => epochs * trained.length,
    rowsOf: () => trained.length,
    notes: [
      `${number(trained.length)} images of ${channels} x ${height} x ${width} in ${classes} classes to train on, ` +
        `${number(validated.length)} of ${number(unseen)} others to validate on (${names.length === 1 ? names[0] : `${names.length} files`})`,
    ],
  };
}
