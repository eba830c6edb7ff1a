// Treatment of activations between a block's forward pass and its backward pass, as a rewrite of a training program:
// they are kept, made again before the backward pass first reads them, or moved below the GPU and back. What is made
// again is written to new tensors by the same kernels with the same problems, hence with the same bits; what is moved
// is copied. Liveness then sees shorter lives. Which of it to do where is not decided here (engine/compile/fit.ts).
//
// Invariant: what is dropped can be made from what is kept or moved, inputs and parameters; never by an exchange between
// ranks, so that these are the same whatever becomes of activations.
// Sources of the ideas: Chen et al. 2016, "Training Deep Nets with Sublinear Memory Cost"; Rhu et al. 2016, "vDNN".

import { attention } from '../kernels/attention.ts';
import { at } from '../util/at.ts';
import { liveBytes } from './liveness.ts';
import { makersIn, makingOf, positionsIn } from './makers.ts';
import {
  bytesOf,
  type Instruction,
  makeTensor,
  operandsOf,
  type Program,
  type RowsInstruction,
  type Stash,
  type Tensor,
  type TensorInstruction,
  touchedBy,
  withOperands,
} from './program.ts';
import { inRowSlices, SLICE_COUNTS, type Slicing } from './row-slices.ts';

/**
 * What becomes of a block's activations between its two passes. `keep`: they stay. `light`: those that one pass over the
 * elements makes again are made again: outputs of norms and of gated activations. `attention`: the residual stream stays, at the
 * block's input and between its halves, and so do attention's outputs, which take the most operations a byte to make; all others
 * are made again, each half for itself. `stream`: the residual stream alone stays. `recompute`: only the block's input
 * stays. `sqrt`: only the inputs of every √n-th of n blocks stay; a block is made again with all before
 * it in its segment. What all blocks end with stays in these: the head needs it when nothing else of the last block is there. `spill`: as
 * `stream`, but what stays there is moved below the GPU and back. `offload`: what
 * is not light is moved below the GPU and back. `offload-all`: all of them are. `slice-recompute`: as `recompute`, and `slice`: as `spill`;
 * blocks and the head go some rows at a time (row-slices.ts).
 */
export const ACTIVATION_MODES = [
  'keep',
  'light',
  'attention',
  'stream',
  'recompute',
  'sqrt',
  'spill',
  'offload',
  'offload-all',
  'slice-recompute',
  'slice',
] as const;
export type ActivationMode = (typeof ACTIVATION_MODES)[number];

/** The modes that go some rows at a time, what needs the least memory first, and those that do the same with all rows at once. */
export const SLICED = { slice: 'spill', 'slice-recompute': 'recompute' } as const;
type SlicedMode = keyof typeof SLICED;

/** Whether a mode goes some rows at a time. */
export const isSliced = (mode: ActivationMode): mode is SlicedMode => mode in SLICED;

/** What a budget may be met by in any block: all but those that are for all of them at once. */
export const BLOCK_MODES: readonly ActivationMode[] = ACTIVATION_MODES.filter(
  (mode) => !isSliced(mode) && mode !== 'sqrt',
);

/** The mode of a block, by its name. */
export type ModeOf = (block: string) => ActivationMode;

/** What becomes of one activation between its use in the forward pass and that in the backward pass. */
export type Fate = 'keep' | 'again' | 'move';

/** What each mode does with an activation, by its class; but for the inputs that `sqrt` keeps. */
const FATES: { readonly [M in Exclude<ActivationMode, SlicedMode>]: Readonly<Record<Class, Fate>> } = {
  keep: { input: 'keep', waist: 'keep', light: 'keep', attention: 'keep', heavy: 'keep', end: 'keep' },
  light: { input: 'keep', waist: 'keep', light: 'again', attention: 'keep', heavy: 'keep', end: 'keep' },
  attention: { input: 'keep', waist: 'keep', light: 'again', attention: 'keep', heavy: 'again', end: 'keep' },
  stream: { input: 'keep', waist: 'keep', light: 'again', attention: 'again', heavy: 'again', end: 'keep' },
  recompute: { input: 'keep', waist: 'again', light: 'again', attention: 'again', heavy: 'again', end: 'keep' },
  sqrt: { input: 'again', waist: 'again', light: 'again', attention: 'again', heavy: 'again', end: 'keep' },
  spill: { input: 'move', waist: 'move', light: 'again', attention: 'again', heavy: 'again', end: 'move' },
  offload: { input: 'move', waist: 'move', light: 'again', attention: 'move', heavy: 'move', end: 'move' },
  'offload-all': { input: 'move', waist: 'move', light: 'move', attention: 'move', heavy: 'move', end: 'move' },
};

