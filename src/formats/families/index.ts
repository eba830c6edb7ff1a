// The table of model families, by Hugging Face's `model_type`.

import { HoldfastError } from '../../util/errors.ts';
import { BERT } from './bert.ts';
import type { FamilyName, ModelConfig } from './configs.ts';
import type { Family, ImageSize, ModelShape } from './family.ts';
import { GEMMA3 } from './gemma3.ts';
import { GPT2 } from './gpt2.ts';
import type { Labels } from './labels.ts';
import { LLAMA } from './llama.ts';
import { MISTRAL } from './mistral.ts';
import { QWEN2 } from './qwen2.ts';
import { QWEN3 } from './qwen3.ts';
import { VIT } from './vit.ts';

export type { FamilyName, ModelConfig } from './configs.ts';

/** The record of each family. */
export const FAMILIES: { readonly [F in FamilyName]: Family<Extract<ModelConfig, { model_type: F }>> } = {
  gpt2: GPT2,
  llama: LLAMA,
  mistral: MISTRAL,
  qwen2: QWEN2,
  qwen3: QWEN3,
  gemma3_text: GEMMA3,
  bert: BERT,
  vit: VIT,
};

/** Their names, in the order of the table. */
export const FAMILY_NAMES = Object.keys(FAMILIES) as FamilyName[];

export const familyOf = (config: ModelConfig): Family<ModelConfig> => FAMILIES[config.model_type];

/** The images that a model looks at; undefined of one that reads text. */
export const imagesIn = (config: ModelConfig): ImageSize | undefined => familyOf(config).images?.(config);

/** The classes that a model tells apart; undefined of one that does something else. */
export const labelsIn = (config: ModelConfig): Labels | undefined => familyOf(config).classifier?.labels(config);

/** Errors: HoldfastError for a model that cannot go on with a text; `where` it is, where that is known. */
export function checkWriter(config: ModelConfig, where?: string): void {
  if (familyOf(config).writes) return;
  const writers = FAMILY_NAMES.filter((name) => FAMILIES[name].writes);
  throw new HoldfastError(
    `${where === undefined ? '' : `${where}: `}a ${config.model_type} model writes no text: it looks at all of its input at once; use one that does, such as ${writers.slice(0, 2).join(' or ')}`,
  );
}

/** Its sizes, whatever its family calls them. */
export const shapeOf = (config: ModelConfig): ModelShape => familyOf(config).shape(config);
