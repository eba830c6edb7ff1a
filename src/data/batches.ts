// Batches cut from a run of tokens, in memory or in a file: windows at random offsets to train on, windows spread evenly to
// validate.
//
// A window of T tokens needs T + 1 of them: the target of each position is the token after it. Invariant: a
// RandomWindows, or RandomOffsets, restored from state() yields what the original would have yielded.

import { checkWholeNumber } from '../util/arguments.ts';
import { counted } from '../util/counted.ts';
import { HoldfastError } from '../util/errors.ts';
import { show } from '../util/json.ts';
import { Random } from '../util/random.ts';
import { EpochOrder } from './epoch-order.ts';
import { checkTokenIds, type TokenIds, type TokenRange, type TokenRun } from './token-run.ts';

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

/** An array of a batch by its name. Errors: HoldfastError where there is none, or of another type. */
export function arrayOf(batch: Batch, name: string, type: 'i32' | 'f32'): BatchArray {
  const values = batch[name];
  const wanted = type === 'i32' ? Int32Array : Float32Array;
  if (values instanceof wanted) {
    if (values.buffer instanceof ArrayBuffer) return values;
    throw new HoldfastError(
      `a batch's ${name} lie in shared memory, which a GPU's queue may not read; give a copy: slice()`,
    );
  }
  throw new HoldfastError(`a batch has no ${name}: give them as ${wanted.name}`);
}

/** Of one batch: what every adapter binds at once (128 MiB). The host holds their ids and their targets. */
const MOST_TOKENS = 2 ** 25;

/** Checks that a batch is one, and none that no memory holds. Errors: HoldfastError with the largest that may. */
export function checkTokens(what: string, windows: number, tokens: number): void {
  const isSize = (value: number) => Number.isSafeInteger(value) && value >= 1;
  if (!isSize(windows) || !isSize(tokens))
    throw new HoldfastError(
      `a ${what} of ${show(windows)} sequences of ${show(tokens)} tokens: both must be whole numbers, 1 or more`,
    );
  if (windows * tokens <= MOST_TOKENS) return;
  const most = Math.floor(MOST_TOKENS / tokens);
  const flag = what === 'validation' ? ' (--eval-windows)' : '';
  throw new HoldfastError(
    `a ${what} of ${windows} sequences of ${tokens} tokens: ${MOST_TOKENS} tokens at most are held at once; ` +
      (most > 0 ? `use at most ${counted(most, 'sequence')}${flag}, or shorter ones` : 'use shorter ones'),
  );
}

/** Where the windows of a batch begin in so many tokens: at random, each independently, from a seed. */
export class RandomOffsets {
  readonly #random: Random;
  readonly #tokens: number;
  readonly #context: number;
  readonly #offsets: number;
  readonly #stride: number;
  readonly #batch: number;

