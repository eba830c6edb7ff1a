// The way in which a model's makers have its text drawn: the sampling fields of its generation_config.json, as Hugging Face's
// `generate` has them. What its special tokens are is specials.ts's.

import type { TokenizerFiles } from '../../formats/tokenizer-files.ts';
import { jsonBeside } from '../../formats/tokenizer-overrides.ts';
import { HoldfastError, shortened } from '../../util/errors.ts';
import { show } from '../../util/json.ts';
import { describeRange, inRange, realNumber, wholeNumber } from '../../util/range.ts';

const FILE = 'generation_config.json';

/** Sampling that a model is given along. */
export interface AdvisedSampling {
  /** All three are absent where the model's text is not said to be sampled. */
  readonly temperature?: number;
  readonly topK?: number;
  readonly topP?: number;
  /** Fields that would change what is written, and that nothing here does, with their values. */
  readonly notApplied: readonly string[];
}

/** What a field is where the file does not say it, and what it may be. 0 likeliest tokens are all of them. */
const SAMPLING = {
  temperature: { otherwise: 1, range: realNumber(0) },
  top_k: { otherwise: 50, range: wholeNumber(0) },
  top_p: { otherwise: 1, range: realNumber(Number.MIN_VALUE, 1) },
} as const;

/** Fields that change what is written, by the value at which they do not. */
const OTHERS: Readonly<Record<string, unknown>> = {
  ...{ repetition_penalty: 1, encoder_repetition_penalty: 1, no_repeat_ngram_size: 0, min_p: 0, typical_p: 1 },
  ...{ epsilon_cutoff: 0, eta_cutoff: 0, num_beams: 1, penalty_alpha: 0, min_new_tokens: 0, min_length: 0 },
};
const LISTS = ['suppress_tokens', 'begin_suppress_tokens', 'bad_words_ids', 'forced_decoder_ids'];

/** What the files beside a tokenizer say of it. Errors: HoldfastError naming the field that is out of its range. */
export function advisedSampling(files: TokenizerFiles | undefined): AdvisedSampling {
  const config = files ? jsonBeside(files, FILE) : {};
  const sampled = (name: keyof typeof SAMPLING): number => {
    const { otherwise, range } = SAMPLING[name];
    const value = config[name] ?? otherwise;
    if (inRange(range, value)) return value;
    throw new HoldfastError(
      `${shortened(files?.path ?? '')}: ${FILE}: ${name} is ${show(value)}; it must be ${describeRange(range)}`,
    );
  };
  const isSet = (name: string): boolean => config[name] !== undefined && config[name] !== null;
  const notApplied = Object.entries(OTHERS)
    .filter(([name, nothing]) => isSet(name) && config[name] !== nothing)
    .map(([name]) => `${name} ${show(config[name])}`);
  const lists = LISTS.filter((name) => Array.isArray(config[name]) && (config[name] as unknown[]).length > 0);
  const isSampled = config['do_sample'] === true;
  const topK = isSampled ? sampled('top_k') : 0;
  return {
    ...(isSampled && { temperature: sampled('temperature'), topP: sampled('top_p') }),
    ...(topK > 0 && { topK }),
    notApplied: [...notApplied, ...lists],
  };
}
