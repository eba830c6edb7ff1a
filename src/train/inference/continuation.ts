// The continuation of a prompt, token by token, whatever feeds the model: by itself (generator.ts) or among others
// (batch-generator.ts).

import { adapterInUse } from '../../nn/lora.ts';
import type { Model } from '../../nn/model.ts';
import { iterable } from '../../util/arguments.ts';
import { HoldfastError } from '../../util/errors.ts';
import { anything, check, closed, optional, show, text } from '../../util/json.ts';
import { checkRandom, type Random } from '../../util/random.ts';
import { checkSampling, type SamplingOptions, sampleToken } from './sampling.ts';

/** Tokens in the order in which they went through the model, together or one by one, and the adapter in use. */
export interface TokensFed {
  readonly adapter: string | undefined;
  readonly parts: (readonly number[])[];
}

/** How text is written. */
export interface GenerationOptions {
  /**
   * The adapter in use, by its name, or 'none': the model without, to the bit. @default the one that trains, 'default',
   * where the model has it
   */
  readonly adapter?: string | undefined;
}

const generationOptions = closed<GenerationOptions>({ adapter: optional(text) });

const samplingNames = closed<SamplingOptions>({ temperature: anything, topK: anything, topP: anything });

/** A text of which nothing went through the model. Errors: HoldfastError for an adapter that the model does not have. */
export const nothingFed = (model: Model, options: GenerationOptions): TokensFed => ({
  adapter: adapterInUse(model, check(generationOptions, options, 'the options of generation').adapter),
  parts: [],
});

/** Errors: HoldfastError for an empty prompt, and for a token that the model does not have. */
export function checkPrompt({ shape: { vocabulary } }: Pick<Model, 'shape'>, prompt: Int32Array): void {
  check(iterable, prompt, 'prompt');
  if (prompt.length === 0) throw new HoldfastError('the prompt is empty; give at least one token');
  const stranger = Array.from(prompt).find((id) => !(Number.isInteger(id) && id >= 0 && id < vocabulary));
  if (stranger !== undefined) {
    throw new HoldfastError(`the prompt has token ${show(stranger)}, the model's vocabulary ends at ${vocabulary - 1}`);
  }
}

/** A model with room for so many tokens, and the way of a text through it. */
export interface Feeder {
  readonly model: Model;
  readonly capacity: number;
  /** Runs tokens through the model behind those that were fed; returns the logits (V) after the last. */
  feed(tokensFed: TokensFed, ids: readonly number[]): Promise<Float32Array>;
}

/** Yields `count` token ids that continue `prompt`. Past the context's end it goes on from the last half of what there is. */
export async function* continuation(
  { model, capacity, feed }: Feeder,
  prompt: Int32Array,
  count: number,
  sampling: SamplingOptions,
  random: Random,
  options: GenerationOptions,
): AsyncGenerator<number> {
  check(samplingNames, sampling, 'the sampling options');
  checkSampling(sampling);
  checkRandom(random);
  if (!(typeof count === 'number' && count >= 0))
    throw new HoldfastError(`${show(count)} tokens to write: must be a number, 0 or more`);
  checkPrompt(model, prompt);
  let seen = [...prompt].slice(-capacity);
  let tokensFed = nothingFed(model, options);
  let logits = await feed(tokensFed, seen);
  for (let i = 0; i < count; i++) {
    const id = sampleToken(logits, sampling, random);
    yield id;
    if (i === count - 1) return;
    seen.push(id);
    if (seen.length > capacity) {
      seen = seen.slice(-Math.max(1, Math.floor(capacity / 2)));
      tokensFed = nothingFed(model, options);
      logits = await feed(tokensFed, seen);
    } else logits = await feed(tokensFed, [id]);
  }
}
