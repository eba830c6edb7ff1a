// The forward passes of the model families, by their names. All else that differs between them is in their records
// (formats/families).

import { parseConfig } from '../formats/config.ts';
import { GEMMA3 } from '../formats/families/gemma3.ts';
import type { FamilyName, ModelConfig } from '../formats/families/index.ts';
import { LLAMA } from '../formats/families/llama.ts';
import { MISTRAL } from '../formats/families/mistral.ts';
import { QWEN2 } from '../formats/families/qwen2.ts';
import { QWEN3 } from '../formats/families/qwen3.ts';
import { bert } from './bert.ts';
import { decoder } from './decoder.ts';
import { gpt2 } from './gpt2.ts';
import type { Model } from './model.ts';
import { checkSize } from './size.ts';
import { vit } from './vit.ts';

const MODELS: { [F in FamilyName]: (config: Extract<ModelConfig, { model_type: F }>) => Model } = {
  gpt2,
  llama: (config) => decoder(config, LLAMA.design(config)),
  mistral: (config) => decoder(config, MISTRAL.design(config)),
  qwen2: (config) => decoder(config, QWEN2.design(config)),
  qwen3: (config) => decoder(config, QWEN3.design(config)),
  gemma3_text: (config) => decoder(config, GEMMA3.design(config)),
  bert,
  vit,
};

/**
 * A model of the family that the configuration names, which need not have passed `parseConfig`: defaults are filled in. Errors:
 * HoldfastError for a field that makes no model, and for a size that nothing here holds, before any of it is made.
 */
export function makeModel(config: ModelConfig): Model {
  const complete = parseConfig(config, 'the configuration');
  checkSize(complete);
  // The table has it that the name is the configuration's.
  const make = MODELS[complete.model_type] as (config: ModelConfig) => Model;
  return make(complete);
}
