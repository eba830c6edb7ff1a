// Datasets, read batch by batch: the port, the one that cuts text into windows, and the one that puts documents into
// rows. Where text comes from is corpus.ts, documents records/; how windows are drawn batches.ts, rows packing.ts.
//
// Invariant: a dataset of the same identity, made with the same sizes and seed and restored from `state`, goes on with the
// batches that the original would have yielded.

import { counted } from '../util/counted.ts';
import { HoldfastError } from '../util/errors.ts';
import { Random } from '../util/random.ts';
import {
  type Batch,
  checkLength,
  checkTokens,
  EpochOffsets,
  evenOffsets,
  RandomOffsets,
  readWindows,
  type TokenBatch,
} from './batches.ts';
import type { TextIdentity } from './corpus.ts';
import { permutation } from './epoch-order.ts';
import { Pieces, ShuffledRows } from './packing.ts';
import type { ReadDocuments } from './records/read-records.ts';
import type { TokenizedText } from './tokenized-text.ts';

export interface Dataset<B extends Batch = Batch> {
  /** Of what it is cut from. */
  readonly identity: TextIdentity;
  /** Held back, and always the same. */
  readonly validation: B;
  /** The next batch to train on. It is drawn when this is called, and read then. Errors: HoldfastError where it cannot be read. */
  next(): Promise<B>;
  /** Plain JSON. */
  state(): number[];
  /** Goes on from where `state` was taken. Errors: HoldfastError for what is no state of it. */
  restore(state: readonly number[]): void;
  /** Sequences that so many passes over the data are, to the nearest whole one above. */
  rowsIn(epochs: number): number;
  /** Sequences that one pass is, the epoch counted from 0, to the nearest whole one above. */
  rowsOf(epoch: number): number;
  /** What a sample of the model's writing begins with. @default a line's end */
  readonly prompt?: Int32Array<ArrayBuffer>;
  /** What became of the data, a line each. */
  readonly notes: readonly string[];
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

/** How a text becomes batches. */
export interface TextOptions extends WindowOptions {
  /** Passes over the text that were asked for: windows lie side by side in each. @default none; they begin anywhere */
  readonly epochs?: number | undefined;
}

/** How documents become batches. */
export interface DocumentOptions extends WindowOptions {
  /** The part of the documents that is held back, where there are no others to validate on. @default a tenth */
  readonly validationShare?: number | undefined;
}

/**
 * Windows of a text, those to train on and those to validate with apart; they begin with a line where lines are all of one
 * length, in tokens too. Errors: HoldfastError for text too short.
 */
export async function textDataset(
  { identity, train, validation, stride }: TokenizedText,
  { batch, seq, seed, evalWindows, epochs }: TextOptions,
): Promise<Dataset<TokenBatch>> {
  // What is said of the shorter part holds for both.
  if (validation.length < train.length) checkLength(validation.length, seq, 'validation');
  const make = (Offsets: typeof RandomOffsets | typeof EpochOffsets) =>
    new Offsets(train.length, batch, seq, seed, stride);
  let offsets = make(epochs === undefined ? RandomOffsets : EpochOffsets);
  return {
    identity,
    validation: await readWindows(validation, seq, evenOffsets(validation.length, seq, evalWindows, stride)),
    next: () => readWindows(train, seq, offsets.next()),
    state: () => offsets.state(),
    // A run goes on in the way that it began, also where it was given more steps since.
    restore(state) {
      offsets = make(state.length === EpochOffsets.stateLength ? EpochOffsets : RandomOffsets);
      offsets.restore(state);
    },
    rowsIn: (epochs) => Math.ceil(epochs * offsets.perEpoch),
    rowsOf: () => Math.ceil(offsets.perEpoch),
    notes: [],
  };
}

/** Documents to train on and, perhaps, others to validate on. */
export interface DocumentSets {
  readonly train: ReadDocuments;
  readonly validation?: ReadDocuments | undefined;
}

/**
 * Rows of documents, in another order each epoch. A share of them is held back, the same for every seed, where there are
 * none to validate on. Errors: HoldfastError for too few.
 */
export async function documentDataset(
  { train, validation }: DocumentSets,
  { batch, seq, seed, evalWindows, validationShare = 0.1 }: DocumentOptions,
  pack: boolean,
): Promise<Dataset> {
  checkTokens('batch', batch, seq);
  const { count } = train.documents;
  const heldBack = validation ? 0 : Math.max(1, Math.min(count - 1, Math.round(count * validationShare)));
  if (heldBack >= count) {
    throw new HoldfastError(
      'the data is one document: nothing is left to validate on; give more, or a file to validate on',
    );
  }
  const order = validation
    ? Uint32Array.from({ length: count }, (_, i) => i)
    : permutation(count, new Random(0, 'validation'));
  const piecesOf = (read: ReadDocuments, chosen: Uint32Array) =>
    new Pieces(read.documents, chosen.toSorted(), { seq, pack, longer: read.longer });
  const trained = piecesOf(train, order.subarray(heldBack));
  const validated = validation
    ? piecesOf(
        validation,
        Uint32Array.from({ length: validation.documents.count }, (_, i) => i),
      )
    : piecesOf(train, order.subarray(0, heldBack));
  trained.checkLearned('the records to train on');
  validated.checkLearned('the records to validate on');
  const rows = new ShuffledRows(trained, seed);
  return {
    identity: train.identity,
    validation: await validated.batch(evenly(validated.rows(), evalWindows)),
    next: () => rows.next(batch),
    state: () => rows.state(),
    restore: (state) => rows.restore(state),
    rowsIn: (epochs) => rows.count(epochs),
    rowsOf: (epoch) => rows.countOf(epoch),
    prompt: await validated.prompt(),
    notes: [describe(train, trained, validated, seq)],
  };
}

/** At most so many of a list, evenly from the first to the last. */
function evenly<T>(all: readonly T[], most: number): T[] {
  if (all.length <= most) return [...all];
  return all.filter((_, i) => Math.floor((i * most) / all.length) !== Math.floor(((i - 1) * most) / all.length));
}

/** What became of documents, with counts. */
function describe(
  { documents, names, shapes, longer, leftOut }: ReadDocuments,
  train: Pieces,
  validation: Pieces,
  seq: number,
) {
  const files = counted(names.length, 'file', number(names.length));
  const sum = (key: 'longer' | 'tokensCut' | 'emptied') => train[key] + validation[key];
  const all = { longer: sum('longer'), tokensCut: sum('tokensCut'), emptied: sum('emptied') };
  const lines = [
    `${counted(documents.count, 'record', number(documents.count))} (${shapes.join(', ')}) in ${files}, ${counted(documents.tokens, 'token', number(documents.tokens))}`,
    ...describeCut(all, { seq, longer, leftOut }),
  ];
  return lines.join('; ');
}

const number = (value: number) => value.toLocaleString('en');

/** What was split or cut off, and what was left out: a phrase each; none where every document is whole. */
export function describeCut(
  { longer: long, tokensCut, emptied }: Pick<Pieces, 'longer' | 'tokensCut' | 'emptied'>,
  { seq, longer, leftOut }: Pick<ReadDocuments, 'longer' | 'leftOut'> & { readonly seq: number },
): string[] {
  const lines: string[] = [];
  if (long > 0) {
    const rule =
      longer === 'split' ? 'split' : `cut off behind them (${counted(tokensCut, 'token', number(tokensCut))})`;
    lines.push(`${number(long)} longer than ${number(seq)} tokens, ${rule}`);
  }
  if (leftOut > 0) lines.push(`${number(leftOut)} left out, with nothing to learn`);
  if (emptied > 0) lines.push(`${number(emptied)} left out, whose answers begin behind that`);
  return lines;
}
