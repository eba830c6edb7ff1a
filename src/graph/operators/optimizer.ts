// The end of a step: the global gradient norm, the decision to clip or to skip, and AdamW. The sums of squares and
// AdamW go chunk by chunk over model data as it lies, behind all gradients or each behind its own. What changes from step to step lies in `hyper` and `state`.
// The norm sums fixed blocks in the order of the parameters, wherever chunks end.

import {
  adamw,
  adamwNarrowMoments,
  adamwOnHalves,
  adamwOnHalvesNarrowMoments,
  adamwWithCopy,
  adamwWithCopyNarrowMoments,
  numberedBlock,
} from '../../kernels/adamw.ts';
import { fill } from '../../kernels/add.ts';
import { ceilDiv } from '../../kernels/kernel.ts';
import {
  DECIDED,
  HYPER,
  ROUNDING,
  recordNorm,
  STATE,
  scaledStepControl,
  stepControl,
} from '../../kernels/step-control.ts';
import { BLOCK, roundAndSumSquares, scaleAndSumSquares, sumSquares } from '../../kernels/sum-squares.ts';
import {
  gradientKind,
  type Kind,
  lastingKinds,
  MOMENT_KINDS,
  type MomentDtype,
  PARAMETER_KINDS,
  type TrainingDtype,
} from '../../memory/layout/kinds.ts';
import { at } from '../../util/at.ts';
import { assert } from '../../util/errors.ts';
import type { Graph } from '../graph.ts';
import { type ChunkEffects, type Eager, type ElementRange, makeTensor, type Tensor } from '../program.ts';
import { type StageBlocks, squaresOfAll } from './stages.ts';
import { sumRows } from './sum-rows.ts';

/** Where AdamW runs: a part of the arithmetic, about which they agree to 1 ulp a step. */
export const OPTIMIZER_DEVICES = ['gpu', 'cpu'] as const;
/** One of OPTIMIZER_DEVICES. */
export type OptimizerDevice = (typeof OPTIMIZER_DEVICES)[number];

/** What may be asked for: one of them, or some tensors on each (`auto`), as it takes the least time within the budget. */
export const OPTIMIZER_DEVICE_CHOICES = [...OPTIMIZER_DEVICES, 'auto'] as const;
/** One of OPTIMIZER_DEVICE_CHOICES. */
export type OptimizerDeviceChoice = (typeof OPTIMIZER_DEVICE_CHOICES)[number];

/**
 * When a chunk is updated: once all gradients of the step are complete (`at-end`), or once its own is, so that no list of them
 * is ever held (`in-backward`; Lv et al. 2023, "Full Parameter Fine-tuning for Large Language Models with Limited Resources").
 */
export const UPDATES = ['at-end', 'in-backward'] as const;
/** One of UPDATES. */
export type Update = (typeof UPDATES)[number];

/**
 * Backward passes of a step that updates within one. How far to clip, and in f16 whether a gradient overflows, is known only behind
 * all gradients: then a first pass finds their norm, and the second makes them again, with the same bits, to be used up. What is
 * never changed needs no copies to be undone from, which would take as much memory as all that is updated.
 */
export type BackwardPasses = 1 | 2;

/** Those of a step that clips to this norm (0: does not clip), computed in `dtype`; undefined where it updates at its end. */
export const backwardPassesOf = (
  update: Update,
  { clip, dtype }: { readonly clip: number; readonly dtype: TrainingDtype },
): BackwardPasses | undefined => (update === 'at-end' ? undefined : clip > 0 || dtype === 'f16' ? 2 : 1);

/** The scalars of a step, as tensors. */
export interface StepScalars {
  /** Written before each step: see HYPER, and ROUNDING. */
  readonly hyper: Tensor;
  /** Lives from step to step: see STATE, SCALER and DECIDED. */
  readonly state: Tensor;
  /** The sum of the losses of all valid targets of the step. */
  readonly lossSum: Tensor;
  /** 1 / number of valid targets: the scale of the loss's gradient. */
  readonly lossScale: Tensor;
}

/** `dtype`: what parameters are computed with in; `momentDtype`: what moments are kept as. */
export function makeStepScalars(dtype: TrainingDtype = 'f32', momentDtype: MomentDtype = 'f32'): StepScalars {
  return {
    hyper: makeTensor('hyper', [momentDtype === 'bf16' ? ROUNDING.size : HYPER.size], 'persistent'),
    state: makeTensor('step state', [dtype === 'f16' ? DECIDED.size : STATE.size], 'persistent'),
    lossSum: makeTensor('loss sum', [1], 'persistent'),
    lossScale: makeTensor('loss scale', [1], 'persistent'),
  };
}