  /** Windows begin at multiples of `stride`. Errors: HoldfastError for fewer than context + 1 tokens. */
  constructor(tokens: number, batch: number, context: number, seed: number, stride = 1) {
    checkTokens('batch', batch, context);
    checkLength(tokens, context, 'training');
    [this.#tokens, this.#context] = [tokens, context];
    this.#random = new Random(seed, 'batches');
    this.#offsets = Math.ceil((tokens - context) / stride);
    this.#stride = stride;
    this.#batch = batch;
  }

  /** One for each window. */
  next(): number[] {
    return Array.from({ length: this.#batch }, () => this.#random.below(this.#offsets) * this.#stride);
  }

  /** Windows that have as many tokens as there are. */
  get perEpoch(): number {
    return this.#tokens / this.#context;
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
 * Where the windows of a batch begin in so many tokens: side by side over all of them, once an epoch, in another order each, from
 * a seed. The last one ends with the last token, and so overlaps with the one before it.
 */
export class EpochOffsets {
  /** Numbers in a state. */
  static readonly stateLength = 2;
  readonly #order: EpochOrder;
  readonly #step: number;
  readonly #last: number;
  readonly #batch: number;
  readonly perEpoch: number;

  /** As those of RandomOffsets. */
  constructor(tokens: number, batch: number, context: number, seed: number, stride = 1) {
    checkTokens('batch', batch, context);
    checkLength(tokens, context, 'training');
    this.#step = Math.max(stride, context - (context % stride));
    this.#last = tokens - context - 1;
    this.#last -= this.#last % stride;
    this.perEpoch = Math.ceil(this.#last / this.#step) + 1;
    this.#order = new EpochOrder(this.perEpoch, seed, 'windows');
    this.#batch = batch;
  }

  /** One for each window. */
  next(): number[] {
    return Array.from({ length: this.#batch }, () => Math.min(this.#last, this.#order.next() * this.#step));
  }

  /** The epoch, and how many windows of it are done. */
  state(): number[] {
    return this.#order.state();
  }

  /** Goes on from where `state` was taken. Errors: HoldfastError for what is no state of it. */
  restore(state: readonly number[]): void {
    if (this.#order.restore(state)) return;
    throw new HoldfastError(
      `the place in the data is window ${state[1]} of epoch ${state[0]}; an epoch has ${this.perEpoch} windows, the checkpoint is damaged`,
    );
  }
}

/** Batches to train on: windows at random offsets of a run of tokens, from a seed. */
export class RandomWindows {
  readonly #tokens: TokenIds;
  readonly #offsets: RandomOffsets;
  /** Windows in a batch. */
  readonly batch: number;
  /** Tokens in a window. */
  readonly context: number;

  /** Windows begin at multiples of `stride`. Errors: HoldfastError when `tokens` is shorter than context + 1, and for tokens in a plain list. */
  constructor(tokens: TokenIds, batch: number, context: number, seed: number, stride = 1) {
    checkTokenIds(tokens);
    checkWholeNumber(stride, 'stride', 1);
    this.#tokens = tokens;
    this.#offsets = new RandomOffsets(tokens.length, batch, context, seed, stride);
    this.batch = batch;
    this.context = context;
  }

  /** `batch` windows, each at a uniformly random offset, independently. */
  next(): TokenBatch {
    return cut(this.#tokens, this.context, this.#offsets.next());
  }

  /** Plain JSON. */
  state(): number[] {
    return this.#offsets.state();
  }

  /** Goes on from where `state` was taken. */
  restore(state: readonly number[]): void {
    this.#offsets.restore(state);
  }
}

/**
 * `count` windows from the first token to the last, spread evenly, each at a multiple of `stride`; they overlap where
 * tokens are few.
 */
export function evenWindows(tokens: TokenIds, context: number, count: number, stride = 1): TokenBatch {
  checkTokenIds(tokens);
  checkWholeNumber(stride, 'stride', 1);
  return cut(tokens, context, evenOffsets(tokens.length, context, count, stride));
}

/** Where those of so many tokens begin. Errors: HoldfastError for too few. */
export function evenOffsets(tokens: number, context: number, count: number, stride = 1): number[] {
  checkTokens('validation', count, context);
  checkLength(tokens, context, 'validation');
  const last = tokens - context - 1;
  return Array.from({ length: count }, (_, row) => {
    const offset = Math.floor((row * last) / Math.max(1, count - 1));
    return offset - (offset % stride);
  });
}

/** The windows that begin at these offsets. */
export async function readWindows(tokens: TokenRun, seq: number, offsets: readonly number[]): Promise<TokenBatch> {
  return batchOf(await tokens.read(offsets.map((offset) => windowAt(offset, seq))), seq);
}

const cut = (tokens: TokenIds, seq: number, offsets: readonly number[]): TokenBatch =>
  batchOf(
    offsets.map((offset) => tokens.subarray(...windowAt(offset, seq))),
    seq,
  );

/** A window, and the target of its last token. */
const windowAt = (offset: number, seq: number): TokenRange => [offset, offset + seq + 1];

function batchOf(windows: readonly TokenIds[], seq: number): TokenBatch {
  const batch = windows.length;
  const ids = new Int32Array(batch * seq);
  const targets = new Int32Array(batch * seq);
  for (const [row, window] of windows.entries()) {
    ids.set(window.subarray(0, seq), row * seq);
    targets.set(window.subarray(1), row * seq);
  }
  return { ids, targets, batch, seq };
}

/** Errors: HoldfastError for fewer than context + 1 tokens, with the context that they suffice for. */
export function checkLength(tokens: number, context: number, part: 'training' | 'validation'): void {
  if (tokens > context) return;
  const shorter = tokens > 1 ? ` or a context of at most ${tokens - 1}` : '';
  throw new HoldfastError(
    `${part} text: ${counted(tokens, 'token')}, a context of ${context} needs at least ${context + 1}; ` +
      `use a longer text${shorter}`,
  );
}
