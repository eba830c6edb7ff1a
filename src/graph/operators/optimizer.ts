// The end of a step: the global gradient norm, the decision to clip or to skip, and AdamW. The sums of squares and
// AdamW go chunk by chunk over model data as it lies. What changes from step to step lies in `hyper` and `state`.
// The norm sums fixed blocks in the order of the parameters, wherever chunks end.

import { adamw, adamwOnHalves, adamwWithCopy } from '../../kernels/adamw.ts';
import { ceilDiv } from '../../kernels/kernel.ts';
import { HYPER, SCALER, STATE, scaledStepControl, stepControl } from '../../kernels/step-control.ts';
import { BLOCK, roundAndSumSquares, scaleAndSumSquares, sumSquares } from '../../kernels/sum-squares.ts';
import { gradientKind, lastingKinds, type TrainingDtype } from '../../memory/layout/kinds.ts';
import { at } from '../../util/at.ts';
import { assert } from '../../util/errors.ts';
import { type ElementRange, type Graph, makeTensor, type Tensor } from '../graph.ts';
import { sumRows } from './sum-rows.ts';

/** Where AdamW runs: a part of the arithmetic, about which they agree to 1 ulp a step. */
export const OPTIMIZER_DEVICES = ['gpu', 'cpu'] as const;
/** One of OPTIMIZER_DEVICES. */
export type OptimizerDevice = (typeof OPTIMIZER_DEVICES)[number];

/** The scalars of a step, as tensors. */
export interface StepScalars {
  /** Written before each step: see HYPER. */
  readonly hyper: Tensor;
  /** Lives from step to step: see STATE, and SCALER. */
  readonly state: Tensor;
  /** The sum of the losses of all valid targets of the step. */
  readonly lossSum: Tensor;
  /** 1 / number of valid targets: the scale of the loss's gradient. */
  readonly lossScale: Tensor;
}

/** `dtype`: what parameters are computed with in. */
export function makeStepScalars(dtype: TrainingDtype = 'f32'): StepScalars {
  return {
    hyper: makeTensor('hyper', [HYPER.size], 'persistent'),
    state: makeTensor('step state', [dtype === 'f16' ? SCALER.size : STATE.size], 'persistent'),
    lossSum: makeTensor('loss sum', [1], 'persistent'),
    lossScale: makeTensor('loss scale', [1], 'persistent'),
  };
}

/** What the optimizer knows of each block of BLOCK elements of a parameter. */
export interface BlockTensors {
  /** Sums of squares of the gradient. */
  readonly squares: Tensor;
  /** One bit: whether it decays. */
  readonly decayMask: Tensor;
}

/** Blocks of parameters of which each of so many ranks has a part. */
export interface SplitBlocks {
  readonly ranks: number;
  readonly blocks: readonly ElementRange[];
}

/** Of parameters of which some are split; undefined where none is. */
export function splitBlocks(parameters: readonly Pick<Tensor, 'size' | 'split'>[]): SplitBlocks | undefined {
  const blocks: ElementRange[] = [];
  let offset = 0;
  for (const { size: elements, split } of parameters) {
    const size = ceilDiv(elements, BLOCK);
    const last = blocks.at(-1);
    if (split && last && last.offset + last.size === offset) blocks.splice(-1, 1, { ...last, size: last.size + size });
    else if (split) blocks.push({ offset, size });
    offset += size;
  }
  const ranks = parameters.find(({ split }) => split)?.split?.ranks;
  return ranks === undefined ? undefined : { ranks, blocks };
}

/** Blocks lie in the order of the parameters, each of which begins a new one. */
export function makeBlockTensors(parameters: readonly { size: number }[]): BlockTensors {
  const blocks = parameters.reduce((sum, { size }) => sum + ceilDiv(size, BLOCK), 0);
  return {
    squares: makeTensor('squares', [Math.max(1, blocks)], 'persistent'),
    decayMask: makeTensor('decay mask', [Math.max(1, ceilDiv(blocks, 32))], 'persistent', 'u32'),
  };
}

/** The words of `decayMask`: what has two dimensions or more decays. */
export function decayBits(parameters: readonly { shape: readonly number[]; size: number }[]): Uint32Array<ArrayBuffer> {
  const { decayMask } = makeBlockTensors(parameters);
  const bits = new Uint32Array(decayMask.size);
  let block = 0;
  for (const { shape, size } of parameters) {
    const end = block + ceilDiv(size, BLOCK);
    for (; block < end; block++) {
      if (shape.length >= 2) bits[block >> 5] = at(bits, block >> 5) | (1 << (block & 31));
    }
  }
  return bits;
}

/**
 * gradients, lossSum (1), hyper -> state (the norm, and whether and how far to go), then parameters and both moments.
 * A chunk's squares are summed as soon as its gradient is complete, while it is on the GPU. The norm and the decision are the
 * GPU's also where AdamW is the host's (`cpu`): then gradients go down, parameters come up, and the moments stay below.
 * `dtype`: what parameters are computed with in. `split`: of which blocks several ranks have parts, whose squares add up; those
 * of what all of them have count once.
 */
export function optimizerStep(
  g: Graph,
  { squares, decayMask }: BlockTensors,
  { hyper, state, lossSum }: StepScalars,
  device: OptimizerDevice = 'gpu',
  dtype: TrainingDtype = 'f32',
  split?: SplitBlocks,
): void {
  const rounded = { y: { kind: gradientKind(dtype) } } as const;
  const kernels = {
    f32: { sum: sumSquares, also: {}, control: stepControl, update: adamw },
    bf16: { sum: roundAndSumSquares, also: rounded, control: stepControl, update: adamwOnHalves },
    f16: { sum: scaleAndSumSquares, also: { ...rounded, state }, control: scaledStepControl, update: adamwWithCopy },
  }[dtype];
  g.emitEachChunk(
    kernels.sum,
    ({ size, firstBlock }) => ({ size, first: firstBlock }),
    { x: { kind: 'gradient' }, partials: squares, ...kernels.also },
    'gradient norm',
    { eager: true, completes: [gradientKind(dtype)], frees: dtype === 'f32' ? [] : ['gradient'] },
  );
  if (split) g.emitAllReduce(squares, split.ranks, 'gradient norm', split.blocks);
  const normSquared = g.activation('norm squared', [1]);
  sumRows(g, squares, normSquared, { rows: squares.size, width: 1 }, 'gradient norm');
  g.emit(kernels.control, {}, { normSquared, lossSum, hyper, state }, 'step control');
  const gradient = gradientKind(dtype);
  if (device === 'cpu') {
    assert(dtype === 'f32', 'the host updates f32');
    g.emitOnHost('adamw', {
      ...{ operands: { hyper, state, decayMask }, completes: lastingKinds(dtype), frees: [gradient] },
    });
    return;
  }
  const common = { gradient: { kind: gradient }, hyper, state, decayMask } as const;
  const moments = { m: { kind: 'moment1' }, v: { kind: 'moment2' } } as const;
  const parameters = {
    f32: { parameter: { kind: 'parameter' } },
    bf16: { high: { kind: 'parameterBF16' }, low: { kind: 'parameterLow' } },
    f16: { parameter: { kind: 'master' }, copy: { kind: 'parameterF16' } },
  } as const;
  g.emitEachChunk(
    kernels.update,
    ({ size, firstBlock }) => ({ size, maskOffset: firstBlock }),
    { ...common, ...parameters[dtype], ...moments },
    'adamw',
    { completes: lastingKinds(dtype), frees: [gradient] },
  );
}
