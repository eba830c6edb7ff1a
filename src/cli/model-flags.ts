// The shape of a model as flags give it: formats/shape.ts with messages that name the flags.

import type { ModelConfig } from '../formats/config.ts';
import { configOfShape } from '../formats/shape.ts';
import { HoldfastError } from '../util/errors.ts';

export interface ModelFlags {
  model: 'gpt2' | 'llama';
  layers: number;
  width: number;
  heads: number;
  /** Llama only. @default heads */
  kvHeads?: number;
  context: number;
  vocabSize: number;
  /** Whether llama's head is its embedding; gpt2's always is. */
  tied: boolean;
}

/** Errors: HoldfastError naming the flag and what would work. */
export function configFromFlags({ model, vocabSize, ...shape }: ModelFlags): ModelConfig {
  const { width, heads, kvHeads = heads } = shape;
  if (width % heads !== 0) {
    throw new HoldfastError(
      `--width ${width} is not divisible by --heads ${heads}; ${Math.max(1, Math.round(width / heads)) * heads} would work`,
    );
  }
  if (model === 'gpt2' && kvHeads !== heads) {
    throw new HoldfastError('--kv-heads: gpt2 has as many as heads; use --model llama for grouped heads');
  }
  const { layers, context, tied } = shape;
  return configOfShape(
    { family: model, layers, width, heads, kvHeads, context, vocabulary: vocabSize, tied },
    'the flags',
  );
}
