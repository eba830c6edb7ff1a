// The configurations of all model families, by Hugging Face's field names: what the package's doors export of them.

import type { BertConfig } from './bert.ts';
import type { Gemma3Config } from './gemma3.ts';
import type { GPT2Config } from './gpt2.ts';
import type { LlamaConfig } from './llama.ts';
import type { MistralConfig } from './mistral.ts';
import type { Qwen2Config } from './qwen2.ts';
import type { Qwen3Config } from './qwen3.ts';
import type { ViTConfig } from './vit.ts';

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
