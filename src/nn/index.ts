// The model families, chosen by the configuration's model_type.

import type { ModelConfig } from '../formats/config.ts';
import { HoldfastError } from '../util/errors.ts';
import { gpt2, type LoraOptions } from './gpt2.ts';
import { llama } from './llama.ts';
import type { Model } from './model.ts';
import { checkSize } from './size.ts';

/**
 * A model of the family that the configuration names. With `lora` only low-rank updates of its attention train. Errors:
 * HoldfastError for `lora` where the family has none, and for a size that nothing here holds, before any of it is made.
 */
export function makeModel(config: ModelConfig, lora?: LoraOptions): Model {
  checkSize(config);
  if (config.model_type === 'gpt2') return gpt2(config, lora);
  if (lora) throw new HoldfastError(`low-rank updates are there for gpt2, not for ${config.model_type}`);
  return llama(config);
}