/** The share of what is alive at once that a head in slices must spare: each slice reads its weights again. */
const WORTH_A_CUT_HEAD = 0.05;

/** Operations an element that are as good as none beside a matrix product's thousands. */
const LIGHT_FLOPS = 32;

/** The program, with each block's activations as its mode says. */
export const withActivations = (
  program: Program,
  modeOf: ModeOf,
  head: HeadCut = 'as modes say',
  slices?: number,
): Program => {
  const fateIn = fatesOf(program);
  return withSlices(
    withFates(program, (activation) => fateIn(modeOf(activation.block), activation)),
    modeOf,
    head,
    slices,
  );
};

/** What a mode does with each activation of a program. */
function fatesOf(program: Program): (mode: ActivationMode, activation: Saved) => Fate {
  const checkpoints = checkpointsOf(blocksOf(program));
  return (mode, { block, kind }) =>
    mode === 'sqrt' && kind === 'input' && checkpoints.has(block)
      ? 'keep'
      : FATES[isSliced(mode) ? SLICED[mode] : mode][kind];
}

/** The first of every √n blocks, whose inputs stay where nothing else does. */
function checkpointsOf(blocks: readonly string[]): ReadonlySet<string> {
  const length = Math.ceil(Math.sqrt(blocks.length));
  return new Set(blocks.filter((_, i) => i % length === 0));
}

/** Rows that a head takes at once: all, or some, where these are many; `as modes say`: see `withSlices`. */
export type HeadCut = 'all' | 'some' | 'as modes say';

/**
 * The program, with blocks in slices of rows where their modes say so (`slices` at most), and then the head, too. Where blocks go all
 * rows at a time the head has larger slices, if clearly less is alive at once then; where they keep all that they make, none.
 */
export function withSlices(
  program: Program,
  modeOf: ModeOf,
  head: HeadCut = 'as modes say',
  slices: number = SLICE_COUNTS[0],
): Program {
  const modes = new Map(blocksOf(program).map((block) => [block, modeOf(block)]));
  const all = new Set(modes.values());
  const keepsAll = all.size === 0 || (all.size === 1 && all.has('keep'));
  if (keepsAll && head !== 'some') return program;
  const someSliced = [...all].some(isSliced);
  const withHead = (ofHead: Slicing | undefined) =>
    inRowSlices(program, (layer) => {
      const mode = modes.get(layer);
      if (mode === undefined) return ofHead;
      return isSliced(mode) ? slices : undefined;
    });
  if (head === 'all') return withHead(undefined);
  const cut = withHead(someSliced ? slices : 'large');
  if (head === 'some' || someSliced) return cut;
  const whole = withHead(undefined);
  return liveBytes(cut) < (1 - WORTH_A_CUT_HEAD) * liveBytes(whole) ? cut : whole;
}

/** The program, with each activation of its blocks as this says. */
export function withFates(program: Program, fateOf: (activation: BlockActivation) => Fate): Program {
  const all = activationsOf(program).map((activation) => ({ ...activation, fate: fateOf(activation) }));
  const chosen = (some: readonly { tensor: Tensor; fate: Fate }[], wanted: Fate) =>
    new Set(some.flatMap(({ tensor, fate }) => (fate === wanted ? [tensor] : [])));
  // What the backward pass does not read goes anyway; but what is made again from it must not hold it until then.
  const dropped = chosen(all, 'again');
  const moved = chosen(
    all.filter(({ isRead }) => isRead),
    'move',
  );
  const made = dropped.size > 0 ? recompute(program, dropped) : program;
  return moved.size > 0 ? offload(made, moved) : made;
}

/** Bytes of the activations of its blocks that have this fate with one mode in all of them. */
export function bytesWith(program: Program, mode: ActivationMode, fate: Fate): number[] {
  const fateIn = fatesOf(program);
  return saved(program).flatMap((activation) => (fateIn(mode, activation) === fate ? [activation.bytes] : []));
}

/** The blocks of a program, in their order. */
export const blocksOf = ({ instructions }: Program): string[] => [
  ...new Set(instructions.flatMap(({ block }) => (block === undefined ? [] : [block]))),
];

/**
 * `input`: of the residual stream, made outside of its block. `waist`: made inside, and all that the block does behind it
 * reads nothing older. `light`: few operations make it again, given what else is saved, or those that make what is light again
 * make it along with that. `attention`: made by attention. `end`: read behind all blocks.
 * `heavy`: the others.
 */
type Class = 'input' | 'waist' | 'light' | 'attention' | 'heavy' | 'end';

