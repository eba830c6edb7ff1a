// The shape of a model as flags give it: formats/shape.ts with messages that name the flags.

import type { ModelConfig } from '../formats/config.ts';
import { DEFAULT_IMAGES, type ImageShape, type ImageSize } from '../formats/families/family.ts';
import { FAMILIES, FAMILY_NAMES, type FamilyName } from '../formats/families/index.ts';
import { configOfShape, DEFAULT_SHAPE } from '../formats/shape.ts';
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
  /** Whether the head is the embedding; gpt2's always is. @default as that of a new model, which train makes */
  tied?: boolean;
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
  const { layers, context, tied = DEFAULT_SHAPE.tied, images } = shape;
  return configOfShape(
    { family: model, layers, width, heads, kvHeads, context, vocabulary: vocabSize, tied, ...(images && { images }) },
    'the flags',
  );
}

/** What a new model of images looks at. Errors: HoldfastError for patches that do not fit them. */
export function imagesInPatches(
  { height, width, channels }: ImageSize,
  classes: number,
  names: readonly string[] | undefined,
  patch: number = DEFAULT_IMAGES.patch,
): ImageShape {
  for (const side of [height, width]) {
    if (side % patch === 0) continue;
    throw new HoldfastError(`--patch ${patch}: the images are of ${height} x ${width}; it must divide both`);
  }
  return { image: height === width ? height : [height, width], patch, channels, classes, ...(names && { names }) };
}

/** Errors: HoldfastError for a length of text given to a model that sees images, and for patches given to one that reads. */
export function checkInputFlags(seesImages: boolean, given: (name: 'context' | 'patch') => boolean): void {
  if (seesImages && given('context'))
    throw new HoldfastError('--context: an image is as long as its patches say; leave the flag out');
  if (!seesImages && given('patch'))
    throw new HoldfastError('--patch: is of images, and the model reads text; leave the flag out');
}
