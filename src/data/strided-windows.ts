// A text in overlapping windows, for a perplexity: every token but the first is a target once, with as much of the text
// before it as the stride leaves. Not for training (batches.ts).
//
// Invariant: the targets that are not ignored, in order, are the tokens from the second to the last; each but those of the
// first window has at least `context - stride` tokens in front of it in its window, beside the one that predicts it.

import { IGNORE_INDEX } from '../graph/operators/cross-entropy.ts';
import { at } from '../util/at.ts';
import { counted } from '../util/counted.ts';
import { HoldfastError } from '../util/errors.ts';
import { check, closed, number } from '../util/json.ts';
import { wholeNumber } from '../util/range.ts';
import type { TokenBatch } from './batches.ts';
import { checkTokenIds, type TokenIds, type TokenRun } from './token-run.ts';

/** How a text is cut. */
export interface StrideOptions {
  /** Tokens in a window. */
  readonly context: number;
  /** Tokens from the beginning of a window to that of the next: `context` at most. */
  readonly stride: number;
  /** Windows in a batch; the last has fewer. */
  readonly batch: number;
}

/** Windows of a text of so many tokens. */
export function windowCount(tokens: number, { context, stride }: Pick<StrideOptions, 'context' | 'stride'>): number {
  return 1 + Math.max(0, Math.ceil((tokens - 1 - context) / stride));
}

/** A row of a batch: from `begin` on, with targets from `next` up to before `end`. */
interface Row {
  readonly begin: number;
  readonly next: number;
  readonly end: number;
}

/** Errors: HoldfastError for fewer than two tokens, and for a stride over which tokens would be left out. */
export function* stridedWindows(tokens: TokenIds, options: StrideOptions): Generator<TokenBatch> {
  checkTokenIds(tokens);
  for (const rows of batchesOf(tokens.length, options)) {
    const parts = rows.map(({ begin, end }) => tokens.subarray(begin, end));
    yield batchOf(rows, parts, options.context);
  }
}

/** As `stridedWindows`, of tokens that need not be in memory. */
export async function* readStridedWindows(tokens: TokenRun, options: StrideOptions): AsyncGenerator<TokenBatch> {
  for (const rows of batchesOf(tokens.length, options)) {
    const parts = await tokens.read(rows.map(({ begin, end }) => [begin, end]));
    yield batchOf(rows, parts, options.context);
  }
}

const count = number(wholeNumber(1));
const strideOptions = closed<StrideOptions>({ context: count, stride: number(wholeNumber(0)), batch: count });

function* batchesOf(tokens: number, options: StrideOptions): Generator<Row[]> {
  const { context, stride, batch } = check(strideOptions, options, 'the options of windows');
  if (tokens < 2)
    throw new HoldfastError(`the text has ${counted(tokens, 'token')}; there is nothing to predict, use a longer one`);
  if (stride < 1 || stride > context)
    throw new HoldfastError(`a stride of ${stride} tokens: it must be from 1 to the context, ${context}`);
  const windows = windowCount(tokens, options);
  /** The first token that is no target yet. */
  let next = 1;
  for (let first = 0; first < windows; first += batch) {
    const rows: Row[] = [];
    for (let window = first; window < Math.min(first + batch, windows); window++) {
      const begin = window * stride;
      const end = Math.min(begin + context + 1, tokens);
      rows.push({ begin, next, end });
      next = end;
    }
    yield rows;
  }
}

/** `parts`: the tokens of each row. */
function batchOf(rows: readonly Row[], parts: readonly TokenIds[], context: number): TokenBatch {
  const ids = new Int32Array(rows.length * context);
  const targets = new Int32Array(rows.length * context).fill(IGNORE_INDEX);
  for (const [row, part] of parts.entries()) {
    const { begin, next } = at(rows, row);
    // What is behind the text's end is no input of any target.
    ids.set(part.subarray(0, context), row * context);
    targets.set(part.subarray(next - begin), row * context + (next - 1 - begin));
  }
  return { ids, targets, batch: rows.length, seq: context };
}