/** An activation that the forward pass of a block makes, or begins with, and the backward pass reads. */
export interface Saved {
  readonly tensor: Tensor;
  readonly block: string;
  readonly bytes: number;
  readonly kind: Class;
}

/** In the order in which they are written. */
export const saved = (program: Program): Saved[] => activationsOf(program).filter(({ isRead }) => isRead);

/** An activation of a block, whether the backward pass reads it or not. */
export interface BlockActivation extends Saved {
  /** Or else it is of use only to make others. */
  readonly isRead: boolean;
}

/** The activations that the forward pass of a block makes, and those that it begins with and the backward pass reads. */
export function activationsOf(program: Program): BlockActivation[] {
  const makers = makersIn(program);
  const instructions = program.instructions.filter(
    ({ op }) => op === 'dispatch' || op === 'all-reduce' || op === 'scatter-rows' || op === 'gather-rows',
  );
  const madeAt = new Map<Tensor, number>();
  const read = new Set<Tensor>();
  /** Blocks that read what another one made, or none. */
  const readers = new Map<Tensor, string>();
  const readBehind = new Set<Tensor>();
  /** Of each instruction: how far back what is read at or behind it in its block goes. */
  const oldest: number[] = [];
  instructions.forEach((instruction, i) => {
    const { phase, block } = instruction;
    for (const tensor of operandsOf(instruction, 'in')) {
      if (phase === 'backward') read.add(tensor);
      else if (block === undefined) readBehind.add(tensor);
      else if (makers.get(tensor)?.[0]?.block !== block && !readers.has(tensor)) readers.set(tensor, block);
    }
    if (phase === 'forward') for (const tensor of operandsOf(instruction, 'out')) madeAt.set(tensor, i);
  });
  for (let i = instructions.length - 1; i >= 0; i--) {
    const instruction = at(instructions, i);
    const behind = instructions[i + 1]?.block === instruction.block ? (oldest[i + 1] ?? i) : Number.POSITIVE_INFINITY;
    oldest[i] = operandsOf(instruction, 'in').reduce(
      (least, tensor) => Math.min(least, madeAt.get(tensor) ?? -1),
      behind,
    );
  }
  const neededFor = new Map([...makers.keys()].map((tensor) => [tensor, [...makingOf(tensor, makers).needed]]));
  const isOfAttention = (tensor: Tensor) => neededFor.get(tensor)?.some(({ kernel }) => kernel === attention);
  const activations = [...makers].flatMap(([tensor, made]): BlockActivation[] => {
    const isRead = read.has(tensor);
    const bytes = bytesOf(tensor);
    const reader = readers.get(tensor);
    if (reader !== undefined) return isRead ? [{ tensor, block: reader, bytes, kind: 'input', isRead }] : [];
    const last = made.at(-1);
    if (last?.block === undefined) return [];
    const { block } = last;
    const flops = (neededFor.get(tensor) ?? []).reduce((sum, { kernel, problem }) => sum + kernel.flops(problem), 0);
    const position = madeAt.get(tensor) ?? 0;
    const isWaist = instructions[position + 1]?.block === block && (oldest[position + 1] ?? -1) >= position;
    const others = readBehind.has(tensor) ? 'end' : isOfAttention(tensor) ? 'attention' : 'heavy';
    const kind = isWaist ? 'waist' : flops <= LIGHT_FLOPS * tensor.size ? 'light' : others;
    return [{ tensor, block, bytes, kind, isRead }];
  });
  // What makes light ones again makes the statistics of their norms, too.
  const light = activations.filter(({ kind, isRead }) => kind === 'light' && isRead);
  const run = new Set(light.flatMap(({ tensor }) => neededFor.get(tensor) ?? []));
  const isMadeAlong = ({ tensor }: BlockActivation) => neededFor.get(tensor)?.every((maker) => run.has(maker));
  return activations.map((activation) =>
    activation.kind === 'heavy' && isMadeAlong(activation) ? { ...activation, kind: 'light' } : activation,
  );
}

