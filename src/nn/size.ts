// The size of a model, from its configuration alone: how many tensors and parameters it has, before any of them is made.
//
// Invariant: what `sizeOf` says is what makeModel makes; what `checkSize` refuses, makeModel never begins to make.

import type { ModelConfig } from '../formats/config.ts';
import type { FamilyTensors } from '../formats/families/family.ts';
import { familyOf, shapeOf } from '../formats/families/index.ts';
import { HoldfastError } from '../util/errors.ts';

/** Three hundred layers: planning takes some twenty seconds there, and more than linearly longer beyond. */
const MOST_TENSORS = 2 ** 12;
/** Half a terabyte in float32, two with gradients and moments. */
const MOST_PARAMETERS = 2 ** 37;
/** The head is tiled: so many tokens are 2048 operators of it. */
const MOST_VOCABULARY = 2 ** 24;
/** They are 32-bit numbers on the GPU. */
const MOST_POSITIONS = 2 ** 31 - 1;

export interface ModelSize {
  readonly tensors: number;
  /** Tied ones once. */
  readonly parameters: number;
}

/** Without low-rank updates. */
export function sizeOf(config: ModelConfig): ModelSize {
  const { layers } = shapeOf(config);
  const { block, rest } = familyOf(config).tensors(config);
  const count = (shapes: FamilyTensors['rest']) => shapes.reduce((sum, [rows, columns = 1]) => sum + rows * columns, 0);
  return { tensors: rest.length + layers * block.length, parameters: count(rest) + layers * count(block) };
}

/** Errors: HoldfastError for a model of a size that nothing here holds. */
export function checkSize(config: ModelConfig): void {
  const { layers, context, vocabulary } = shapeOf(config);
  const { layersField, block, rest } = familyOf(config).tensors(config);
  const { tensors, parameters } = sizeOf(config);
  const refuse = (problem: string): never => {
    throw new HoldfastError(`a ${config.model_type} model ${problem}`);
  };
  if (tensors > MOST_TENSORS) {
    const most = Math.floor((MOST_TENSORS - rest.length) / block.length);
    refuse(
      `of ${layers} layers has ${tensors} tensors, ${MOST_TENSORS} at most are planned; ${layersField} may be up to ${most}`,
    );
  }
  if (vocabulary > MOST_VOCABULARY) refuse(`of ${vocabulary} tokens: vocab_size may be up to ${MOST_VOCABULARY}`);
  if (parameters > MOST_PARAMETERS) {
    refuse(
      `of ${parameters} parameters: ${MOST_PARAMETERS} at most are planned; use a smaller width, vocabulary or context`,
    );
  }
  if (context > MOST_POSITIONS) refuse(`of ${context} positions: they are counted in 32 bits, up to ${MOST_POSITIONS}`);
}
