// The next token from a row of logits: temperature, then top-k, then top-p, as Hugging Face orders them.
//
// Float64 inside. Invariant: the token depends on the logits, the options and the random numbers alone; of
// equal logits the lower id comes first, in greedy choice and at every cut.

import { at } from '../../util/at.ts';
import { HoldfastError } from '../../util/errors.ts';
import { show } from '../../util/json.ts';
import type { Random } from '../../util/random.ts';

/** How the next token is drawn. Errors where they are used: HoldfastError for an option out of range. */
export interface SamplingOptions {
  /** Divides the logits: below 1 sharpens, above 1 flattens, 0 always takes the likeliest. @default 1 */
  readonly temperature?: number;
  /** Only this many of the likeliest tokens. @default all */
  readonly topK?: number;
  /** Only the likeliest tokens that together reach this probability. @default 1 */
  readonly topP?: number;
}

/** Errors: HoldfastError for an option out of range. */
export function checkSampling({ temperature = 1, topK = 1, topP = 1 }: SamplingOptions): void {
  if (!(Number.isFinite(temperature) && temperature >= 0)) {
    throw new HoldfastError(`temperature ${show(temperature)}: must be 0 (always the likeliest token) or above`);
  }
  if (!(Number.isSafeInteger(topK) && topK >= 1)) {
    throw new HoldfastError(`top-k ${show(topK)}: must be a whole number of tokens, 1 or more`);
  }
  if (!(typeof topP === 'number' && topP > 0 && topP <= 1)) {
    throw new HoldfastError(`top-p ${show(topP)}: must be a probability above 0 and at most 1`);
  }
}

/** A token id. Draws one number from `random` unless the temperature is 0. */
export function sampleToken(logits: Float32Array, options: SamplingOptions, random: Random): number {
  checkSampling(options);
  const { temperature = 1, topK = logits.length, topP = 1 } = options;
  const { id: likeliest, logit: max } = largest(logits);
  if (temperature === 0) return likeliest;
  const weight = (id: number) => Math.exp((at(logits, id) - max) / temperature);
  let ids = Uint32Array.from(logits.keys());
  if (topK < ids.length || topP < 1) {
    ids.sort((a, b) => at(logits, b) - at(logits, a) || a - b);
    ids = ids.subarray(0, topK);
  }
  let weights = Float64Array.from(ids, weight);
  if (topP < 1) weights = weights.subarray(0, reach(weights, topP) + 1);
  // 1 - u lies in (0, 1]: never on a token of weight 0, never past the sum.
  return at(ids, reach(weights, 1 - random.uniform()));
}

function largest(logits: Float32Array): { id: number; logit: number } {
  let best = { id: 0, logit: Number.NEGATIVE_INFINITY };
  for (const [id, logit] of logits.entries()) {
    if (Number.isNaN(logit)) throw diverged(id, logit);
    if (logit > best.logit) best = { id, logit };
  }
  if (!Number.isFinite(best.logit)) throw diverged(best.id, best.logit);
  return best;
}

function diverged(id: number, logit: number): HoldfastError {
  return new HoldfastError(
    `logit ${id} is ${logit}: the model has diverged; go back to an earlier checkpoint or lower the learning rate`,
  );
}

const sum = (values: Float64Array): number => values.reduce((a, b) => a + b, 0);

/** The first index up to which `weights` add up to `share` (above 0, at most 1) of their sum. */
function reach(weights: Float64Array, share: number): number {
  const wanted = share * sum(weights);
  let reached = 0;
  for (const [index, weight] of weights.entries()) {
    reached += weight;
    if (reached >= wanted) return index;
  }
  return weights.length - 1;
}
