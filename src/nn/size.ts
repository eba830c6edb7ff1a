// The size of a model, from its configuration alone: how many tensors and parameters it has, before any of them is made.
//
// Invariant: what `sizeOf` says is what makeModel makes; what `checkSize` refuses, makeModel never begins to make.

import type { ModelConfig } from '../formats/config.ts';
import { HoldfastError } from '../util/errors.ts';

/** A thousand layers: planning takes a minute there, and more than linearly longer beyond. */
const MOST_TENSORS = 2 ** 14;
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
  const { block, rest, layers } = partsOf(config);
  const count = (shapes: readonly Shape[]) => shapes.reduce((sum, [rows, columns = 1]) => sum + rows * columns, 0);
  return { tensors: rest.length + layers * block.length, parameters: count(rest) + layers * count(block) };
}

/** Errors: HoldfastError for a model of a size that nothing here holds. */
export function checkSize(config: ModelConfig): void {
  const { layers, layerName, block, rest, positions } = partsOf(config);
  const { tensors, parameters } = sizeOf(config);
  const refuse = (problem: string): never => {
    throw new HoldfastError(`a ${config.model_type} model ${problem}`);
  };
  if (tensors > MOST_TENSORS) {
    const most = Math.floor((MOST_TENSORS - rest.length) / block.length);
    refuse(
      `of ${layers} layers has ${tensors} tensors, ${MOST_TENSORS} at most are planned; ${layerName} may be up to ${most}`,
    );
  }
  if (config.vocab_size > MOST_VOCABULARY)
    refuse(`of ${config.vocab_size} tokens: vocab_size may be up to ${MOST_VOCABULARY}`);
  if (parameters > MOST_PARAMETERS) {
    refuse(
      `of ${parameters} parameters: ${MOST_PARAMETERS} at most are planned; use a smaller width, vocabulary or context`,
    );
  }
  if (positions > MOST_POSITIONS)
    refuse(`of ${positions} positions: they are counted in 32 bits, up to ${MOST_POSITIONS}`);
}

type Shape = readonly [rows: number, columns?: number];

interface Parts {
  readonly layers: number;
  /** Its field in the configuration. */
  readonly layerName: string;
  readonly positions: number;
  /** Shapes in one layer, and outside of all. */
  readonly block: readonly Shape[];
  readonly rest: readonly Shape[];
}

function partsOf(config: ModelConfig): Parts {
  const { vocab_size: V, tie_word_embeddings: tied } = config;
  if (config.model_type === 'gpt2') {
    const { n_embd: C, n_inner: inner, n_positions: positions, n_layer: layers } = config;
    return {
      ...{ layers, layerName: 'n_layer', positions },
      block: [[C], [C], [C, 3 * C], [3 * C], [C, C], [C], [C], [C], [C, inner], [inner], [inner, C], [C]],
      rest: [[V, C], [positions, C], [C], [C], ...(tied ? [] : [[V, C] as const])],
    };
  }
  const { hidden_size: C, intermediate_size: inner, max_position_embeddings: positions } = config;
  const { num_hidden_layers: layers, num_attention_heads: NH, num_key_value_heads: NKV, head_dim: HS } = config;
  return {
    ...{ layers, layerName: 'num_hidden_layers', positions },
    block: [[C], [NH * HS, C], [NKV * HS, C], [NKV * HS, C], [C, NH * HS], [C], [inner, C], [inner, C], [C, inner]],
    rest: [[V, C], [C], ...(tied ? [] : [[V, C] as const])],
  };
}
