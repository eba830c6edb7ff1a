// What a run learns from, batch by batch: the port, and the one that cuts text into windows. Where the text comes from is
// corpus.ts, how windows are drawn batches.ts.
//
// Invariant: a dataset of the same identity, made with the same sizes and seed and restored from `state`, goes on with the
// batches that the original would have yielded.

import { type Batch, evenWindows, RandomWindows, type TokenBatch } from './batches.ts';
import { type Corpus, split } from './corpus.ts';
import type { Tokenizer } from './tokenizer.ts';

/** Of a corpus: a run goes on with the text that it began with. */
export interface TextIdentity {
  /** Its length. */
  readonly bytes: number;
  /** As 64 hexadecimal digits. */
  readonly sha256: string;
}

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
 * Windows of a text: nine tenths of it to train on, the rest to validate; they begin with a line where lines are all of one
 * length, in tokens too. Errors: HoldfastError for text too short.
 */
export function textDataset(
  corpus: Pick<Corpus, 'bytes' | 'lineBytes'>,
  identity: TextIdentity,
  tokenizer: Pick<Tokenizer, 'encode' | 'tokenBytes'>,
  { batch, seq, seed, evalWindows }: WindowOptions,
): Dataset<TokenBatch> {
  const { train, validation } = split(corpus);
  const { lineBytes } = corpus;
  const { tokenBytes } = tokenizer;
  const stride = lineBytes === undefined || tokenBytes === undefined ? 1 : lineBytes / tokenBytes;
  const windows = new RandomWindows(tokenizer.encode(train), batch, seq, seed, stride);
  return {
    identity,
    validation: evenWindows(tokenizer.encode(validation), seq, evalWindows, stride),
    next: () => windows.next(),
    state: () => windows.state(),
    restore: (state) => windows.restore(state),
  };
}
