// Examples that have a class each, as batches: all of them once an epoch (epoch-order.ts), and those that are held back. What an
// example is (image-dataset.ts, labelled-texts.ts) says itself.

import { HoldfastError } from '../util/errors.ts';
import { Random } from '../util/random.ts';
import type { Batch } from './batches.ts';
import type { TextIdentity } from './corpus.ts';
import type { Dataset } from './dataset.ts';
import { EpochOrder, permutation } from './epoch-order.ts';

/** Examples by their numbers. */
export interface Examples {
  readonly count: number;
  /** Errors: HoldfastError where they cannot be read any more. */
  batch(chosen: readonly number[]): Promise<Batch>;
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
export async function exampleDataset(sets: ExampleSets, options: ExampleOptions): Promise<Dataset> {
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

  const places = new EpochOrder(trained.length, seed, `${word}s`);
  const next = (): number => trained[places.next()] ?? 0;
  return {
    identity,
    validation: await (test ?? train).batch(validated),
    next: () => train.batch(Array.from({ length: batch }, next)),
    state: () => places.state(),
    restore(state) {
      if (places.restore(state)) return;
      const [epoch, at] = state;
      throw new HoldfastError(
        `place ${at} of epoch ${epoch}: is none in ${trained.length} ${word}s; give the same --data`,
      );
    },
    rowsIn: (epochs) => epochs * trained.length,
    rowsOf: () => trained.length,
    notes: [sets.note(trained.length, validated.length, unseen)],
  };
}
