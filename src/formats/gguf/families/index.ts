// Families that GGUF files are written for and read of: those whose records say how llama.cpp knows them.

import { HoldfastError, shortened } from '../../../util/errors.ts';
import { show } from '../../../util/json.ts';
import { FAMILIES, FAMILY_NAMES } from '../../families/index.ts';
import type { GGUFFamily } from './family.ts';

/** By Hugging Face's `model_type`. */
const GGUF_FAMILIES = new Map(
  FAMILY_NAMES.flatMap((name) => {
    const { gguf } = FAMILIES[name];
    return gguf ? [[name as string, gguf as GGUFFamily<never>] as const] : [];
  }),
);

/** By the name of an architecture: of those that share one, the first. */
export function familyByArchitecture(architecture: unknown, from: string): GGUFFamily<AnyConfig> {
  const all = [...GGUF_FAMILIES.values()];
  const found = all.find((family) => family.architecture === architecture);
  if (found) return found;
  const known = [...new Set(all.map((family) => family.architecture))].join(', ');
  throw new HoldfastError(`${from}: general.architecture is ${show(architecture)}; supported: ${known}`);
}

/** A configuration, of which each record reads its own fields. */
export interface AnyConfig {
  readonly model_type: string;
  /** Of a family that has tokens. */
  readonly vocab_size?: number;
}

/** Errors: HoldfastError for a family whose record has nothing for llama.cpp. */
export function ggufFamilyOf<C extends AnyConfig>({ model_type }: C, from: string): GGUFFamily<C> {
  const found = GGUF_FAMILIES.get(model_type);
  if (found) return found;
  throw new HoldfastError(
    `${from}: no GGUF file is written for ${shortened(model_type)}; for ${[...GGUF_FAMILIES.keys()].join(', ')} there is one`,
  );
}
