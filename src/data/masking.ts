// Masked language modelling (Devlin et al. 2018): of the tokens of a batch 15 % are to be told, of which 80 % are hidden
// behind one token, 10 % are another one, and 10 % stay; none of them is a special token. Where windows come from is another
// dataset's matter: here they are put between [CLS] and [SEP], where their tokenizer has such.
//
// Invariant: what is hidden in a batch follows from the seed and the state that the dataset drew the batch from, so that a
// dataset restored from `state` hides what the original would have hidden.

import { IGNORE_INDEX } from '../graph/operators/cross-entropy.ts';
import { HoldfastError } from '../util/errors.ts';
import { Random } from '../util/random.ts';
import type { TokenBatch } from './batches.ts';
import type { Dataset } from './dataset.ts';
import type { TextMarks, Tokenizer } from './tokenizer.ts';

/** Of all tokens, those that are to be told. */
const CHOSEN = 0.15;
/** Of the chosen ones, those that are hidden, and those that are hidden or another token. */
const HIDDEN = 0.8;
const CHANGED = 0.9;

export interface Masking {
  /** What stands for a hidden token. */
  readonly mask: number;
  /** Another token is one below this. */
  readonly vocabulary: number;
  /** What is put around each window, and never told. @default nothing: any token may be */
  readonly marks?: TextMarks;
}

/**
 * How a tokenizer's tokens are masked: bytes by NUL, which text does not have. `marked`: with what the tokenizer has around a text.
 * Errors: HoldfastError for a tokenizer without a [MASK].
 */
export function maskingOf(
  tokenizer: Pick<Tokenizer, 'identity' | 'encode' | 'vocabulary' | 'marks'>,
  marked = false,
): Masking {
  const { identity, vocabulary, marks } = tokenizer;
  if (identity.kind === 'byte') return { mask: 0, vocabulary };
  for (const text of ['[MASK]', '<mask>']) {
    const [mask, ...rest] = tokenizer.encode(text);
    if (mask !== undefined && rest.length === 0) return { mask, vocabulary, ...(marked && marks && { marks }) };
  }
  throw new HoldfastError(
    `${identity.path}: has no token [MASK] or <mask>, which hides what a masked language model learns to tell; use the tokenizer of one`,
  );
}

/** The batch with some of its tokens to be told: targets are those, and nothing everywhere else. */
export function masked(given: TokenBatch, { mask, vocabulary, marks }: Masking, random: Random): TokenBatch {
  const ids = given.ids.slice();
  const targets = new Int32Array(ids.length).fill(IGNORE_INDEX);
  given.ids.forEach((id, i) => {
    if (marks?.special.has(id) || random.uniform() >= CHOSEN) return;
    targets[i] = id;
    const draw = random.uniform();
    if (draw < HIDDEN) ids[i] = mask;
    else if (draw < CHANGED) ids[i] = random.below(vocabulary);
  });
  return { ...given, ids, targets };
}

/**
 * Tokens of text in a window of so many, of which marks take some. Errors: HoldfastError where no token of text has room.
 */
export function textOf(seq: number, { marks }: Masking): number {
  const around = marks ? marks.before.length + marks.after.length : 0;
  if (seq > around) return seq - around;
  throw new HoldfastError(
    `windows of ${seq} tokens: what its tokenizer puts around a text takes ${around}; use at least ${around + 1}`,
  );
}

/** Its windows between the marks, with some tokens hidden; those of the validation are always the same. */
export function maskedDataset(dataset: Dataset<TokenBatch>, masking: Masking, seed: number): Dataset<TokenBatch> {
  return {
    ...dataset,
    validation: masked(between(dataset.validation, masking), masking, new Random(0, 'validation masks')),
    async next() {
      const random = new Random(seed, `masks ${dataset.state().join(' ')}`);
      return masked(between(await dataset.next(), masking), masking, random);
    },
  };
}

/** The windows with marks around them. */
function between(given: TokenBatch, { marks }: Masking): TokenBatch {
  if (!marks) return given;
  const { before, after } = marks;
  const { batch } = given;
  const seq = before.length + given.seq + after.length;
  const ids = new Int32Array(batch * seq);
  for (let row = 0; row < batch; row++) {
    const window = given.ids.subarray(row * given.seq, (row + 1) * given.seq);
    ids.set([...before, ...window, ...after], row * seq);
  }
  return { ...given, ids, seq };
}
