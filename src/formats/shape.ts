// A model's shape in a few words, turned into a configuration by Hugging Face's field names. Not a parser: what a file
// or a form says is checked by parseConfig, as any other configuration.

import * as v from 'valibot';
import { anything, check, closed, list, number, object, oneOf, optional, type Schema, text } from '../util/json.ts';
import { wholeNumber } from '../util/range.ts';
import { type ModelConfig, parseConfig } from './config.ts';
import type { ImageShape } from './families/family.ts';
import { FAMILIES, FAMILY_NAMES, type FamilyName } from './families/index.ts';
import { MOST_CLASSES } from './families/labels.ts';

/** A model that is trained from the start: all that its family leaves open. */
export interface ShapeOptions {
  /**
   * `gpt2`: learned positions, GELU, biases. `llama`: RoPE, SwiGLU, RMS norm, grouped-query attention; `bert` and `vit`: encoders of text and of
   * images; the others are llama's descendants, with their published windows, biases and norms. @default 'gpt2'
   */
  family?: FamilyName;
  /** Blocks. @default 2 */
  layers?: number;
  /** Width of the embedding and of the residual stream, a multiple of `heads`. @default 64 */
  width?: number;
  /** Heads of attention. @default 4 */
  heads?: number;
  /** Heads of keys and values, a divisor of `heads`; gpt2 has as many as heads. @default heads */
  kvHeads?: number;
  /** The longest sequence, in tokens. @default 64 */
  context?: number;
  /** Tokens that there are; text is read as bytes, which are the first 256 of them. @default 256 */
  vocabulary?: number;
  /** Whether the head is the embedding; gpt2's always is. @default true */
  tied?: boolean;
  /** What vit looks at. @default images of 32 x 32 and three channels, in patches of 4 x 4, of ten classes */
  images?: ImageShape;
}

/** What a shape is without further words: the model of `npm start`, which learns within minutes on two CPU cores. */
export const DEFAULT_SHAPE = {
  family: 'gpt2',
  layers: 2,
  width: 64,
  heads: 4,
  context: 64,
  vocabulary: 256,
  tied: true,
} as const satisfies ShapeOptions;

const shapeNames = closed<ShapeOptions>({
  family: anything,
  layers: anything,
  width: anything,
  heads: anything,
  kvHeads: anything,
  context: anything,
  vocabulary: anything,
  tied: anything,
  images: anything,
});

/** Sizes are reckoned with before parseConfig sees them; what they may be it says itself. */
const size: Schema<number> = v.custom<number>((value) => typeof value === 'number', 'a number');
const shapeSchema = object({
  family: oneOf(FAMILY_NAMES),
  ...{ layers: size, width: size, heads: size, kvHeads: optional(size), context: size, vocabulary: size },
  images: optional(
    closed<ImageShape>({
      image: anything,
      patch: anything,
      channels: anything,
      classes: number(wholeNumber(1, MOST_CLASSES)),
      names: optional(list(text)),
    }),
  ),
});

/** The configuration of a new model. `name` is for messages. Errors: HoldfastError for a shape that makes no model. */
export function configOfShape(shape: ShapeOptions = {}, name = 'this shape'): ModelConfig {
  check(shapeNames, shape, name);
  const { family, ...sizes } = { ...DEFAULT_SHAPE, ...shape };
  check(shapeSchema, { family, ...sizes }, name);
  const fields = FAMILIES[family].fromShape({ ...sizes, kvHeads: sizes.kvHeads ?? sizes.heads });
  return parseConfig({ model_type: family, ...fields }, name);
}