/** What the optimizer has of each block of BLOCK elements of a parameter. */
export interface BlockTensors {
  /** Sums of squares of the gradient. */
  readonly squares: Tensor;
  /** One bit: whether it decays. Or, where blocks are numbered, one word: see NarrowMomentsProblem. */
  readonly decayMask: Tensor;
  /** Of each block, which it is of the whole model's, where moments are rounded by that and these are others. */
  readonly numbers?: readonly number[] | undefined;
}

/** Blocks of parameters of which each of so many ranks has a part. */
export interface SplitBlocks {
  readonly ranks: number;
  readonly blocks: readonly ElementRange[];
}

/** The blocks of parameters that are split; undefined where none is. */
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
export function makeBlockTensors(parameters: readonly { size: number }[], numbers?: readonly number[]): BlockTensors {
  const blocks = parameters.reduce((sum, { size }) => sum + ceilDiv(size, BLOCK), 0);
  return {
    squares: makeTensor('squares', [Math.max(1, blocks)], 'persistent'),
    decayMask: makeTensor('decay mask', [Math.max(1, numbers ? blocks : ceilDiv(blocks, 32))], 'persistent', 'u32'),
    ...(numbers && { numbers }),
  };
}

/** The words of `decayMask`: what has two dimensions or more decays. */
export function decayWords(
  parameters: readonly { shape: readonly number[]; size: number }[],
  numbers?: readonly number[],
): Uint32Array<ArrayBuffer> {
  const { decayMask } = makeBlockTensors(parameters, numbers);
  const words = new Uint32Array(decayMask.size);
  let block = 0;
  for (const { shape, size } of parameters) {
    const decays = shape.length >= 2;
    const end = block + ceilDiv(size, BLOCK);
    for (; block < end; block++) {
      if (numbers) words[block] = numberedBlock(at(numbers, block), decays);
      else if (decays) words[block >> 5] = at(words, block >> 5) | (1 << (block & 31));
    }
  }
  return words;
}

/** What the update of a step goes by: where AdamW runs, what parameters are computed with in, what is shared by ranks. */
export interface UpdateOptions {
  /** Where AdamW runs, of some parameters or of others. @default on the GPU */
  readonly devices?: readonly OptimizerDevice[] | undefined;
  /** @default 'f32' */
  readonly dtype?: TrainingDtype | undefined;
  /** What moments are kept as. @default 'f32' */
  readonly momentDtype?: MomentDtype | undefined;
  /** Blocks of which several ranks have parts, whose squares add up; those of what all of them have count once. */
  readonly split?: SplitBlocks | undefined;
  /** Of a pipeline, which each have some of the parameters, and decide alike. */
  readonly stages?: StageBlocks | undefined;
}

/** Those of a step, by what parameters are computed with in: f16 alone scales its gradients. */
const KERNELS = {
  f32: { sum: sumSquares, control: stepControl, update: { f32: adamw, bf16: adamwNarrowMoments } },
  bf16: {
    sum: roundAndSumSquares,
    control: stepControl,
    update: { f32: adamwOnHalves, bf16: adamwOnHalvesNarrowMoments },
  },
  f16: {
    sum: scaleAndSumSquares,
    control: scaledStepControl,
    update: { f32: adamwWithCopy, bf16: adamwWithCopyNarrowMoments },
  },
} as const;

/**
 * gradients, lossSum (1), hyper -> state (the norm, and whether and how far to go), then parameters and both moments.
 * A chunk's squares are summed as soon as its gradient is complete, while it is on the GPU. The norm and the decision are the
 * GPU's also where AdamW is the host's (`cpu`): of what it updates gradients go down, parameters come up, and the moments stay
 * below. What the GPU updates comes first: it computes while the host waits for what it reads.
 */
export function optimizerStep(g: Graph, blocks: BlockTensors, scalars: StepScalars, options: UpdateOptions = {}): void {
  const { dtype = 'f32', split, stages } = options;
  sumSquaresOfEach(g, blocks, scalars, dtype, { completes: [gradientKind(dtype)], frees: roundedFrom(dtype) });
  const normSquared = normOf(g, blocks, split, stages && { stages, lossSum: scalars.lossSum });
  g.emit(KERNELS[dtype].control, {}, { normSquared, ...controlled(scalars) }, 'step control');
  updateEach(g, blocks, scalars, options, false);
}

/**
 * What is decided before the backward pass that updates. Of two passes all of it: the first one's gradients give their squares
 * and are given up. Of one pass, which clips nothing: whether the loss is finite, and Adam's corrections.
 */
