// The way in which a model's makers have its text drawn: the sampling fields of its generation_config.json, as Hugging Face's
// `generate` has them. What its special tokens are is specials.ts's.

import type { TokenizerFiles } from '../../formats/tokenizer-files.ts';
import { jsonBeside } from './specials.ts';

/** Sampling that a model is given along. */
export interface AdvisedSampling {
  /** Absent where the model's text is not said to be sampled. */
  readonly temperature?: number;
  readonly topK?: number;
  readonly topP?: number;
  /** Fields that would change what is written, and that nothing here does, with their values. */
  readonly notApplied: readonly string[];
}

/** Fields that change what is written, by the value at which they do not. */
const OTHERS: Readonly<Record<string, unknown>> = {
  ...{ repetition_penalty: 1, encoder_repetition_penalty: 1, no_repeat_ngram_size: 0, min_p: 0, typical_p: 1 },
  ...{ epsilon_cutoff: 0, eta_cutoff: 0, num_beams: 1, penalty_alpha: 0, min_new_tokens: 0, min_length: 0 },
};
const LISTS = ['suppress_tokens', 'begin_suppress_tokens', 'bad_words_ids', 'forced_decoder_ids'];

/** What the files beside a tokenizer say of it. Errors: HoldfastError for one that is no JSON object. */
export function advisedSampling(files: TokenizerFiles | undefined): AdvisedSampling {
  const config = files ? jsonBeside(files, 'generation_config.json') : {};
  const numberAt = (name: string): number | undefined => {
    const value = config[name];
    return typeof value === 'number' ? value : undefined;
  };
  const [temperature, topK, topP] = [numberAt('temperature'), numberAt('top_k'), numberAt('top_p')];
  const notApplied = Object.entries(OTHERS)
    .filter(([name, nothing]) => config[name] !== undefined && config[name] !== null && config[name] !== nothing)
    .map(([name]) => `${name} ${JSON.stringify(config[name])}`);
  const lists = LISTS.filter((name) => Array.isArray(config[name]) && (config[name] as unknown[]).length > 0);
  return {
    ...(config['do_sample'] === true && {
      ...(temperature !== undefined && { temperature }),
      // 0: all of them.
      ...(topK !== undefined && topK > 0 && { topK }),
      ...(topP !== undefined && { topP }),
    }),
    notApplied: [...notApplied, ...lists],
  };
}
