// The forward passes of the model families, by their names. All else that differs between them is in their records
// (formats/families).

import type { FamilyName, ModelConfig } from '../formats/families/index.ts';
import { gpt2 } from './gpt2.ts';
import { llama } from './llama.ts';
import type { Model } from './model.ts';
import { checkSize } from './size.ts';

const MODELS: { [F in FamilyName]: (config: Extract<ModelConfig, { model_type: F }>) => Model } = {
  gpt2,
  llama,
};

/**
 * A model of the family that the configuration names. Errors: HoldfastError for a size that nothing here holds, before any
 * of it is made.
 */
export function makeModel(config: ModelConfig): Model {
  checkSize(config);
  // The table has it that the name is the configuration's.
  const make = MODELS[config.model_type] as (config: ModelConfig) => Model;
  return make(config);
}
