// The table of families that GGUF files are written for, by Hugging Face's `model_type`.

import { HoldfastError, shortened } from '../../../util/errors.ts';
import type { GGUFFamily } from './family.ts';
import { GEMMA3 } from './gemma3.ts';
import { GPT2 } from './gpt2.ts';
import { LLAMA, MISTRAL } from './llama.ts';
import { QWEN2, QWEN3 } from './qwen.ts';

const FAMILIES = {
  gpt2: GPT2,
  llama: LLAMA,
  mistral: MISTRAL,
  qwen2: QWEN2,
  qwen3: QWEN3,
  gemma3_text: GEMMA3,
};

/** A configuration, of which each record knows its fields. */
export interface AnyConfig {
  readonly model_type: string;
  /** Of a family that has tokens. */
  readonly vocab_size?: number;
}

/** Errors: HoldfastError for a family that there is no record for. */
export function ggufFamilyOf<C extends AnyConfig>({ model_type }: C, from: string): GGUFFamily<C> {
  const families: Readonly<Record<string, unknown>> = FAMILIES;
  if (Object.hasOwn(families, model_type)) return families[model_type] as GGUFFamily<C>;
  throw new HoldfastError(
    `${from}: no GGUF file is written for ${shortened(model_type)}; for ${Object.keys(FAMILIES).join(', ')} there is one`,
  );
}
