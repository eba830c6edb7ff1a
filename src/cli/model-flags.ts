// The shape of a model as flags give it: formats/shape.ts with messages that name the flags.

import { type Command, Option } from 'commander';
import { TASKS } from '../data/tasks.ts';
import type { ModelConfig } from '../formats/config.ts';
import { DEFAULT_IMAGES, type ImageShape, type ImageSize } from '../formats/families/family.ts';
import { FAMILIES, FAMILY_NAMES, type FamilyName } from '../formats/families/index.ts';
import { configOfShape, DEFAULT_SHAPE } from '../formats/shape.ts';
import { RANGES } from '../train/run/run-settings.ts';
import { HoldfastError } from '../util/errors.ts';
import { MODEL_SOURCES } from './model-source.ts';
import { wholeNumberFrom, within } from './options.ts';

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

/** Where flags leave the sizes of a new model open. */
type ShapeDefaults = Readonly<Record<'layers' | 'width' | 'heads' | 'context', number>>;

/** For commands that may make a new model. */
export function addShapeOptions(command: Command, { layers, width, heads, context }: ShapeDefaults): Command {
  return command
    .option(
      '--model <family>',
      `${FAMILY_NAMES.join(', ')}, or with weights to start from, ${MODEL_SOURCES}`,
      DEFAULT_SHAPE.family,
    )
    .option('--layers <n>', 'blocks', wholeNumberFrom(1), layers)
    .option('--width <n>', 'embedding width', wholeNumberFrom(1), width)
    .option('--heads <n>', 'attention heads', wholeNumberFrom(1), heads)
    .option('--kv-heads <n>', 'key and value heads, not of gpt2 (default: as many as heads)', wholeNumberFrom(1))
    .option('--context <n>', 'tokens in a sequence', within(RANGES.seq), context)
    .option('--patch <n>', 'of vit: rows and columns of a patch (default: 4)', wholeNumberFrom(1))
    .addOption(
      new Option('--task <name>', 'generated text instead of data: problems, some of them held back to be solved')
        .choices(Object.keys(TASKS))
        .conflicts('data'),
    );
}

/** Errors: HoldfastError naming the flag and what would work. */
export function configFromFlags({ model, vocabSize, ...shape }: ModelFlags): ModelConfig {
  const { width, heads, kvHeads = heads } = shape;
  if (width % heads !== 0) {
    throw new HoldfastError(
      `--width ${width} is not divisible by --heads ${heads}; ${Math.max(1, Math.round(width / heads)) * heads} would work`,
    );
  }
  if (heads % kvHeads !== 0) {
    const below = Math.min(kvHeads, heads);
    const fitting = Array.from({ length: below }, (_, i) => below - i).find((count) => heads % count === 0) ?? 1;
    throw new HoldfastError(`--kv-heads ${kvHeads}: --heads ${heads} is no multiple of it; ${fitting} would work`);
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
