// Activation recomputation as a rewrite of a training program: chosen activations are not kept from the forward pass to
// the backward pass, but made again before the backward pass first reads them. They are written to new tensors by the
// same kernels with the same problems, hence with the same bits; liveness then sees shorter lives, and nothing else in
// the house knows of it.
//
// Invariant: what is dropped can be made from what is kept: inputs, parameters, and activations that are not dropped.
// Source of the idea: Chen et al. 2016, "Training Deep Nets with Sublinear Memory Cost".

import {
  bytesOf,
  type Instruction,
  makeTensor,
  onTensors,
  type Program,
  type Tensor,
  type TensorInstruction,
} from './graph.ts';

/**
 * What is kept of a block between its two passes. `keep`: everything that the backward pass reads. `light`: not what a
 * pass over the elements makes again: outputs of norms and of gated activations. `recompute`: only the block's input.
 */
export const ACTIVATION_MODES = ['keep', 'light', 'recompute'] as const;
export type ActivationMode = (typeof ACTIVATION_MODES)[number];

/** Operations an element that are as good as none beside a matrix product's thousands. */
const LIGHT_FLOPS = 32;

/** The program, with activations made again as the mode says. */
export function withActivations(program: Program, mode: ActivationMode): Program {
  if (mode === 'keep') return program;
  const all = saved(program);
  const dropped = all.filter(({ crosses, light }) => !crosses && (mode === 'recompute' || light));
  return recompute(program, new Set(dropped.map(({ tensor }) => tensor)));
}

/** An activation that the forward pass of a block writes and the backward pass reads. */
export interface Saved {
  readonly tensor: Tensor;
  readonly block: string;
  readonly bytes: number;
  /** Whether what is outside of the block reads it in the forward pass: it belongs to the residual stream. */
  readonly crosses: boolean;
  /** Whether it takes few operations to make it again, given what else is saved. */
  readonly light: boolean;
}

/** In the order in which they are written. */
export function saved(program: Program): Saved[] {
  const instructions = onTensors(program);
  const makers = makersIn(instructions);
  const readBackward = new Set<Tensor>();
  const readOutside = new Set<Tensor>();
  for (const instruction of instructions) {
    const { phase, block } = instruction;
    for (const tensor of operandsOf(instruction, 'in')) {
      if (phase === 'backward') readBackward.add(tensor);
      else if (makers.get(tensor)?.[0]?.block !== block) readOutside.add(tensor);
    }
  }
  return [...makers].flatMap(([tensor, made]) => {
    const block = made[0]?.block;
    if (block === undefined || !readBackward.has(tensor)) return [];
    const { needed } = makingOf(tensor, makers);
    const flops = [...needed].reduce((sum, { kernel, problem }) => sum + kernel.flops(problem), 0);
    const light = flops <= LIGHT_FLOPS * tensor.size;
    return [{ tensor, block, bytes: bytesOf(tensor), crosses: readOutside.has(tensor), light }];
  });
}

/** Makes `dropped` again before each of them is first read in the backward pass. */
export function recompute(program: Program, dropped: ReadonlySet<Tensor>): Program {
  const makers = makersIn(onTensors(program));
  /** What stands for a dropped activation in the backward pass. */
  const again = new Map<Tensor, Tensor>();
  const instructions: Instruction[] = [];
  const standIn = (tensor: Tensor): Tensor => again.get(tensor) ?? tensor;
  const fresh = (tensor: Tensor): Tensor => {
    const { name, shape, type, wantsGradient } = tensor;
    const made = makeTensor(`${name} again`, shape, 'activation', type, wantsGradient);
    if (dropped.has(tensor)) again.set(tensor, made);
    return made;
  };
  const append = (instruction: TensorInstruction, operands: Record<string, Tensor>) => {
    const { op, kernel, problem, label } = instruction;
    instructions.push({ op, kernel, problem, operands, label: `${label}, again`, phase: 'backward', again: true });
  };

  const make = (wanted: Tensor): void => {
    if (!dropped.has(wanted) || again.has(wanted)) return;
    const { together, needed } = makingOf(wanted, makers);
    for (const maker of needed) {
      for (const input of operandsOf(maker, 'in')) if (!together.has(input)) make(input);
    }
    const made = new Map([...together].map((tensor) => [tensor, fresh(tensor)]));
    for (const maker of inOrder(needed)) {
      const operands = Object.entries(maker.operands).map(([name, tensor]) => [
        name,
        made.get(tensor) ?? standIn(tensor),
      ]);
      append(maker, Object.fromEntries(operands));
    }
  };
  const position = new Map(onTensors(program).map((instruction, i) => [instruction, i]));
  const inOrder = (some: Iterable<TensorInstruction>) =>
    [...some].sort((a, b) => (position.get(a) ?? 0) - (position.get(b) ?? 0));

  for (const instruction of program.instructions) {
    if (instruction.op !== 'dispatch' || instruction.phase !== 'backward') {
      instructions.push(instruction);
      continue;
    }
    for (const tensor of Object.values(instruction.operands)) make(tensor);
    const operands = Object.entries(instruction.operands).map(([name, tensor]) => [name, standIn(tensor)]);
    instructions.push({ ...instruction, operands: Object.fromEntries(operands) });
  }
  return { ...program, instructions };
}

type Makers = ReadonlyMap<Tensor, readonly TensorInstruction[]>;

/** What it takes to make an activation again: the instructions that write it, and those of all that they write beside it. */
function makingOf(wanted: Tensor, makers: Makers): { together: Set<Tensor>; needed: Set<TensorInstruction> } {
  const together = new Set([wanted]);
  const needed = new Set<TensorInstruction>();
  for (const tensor of together) {
    for (const maker of makers.get(tensor) ?? []) {
      needed.add(maker);
      for (const output of operandsOf(maker, 'out')) together.add(output);
    }
  }
  return { together, needed };
}

/** Of each activation: the instructions of the forward pass that write it, in their order. */
function makersIn(instructions: readonly TensorInstruction[]): Makers {
  const makers = new Map<Tensor, TensorInstruction[]>();
  for (const instruction of instructions) {
    if (instruction.phase !== 'forward') continue;
    for (const tensor of operandsOf(instruction, 'out'))
      makers.set(tensor, [...(makers.get(tensor) ?? []), instruction]);
  }
  return makers;
}

/** The activations that an instruction reads, or writes; what it updates is both. */
function operandsOf({ kernel, problem, operands }: TensorInstruction, way: 'in' | 'out'): Tensor[] {
  return Object.entries(kernel.operands(problem)).flatMap(([name, { access }]) => {
    const tensor = operands[name];
    const passes = way === 'in' ? access !== 'write' : access !== 'read';
    return tensor?.role === 'activation' && passes ? [tensor] : [];
  });
}