export function decisionInBackward(
  g: Graph,
  blocks: BlockTensors,
  scalars: StepScalars,
  passes: BackwardPasses,
  { dtype = 'f32' }: UpdateOptions = {},
): void {
  const { control } = KERNELS[dtype];
  if (passes === 2) {
    sumSquaresOfEach(g, blocks, scalars, dtype, { frees: [...new Set<Kind>(['gradient', gradientKind(dtype)])] });
    g.emit(control, {}, { normSquared: normOf(g, blocks), ...controlled(scalars) }, 'step control');
    return;
  }
  assert(dtype !== 'f16', 'in f16 the scale of gradients is decided from all of them');
  const normSquared = g.activation('norm squared, not known', [1]);
  g.emit(fill, { size: 1, value: 0 }, { y: normSquared }, 'step control');
  g.emit(control, {}, { normSquared, ...controlled(scalars) }, 'step control');
}

/** The update of each chunk as soon as nothing of the backward pass needs it any more; of one pass, the norm at its end. */
export function updateInBackward(
  g: Graph,
  blocks: BlockTensors,
  scalars: StepScalars,
  passes: BackwardPasses,
  options: UpdateOptions = {},
): void {
  const { dtype = 'f32' } = options;
  // In the second pass squares are known, and gradients only rounded.
  if (passes === 1 || dtype !== 'f32')
    sumSquaresOfEach(g, blocks, scalars, dtype, { frees: roundedFrom(dtype), isDecided: passes === 2 });
  updateEach(g, blocks, scalars, options, 'unused');
  if (passes === 2) return;
  const { state } = scalars;
  g.emit(recordNorm, {}, { normSquared: normOf(g, blocks), state }, 'gradient norm');
}

const controlled = ({ lossSum, hyper, state }: StepScalars) => ({ lossSum, hyper, state });

/** What gradients are rounded from is of no use behind it. */
const roundedFrom = (dtype: TrainingDtype): Kind[] => (dtype === 'f32' ? [] : ['gradient']);

interface SumEffects extends Pick<Partial<ChunkEffects>, 'completes'>, Pick<ChunkEffects, 'frees'> {
  /** Whether the step is decided before. @default false */
  readonly isDecided?: boolean;
}

function sumSquaresOfEach(
  g: Graph,
  { squares }: BlockTensors,
  { state }: StepScalars,
  dtype: TrainingDtype,
  { isDecided = false, ...changes }: SumEffects,
): void {
  const rounded = dtype !== 'f32' && ({ y: { kind: gradientKind(dtype) } } as const);
  g.emitEachChunk(
    KERNELS[dtype].sum,
    ({ size, firstBlock }) => ({ size, first: firstBlock, ...(dtype === 'f16' && isDecided && { isDecided }) }),
    { x: { kind: 'gradient' }, partials: squares, ...rounded, ...(dtype === 'f16' && { state }) },
    'gradient norm',
    { eager: 'written', ...changes },
  );
}

/** squares -> their sum (1). Stages tell each other their squares, and the last one tells the loss. */
function normOf(
  g: Graph,
  { squares }: BlockTensors,
  split?: SplitBlocks,
  pipeline?: { readonly stages: StageBlocks; readonly lossSum: Tensor },
): Tensor {
  if (split) g.emitAllReduce(squares, split.ranks, 'gradient norm', split.blocks);
  const all = pipeline ? squaresOfAll(g, squares, pipeline.stages, 'gradient norm') : squares;
  if (pipeline) g.emitAllGather(pipeline.lossSum, [{ stage: pipeline.stages.last, offset: 0, size: 1 }], 'loss');
  const normSquared = g.activation('norm squared', [1]);
  sumRows(g, all, normSquared, { rows: all.size, width: 1 }, 'gradient norm');
  return normSquared;
}

function updateEach(
  g: Graph,
  { decayMask, numbers }: BlockTensors,
  { hyper, state }: StepScalars,
  { devices = ['gpu'], dtype = 'f32', momentDtype = 'f32' }: UpdateOptions,
  eager: Eager,
): void {
  const { read, full, low, gradient } = PARAMETER_KINDS[dtype];
  const changes = { eager, completes: lastingKinds(dtype, momentDtype), frees: [gradient] };
  const common = { gradient: { kind: gradient }, hyper, state, decayMask } as const;
  const [first, second] = MOMENT_KINDS[momentDtype];
  const parameters = low
    ? { high: { kind: full }, low: { kind: low } }
    : { parameter: { kind: full }, ...(read !== full && { copy: { kind: read } }) };
  if (devices.includes('gpu'))
    g.emitEachChunk(
      KERNELS[dtype].update[momentDtype],
      ({ size, firstBlock }) => ({ size, maskOffset: firstBlock, ...(numbers && { numbered: true }) }),
      { ...common, ...parameters, m: { kind: first }, v: { kind: second } },
      'adamw',
      { ...changes, updates: true },
    );
  if (devices.includes('cpu'))
    g.emitOnHost('adamw', { operands: { hyper, state, decayMask }, numbered: numbers !== undefined, ...changes });
}