/** Makes `dropped` again before each of them is first read in the backward pass. */
export function recompute(program: Program, dropped: ReadonlySet<Tensor>): Program {
  const makers = makersIn(program);
  /** What stands for a dropped activation in the backward pass. */
  const again = new Map<Tensor, Tensor>();
  const instructions: Instruction[] = [];
  const standIn = (tensor: Tensor): Tensor => again.get(tensor) ?? tensor;
  const fresh = (tensor: Tensor): Tensor => {
    const { name, shape, type, wantsGradient, stored } = tensor;
    const made = { ...makeTensor(`${name} again`, shape, 'activation', type, wantsGradient), stored };
    // What is written beside it was not given up.
    if (!dropped.has(tensor)) return made;
    const inPlace = { ...made, standsFor: tensor };
    again.set(tensor, inPlace);
    return inPlace;
  };
  /** Where what reads it is. */
  const append = (
    { op, kernel, problem, label }: TensorInstruction,
    operands: Record<string, Tensor>,
    { layer }: Instruction,
  ) => {
    const common = {
      label: `${label}, again`,
      phase: 'backward',
      again: true,
      ...(layer !== undefined && { layer }),
    } as const;
    instructions.push({ op, kernel, problem, operands, ...common });
  };

  const make = (wanted: Tensor, reader: Instruction): void => {
    if (!dropped.has(wanted) || again.has(wanted)) return;
    const { together, needed } = makingOf(wanted, makers);
    for (const maker of needed) {
      for (const input of operandsOf(maker, 'in')) if (!together.has(input)) make(input, reader);
    }
    // Made beside what it is made of.
    if (again.has(wanted)) return;
    const made = new Map([...together].map((tensor) => [tensor, fresh(tensor)]));
    for (const maker of inOrder(needed)) {
      const operands = Object.entries(maker.operands).map(([name, tensor]) => [
        name,
        made.get(tensor) ?? standIn(tensor),
      ]);
      append(maker, Object.fromEntries(operands), reader);
    }
  };
  const position = positionsIn(program, makers);
  const inOrder = (some: Iterable<TensorInstruction>) =>
    [...some].sort((a, b) => (position.get(a) ?? 0) - (position.get(b) ?? 0));

  for (const instruction of program.instructions) {
    if (!readsActivations(instruction)) {
      instructions.push(instruction);
      continue;
    }
    if (instruction.op === 'dispatch') {
      for (const tensor of Object.values(instruction.operands)) make(tensor, instruction);
    } else {
      make(instruction.own, instruction);
      const { tensor } = instruction;
      // From here on what is made again is made of it.
      if (tensor.standsFor) again.set(tensor.standsFor, tensor);
    }
    instructions.push(withOperands(instruction, standIn));
  }
  return { ...program, instructions };
}

/** Moves `moved` below the GPU behind their last use in the forward pass, and back before their first in the backward pass. */
export function offload(program: Program, moved: ReadonlySet<Tensor>): Program {
  const lastForward = new Map<Tensor, Instruction>();
  for (const instruction of program.instructions) {
    if (instruction.phase !== 'forward') continue;
    for (const { tensor } of touchedBy(instruction)) if (moved.has(tensor)) lastForward.set(tensor, instruction);
  }
  const stashes = new Map<Tensor, Stash>();
  /** What stands for a moved activation in the backward pass. */
  const fetched = new Map<Tensor, Tensor>();
  const instructions: Instruction[] = [];
  for (const instruction of program.instructions) {
    if (!readsActivations(instruction)) {
      instructions.push(instruction);
      for (const tensor of new Set(touchedBy(instruction).map(({ tensor }) => tensor))) {
        if (lastForward.get(tensor) !== instruction) continue;
        const stash = { name: tensor.name, bytes: bytesOf(tensor) };
        stashes.set(tensor, stash);
        const { block, layer } = instruction;
        const common = {
          label: `${tensor.name}, moved below`,
          phase: 'forward' as const,
          ...(block !== undefined && { block }),
          ...(layer !== undefined && { layer }),
        };
        instructions.push({ op: 'offload', tensor, stash, ...common });
      }
      continue;
    }
    for (const { tensor } of touchedBy(instruction)) {
      const stash = stashes.get(tensor);
      if (!stash || fetched.has(tensor)) continue;
      const { name, shape, type, wantsGradient, stored } = tensor;
      const made = { ...makeTensor(`${name} back`, shape, 'activation', type, wantsGradient), stored };
      const back: Tensor = { ...made, standsFor: tensor };
      fetched.set(tensor, back);
      const { layer } = instruction;
      const common = {
        label: `${name}, moved back`,
        phase: 'backward',
        ...(layer !== undefined && { layer }),
      } as const;
      instructions.push({ op: 'fetch', tensor: back, stash, ...common });
    }
    instructions.push(withOperands(instruction, (tensor) => fetched.get(tensor) ?? tensor));
  }
  return { ...program, instructions };
}

/** Whether it is of the backward pass, and may read what the forward pass has kept. */
const readsActivations = (instruction: Instruction): instruction is TensorInstruction | RowsInstruction =>
  instruction.phase === 'backward' && (instruction.op === 'dispatch' || instruction.op === 'gather-rows');
