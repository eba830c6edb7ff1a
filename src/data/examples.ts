// Examples that have a class each, as batches: all of them once an epoch, in another order each, and those that are held back.
// What an example is (image-dataset.ts, labelled-texts.ts) says itself.
//
// Invariant: what comes next follows from the seed, the epoch and the place in it, which are the state.

import { HoldfastError } from '../util/errors.ts';
import { Random } from '../util/random.ts';
import type { Batch } from './batches.ts';
import type { TextIdentity } from './corpus.ts';
import type { Dataset } from './dataset.ts';
import { permutation } from './packing.ts';

/** Examples by their numbers. */
export interface Examples {
  readonly count: number;
  batch(chosen: readonly number[]): Batch;
}

export interface ExampleOptions {
  /** Examples in a batch. */
  readonly batch: number;
  readonly seed: number;
  /** Examples of the validation, at most. */
  readonly evalWindows: number;
  /** The part that is held back where there are no others to validate on. @default a tenth */
  readonly validationShare?: number | undefined;
}

/** What is learned from. */
export interface ExampleSets {
  readonly identity: TextIdentity;
  /** What one is, for a person: 'image'. */
  readonly word: string;
  readonly train: Examples;
  /** Others to validate on, where there are some. */
  readonly test: Examples | undefined;
  /** What became of them, said with these counts. */
  note(trained: number, validated: number, unseen: number): string;
}

/** Errors: HoldfastError for one example alone. */
export function exampleDataset(sets: ExampleSets, options: ExampleOptions): Dataset {
  const { identity, word, train, test } = sets;
  const { batch, seed, evalWindows, validationShare = 0.1 } = options;
  const { count } = train;
  if (!test && count < 2) throw new HoldfastError(`the data is one ${word}: nothing is left to validate on; give more`);
  const heldBack = test ? 0 : Math.min(count - 1, Math.max(1, Math.round(count * validationShare)));
  const order = permutation(count, new Random(0, 'validation'));
  const trained = order.subarray(heldBack);
  const unseen = test ? test.count : heldBack;
  const validated = Array.from({ length: Math.min(evalWindows, unseen) }, (_, i) => {
    const place = Math.floor((i * unseen) / Math.min(evalWindows, unseen));
    return test ? place : (order[place] ?? 0);
  });

  let epoch = 0;
  let at = 0;
  const shuffled = () => permutation(trained.length, new Random(seed, `${word}s of epoch ${epoch}`));
  let places = shuffled();
  const next = (): number => {
    if (at === places.length) {
      epoch++;
      at = 0;
      places = shuffled();
    }
    return trained[places[at++] ?? 0] ?? 0;
  };
  return {
    identity,
    validation: (test ?? train).batch(validated),
    next: async () => train.batch(Array.from({ length: batch }, next)),
    state: () => [epoch, at],
    restore([savedEpoch = -1, savedAt = -1]) {
      if (savedEpoch < 0 || savedAt < 0 || savedAt > trained.length)
        throw new HoldfastError(
          `place ${savedAt} of epoch ${savedEpoch}: is none in ${trained.length} ${word}s; give the same --data`,
        );
      epoch = savedEpoch;
      at = savedAt;
      places = shuffled();
    },
    rowsIn: (epochs) => epochs * trained.length,
    rowsOf: () => trained.length,
    notes: [sets.note(trained.length, validated.length, unseen)],
  };
}
