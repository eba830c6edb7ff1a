// What a run learns from, batch by batch: the port, and the one that cuts text into windows. Where the text comes from is
// corpus.ts, how windows are drawn batches.ts.
//
// Invariant: a dataset of the same identity, made with the same sizes and seed and restored from `state`, goes on with the
// batches that the original would have yielded.

import { type Batch, evenWindows, RandomWindows, type TokenBatch } from './batches.ts';
import type { TextIdentity, TokenizedText } from './tokenized-text.ts';

export type { TextIdentity };

export interface Dataset<B extends Batch = Batch> {
  /** Of what it is cut from. */
  readonly identity: TextIdentity;
  /** Held back, and always the same. */
  readonly validation: B;
  /** The next batch to train on. */
  next(): B;
  /** Plain JSON. */
  state(): number[];
  /** Goes on from where `state` was taken. */
  restore(state: readonly number[]): void;
}

export interface WindowOptions {
  /** Sequences in a batch. */
  readonly batch: number;
  /** Tokens in a sequence. */
  readonly seq: number;
  readonly seed: number;
  /** Sequences of the validation. */
  readonly evalWindows: number;
}

/**
 * Windows of a text, those to train on and those to validate with apart; they begin with a line where lines are all of one
 * length, in tokens too. Errors: HoldfastError for text too short.
 */
export function textDataset(
  { identity, train, validation, stride }: TokenizedText,
  { batch, seq, seed, evalWindows }: WindowOptions,
): Dataset<TokenBatch> {
  const windows = new RandomWindows(train, batch, seq, seed, stride);
  return {
    identity,
    validation: evenWindows(validation, seq, evalWindows, stride),
    next: () => windows.next(),
    state: () => windows.state(),
    restore: (state) => windows.restore(state),
  };
}
