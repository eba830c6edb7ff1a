// The shape of a model as flags give it: formats/shape.ts with messages that name the flags.

import type { ModelConfig } from '../formats/config.ts';
import type { ImageShape } from '../formats/families/family.ts';
import { FAMILIES, FAMILY_NAMES, type FamilyName } from '../formats/families/index.ts';
import { configOfShape } from '../formats/shape.ts';
import { HoldfastError } from '../util/errors.ts';

export interface ModelFlags {
  model: FamilyName;
  layers: number;
  width: number;
  heads: number;
  /** Of families with grouped heads. @default heads */
  kvHeads?: number;
  context: number;
  vocabSize: number;
  /** Whether the head is the embedding; gpt2's always is. */
  tied: boolean;
  /** Of vit. @default CIFAR's */
  images?: ImageShape;
}

/** Errors: HoldfastError naming the flag and what would work. */
export function configFromFlags({ model, vocabSize, ...shape }: ModelFlags): ModelConfig {
  const { width, heads, kvHeads = heads } = shape;
  if (width % heads !== 0) {
    throw new HoldfastError(
      `--width ${width} is not divisible by --heads ${heads}; ${Math.max(1, Math.round(width / heads)) * heads} would work`,
    );
  }
  if (!FAMILIES[model].groupedHeads && kvHeads !== heads) {
    const grouped = FAMILY_NAMES.filter((name) => FAMILIES[name].groupedHeads).join(' or ');
    throw new HoldfastError(`--kv-heads: ${model} has as many as heads; use --model ${grouped} for grouped heads`);
  }
  const { layers, context, tied, images } = shape;
  return configOfShape(
    { family: model, layers, width, heads, kvHeads, context, vocabulary: vocabSize, tied, ...(images && { images }) },
    'the flags',
  );
}
