// Batches cut from a run of tokens: windows at random offsets to train on, windows spread evenly to validate.
//
// A window of T tokens needs T + 1 of them: the target of each position is the token after it. Invariant: a
// RandomWindows restored from state() yields the batches that the original would have yielded.

import { HoldfastError } from '../util/errors.ts';
import { Random } from '../util/random.ts';

/** An array of a batch: numbers that are counted, or measured. */
export type BatchArray = Int32Array<ArrayBuffer> | Float32Array<ArrayBuffer>;

/** What a model learns from at once: arrays by the names of its inputs, of so many rows each. */
export interface Batch {
  /** Each a multiple of `batch` long. */
  readonly [input: string]: BatchArray | number;
  /** Rows: sequences. */
  readonly batch: number;
  /** Tokens in a sequence. */
  readonly seq: number;
}

/** Sequences of tokens, and the token that follows each of them. */
export interface TokenBatch extends Batch {
  /** (batch, seq) */
  readonly ids: Int32Array<ArrayBuffer>;
  /** (batch, seq): targets[b, t] is the label for position t of row b. */
  readonly targets: Int32Array<ArrayBuffer>;
}

/** One of its arrays. Errors: HoldfastError where there is none, or of another type. */
export function arrayOf(batch: Batch, name: string, type: 'i32' | 'f32'): BatchArray {
  const values = batch[name];
  const wanted = type === 'i32' ? Int32Array : Float32Array;
  if (values instanceof wanted) return values;
  throw new HoldfastError(`a batch has no ${name}: give them as ${wanted.name}`);
}

/** A run of token ids: as wide as they need. */
export type TokenIds = Int32Array | Uint8Array | Uint16Array | Uint32Array;

/** Of one batch: what every adapter binds at once (128 MiB). The host holds their ids and their targets. */
const MOST_TOKENS = 2 ** 25;

/** Checks that a batch is none that no memory holds. Errors: HoldfastError with the largest that may. */
export function checkTokens(what: string, windows: number, tokens: number): void {
  if (windows * tokens <= MOST_TOKENS) return;
  const most = Math.floor(MOST_TOKENS / tokens);
  throw new HoldfastError(
    `a ${what} of ${windows} sequences of ${tokens} tokens: ${MOST_TOKENS} tokens at most are held at once; ` +
      (most > 0 ? `use at most ${most} sequences` : 'use shorter ones'),
  );
}

/** Batches to train on: windows at random offsets of a run of tokens, from a seed. */
export class RandomWindows {
  readonly #tokens: TokenIds;
  readonly #random: Random;
  readonly #stride: number;
  /** Windows in a batch. */
  readonly batch: number;
  /** Tokens in a window. */
  readonly context: number;

  /** Windows begin at multiples of `stride`. Errors: HoldfastError when `tokens` is shorter than context + 1. */
  constructor(tokens: TokenIds, batch: number, context: number, seed: number, stride = 1) {
    checkTokens('batch', batch, context);
    checkLength(tokens, context, 'training');
    this.#tokens = tokens;
    this.#random = new Random(seed, 'batches');
    this.#stride = stride;
    this.batch = batch;
    this.context = context;
  }

  /** `batch` windows, each at a uniformly random offset, independently. */
  next(): TokenBatch {
    const offsets = Math.ceil((this.#tokens.length - this.context) / this.#stride);
    return cut(this.#tokens, this.context, this.batch, () => this.#random.below(offsets) * this.#stride);
  }

  /** Plain JSON. */
  state(): number[] {
    return this.#random.state();
  }

  /** Goes on from where `state` was taken. */
  restore(state: readonly number[]): void {
    this.#random.restore(state);
  }
}

/**
 * `count` windows from the first token to the last, spread evenly, each at a multiple of `stride`; they overlap where
 * tokens are few.
 */
export function evenWindows(tokens: TokenIds, context: number, count: number, stride = 1): TokenBatch {
  checkTokens('validation', count, context);
  checkLength(tokens, context, 'validation');
  const last = tokens.length - context - 1;
  return cut(tokens, context, count, (row) => {
    const offset = Math.floor((row * last) / Math.max(1, count - 1));
    return offset - (offset % stride);
  });
}

function cut(tokens: TokenIds, seq: number, batch: number, offset: (row: number) => number): TokenBatch {
  const ids = new Int32Array(batch * seq);
  const targets = new Int32Array(batch * seq);
  for (let row = 0; row < batch; row++) {
    const begin = offset(row);
    ids.set(tokens.subarray(begin, begin + seq), row * seq);
    targets.set(tokens.subarray(begin + 1, begin + 1 + seq), row * seq);
  }
  return { ids, targets, batch, seq };
}

function checkLength(tokens: TokenIds, context: number, part: 'training' | 'validation'): void {
  if (tokens.length > context) return;
  const shorter = tokens.length > 1 ? ` or a context of at most ${tokens.length - 1}` : '';
  throw new HoldfastError(
    `${part} text: ${tokens.length} tokens, a context of ${context} needs at least ${context + 1}; ` +
      `use a longer text${shorter}`,
  );
}
