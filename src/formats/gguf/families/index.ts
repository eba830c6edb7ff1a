// The table of families that GGUF files are written for, by Hugging Face's `model_type`.

import { HoldfastError, shortened } from '../../../util/errors.ts';
import { show } from '../../../util/json.ts';
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

/** By the name of an architecture: of those that share one, the first. */
export function familyByArchitecture(architecture: unknown, from: string): GGUFFamily<AnyConfig> {
  const found = Object.values(FAMILIES).find((family) => family.architecture === architecture);
  if (found) return found as unknown as GGUFFamily<AnyConfig>;
  const known = [...new Set(Object.values(FAMILIES).map((family) => family.architecture))].join(', ');
  throw new HoldfastError(`${from}: general.architecture is ${show(architecture)}; supported: ${known}`);
}

/** A configuration, of which each record reads its own fields. */
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
