// The list of model families, the one place that names them all: the configuration of each, by Hugging Face's field names,
// which the package's doors export, and its record. What is asked of a family is in index.ts.

import { BERT, type BertConfig } from './bert.ts';
import type { Family } from './family.ts';
import { GEMMA3, type Gemma3Config } from './gemma3.ts';
import { GPT2, type GPT2Config } from './gpt2.ts';
import { LLAMA, type LlamaConfig } from './llama.ts';
import { MISTRAL, type MistralConfig } from './mistral.ts';
import { QWEN2, type Qwen2Config } from './qwen2.ts';
import { QWEN3, type Qwen3Config } from './qwen3.ts';
import { VIT, type ViTConfig } from './vit.ts';

export type { DecoderConfig, LayerType, RopeScalingFields } from './decoder.ts';
export type { EncoderConfig } from './encoder.ts';
export type { QwenWindow } from './qwen2.ts';
export type { BertConfig, Gemma3Config, GPT2Config, LlamaConfig, MistralConfig, Qwen2Config, Qwen3Config, ViTConfig };

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
const FAMILIES: { readonly [F in FamilyName]: Family<Extract<ModelConfig, { model_type: F }>> } = {
  gpt2: GPT2,
  llama: LLAMA,
  mistral: MISTRAL,
  qwen2: QWEN2,
  qwen3: QWEN3,
  gemma3_text: GEMMA3,
  bert: BERT,
  vit: VIT,
};

// By default, since a door that exports the types of this file would take a name along.
export default FAMILIES;
