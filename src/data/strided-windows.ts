// A text in overlapping windows, for a perplexity: every token but the first is a target once, with as much of the text
// before it as the stride leaves. Not for training (batches.ts).
//
// Invariant: the targets that are not ignored, in order, are the tokens from the second to the last; each but those of the
// first window has at least `context - stride` tokens in front of it in its window, beside the one that predicts it.

import { IGNORE_INDEX } from '../graph/operators/cross-entropy.ts';
import { HoldfastError } from '../util/errors.ts';
import type { TokenBatch, TokenIds } from './batches.ts';

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

/** Errors: HoldfastError for fewer than two tokens, and for a stride over which tokens would be left out. */
export function* stridedWindows(tokens: TokenIds, options: StrideOptions): Generator<TokenBatch> {
  const { context, stride, batch } = options;
  if (tokens.length < 2)
    throw new HoldfastError(`the text has ${tokens.length} tokens; there is nothing to predict, use a longer one`);
  if (stride < 1 || stride > context)
    throw new HoldfastError(`a stride of ${stride} tokens: it must be from 1 to the context, ${context}`);
  const count = windowCount(tokens.length, options);
  /** The first token that is no target yet. */
  let next = 1;
  for (let first = 0; first < count; first += batch) {
    const rows = Math.min(batch, count - first);
    const ids = new Int32Array(rows * context);
    const targets = new Int32Array(rows * context).fill(IGNORE_INDEX);
    for (let row = 0; row < rows; row++) {
      const begin = (first + row) * stride;
      // What is behind the text's end is no input of any target.
      ids.set(tokens.subarray(begin, begin + context), row * context);
      const end = Math.min(begin + context + 1, tokens.length);
      targets.set(tokens.subarray(next, end), row * context + (next - 1 - begin));
      next = end;
    }
    yield { ids, targets, batch: rows, seq: context };
  }
}
