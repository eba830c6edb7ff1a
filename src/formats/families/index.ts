// The table of model families, by Hugging Face's `model_type`.

import { HoldfastError } from '../../util/errors.ts';
import { BERT, type BertConfig } from './bert.ts';
import type { Family, ModelShape } from './family.ts';
import { GEMMA3, type Gemma3Config } from './gemma3.ts';
import { GPT2, type GPT2Config } from './gpt2.ts';
import type { Labels } from './labels.ts';
import { LLAMA, type LlamaConfig } from './llama.ts';
import { MISTRAL, type MistralConfig } from './mistral.ts';
import { QWEN2, type Qwen2Config } from './qwen2.ts';
import { QWEN3, type Qwen3Config } from './qwen3.ts';
import { VIT, type ViTConfig } from './vit.ts';

/** The configuration of a model: what its `model_type` says. */
export type ModelConfig =
  | GPT2Config
  | LlamaConfig
  | MistralConfig
  | Qwen2Config
  | Qwen3Config
  | Gemma3Config
  | BertConfig
  | ViTConfig;

/** A model family, as `model_type` names it. */
export type FamilyName = ModelConfig['model_type'];

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
