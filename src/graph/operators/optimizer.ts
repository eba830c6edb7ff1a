// The end of a step: global gradient norm, the decision to clip or to skip, AdamW. Walks the chunks of model
// data side by side. What changes from step to step lies in `hyper` and `state`; nothing here is a constant
// but the layout. The norm sums fixed blocks in the order of the parameters, wherever chunks begin and end.

import { adamw } from '../../kernels/adamw.ts';
import { ceilDiv } from '../../kernels/kernel.ts';
import { HYPER, STATE, stepControl } from '../../kernels/step-control.ts';
import { BLOCK, sumSquares } from '../../kernels/sum-squares.ts';
import { type Graph, makeTensor, type Tensor } from '../graph.ts';
import { sumRows } from './sum-rows.ts';

export interface OptimizerChunk {
  /** Elements in use. */
  readonly used: number;
  readonly tensors: Readonly<Record<'parameter' | 'gradient' | 'moment1' | 'moment2', Tensor>>;
}

/** The scalars of a step, as tensors. */
export interface StepScalars {
  /** Written before each step: see HYPER. */
  readonly hyper: Tensor;
  /** Lives from step to step: see STATE. */
  readonly state: Tensor;
  /** The sum of the losses of all valid targets of the step. */
  readonly lossSum: Tensor;
  /** 1 / number of valid targets: the scale of the loss's gradient. */
  readonly lossScale: Tensor;
}

export function makeStepScalars(): StepScalars {
  return {
    hyper: makeTensor('hyper', [HYPER.size], 'persistent'),
    state: makeTensor('step state', [STATE.size], 'persistent'),
    lossSum: makeTensor('loss sum', [1], 'persistent'),
    lossScale: makeTensor('loss scale', [1], 'persistent'),
  };
}

/** `decayMask`: one bit a block of BLOCK elements, chunk after chunk, `maskBlocks` blocks each. */
export function optimizerStep(
  g: Graph,
  chunks: readonly OptimizerChunk[],
  scalars: StepScalars,
  decayMask: Tensor,
  maskBlocks: number,
): void {
  const { hyper, state, lossSum } = scalars;
  const blocks = chunks.map(({ used }) => ceilDiv(used, BLOCK));
  const total = blocks.reduce((a, b) => a + b, 0);
  const partials = g.activation('squares', [total]);
  let first = 0;
  chunks.forEach(({ used, tensors }, i) => {
    g.emit(sumSquares, { size: used, first }, { x: tensors.gradient, partials }, 'gradient norm');
    first += blocks[i] as number;
  });
  const normSquared = g.activation('norm squared', [1]);
  sumRows(g, partials, normSquared, { rows: total, width: 1 }, 'gradient norm');
  g.emit(stepControl, {}, { normSquared, lossSum, hyper, state }, 'step control');
  chunks.forEach(({ used, tensors }, i) => {
    const { parameter, gradient, moment1: m, moment2: v } = tensors;
    const operands = { gradient, hyper, state, decayMask, parameter, m, v };
    g.emit(adamw, { size: used, maskOffset: i * maskBlocks }, operands, 'adamw');
  });
}
