// Makers of activations: of each, the instructions that make it, once more or for the first time. What recomputation, the
// policies over activations and the bound of all plans share.

import { ACTIVATIONS, type ActivationName } from '../kernels/activations.ts';
import { matmul } from '../kernels/matmul.ts';
import type { Layout, MatmulProblem } from '../kernels/matmul-problem.ts';
import { isNarrowing } from '../kernels/narrow.ts';
import {
  type Instruction,
  onTensors,
  operandsOf,
  type Program,
  type Tensor,
  type TensorInstruction,
} from './program.ts';

/** Of each activation: the instructions that make it. */
export type Makers = ReadonlyMap<Tensor, readonly TensorInstruction[]>;

/** What it takes to make an activation again: the instructions that write it, and those of all that they write beside it. */
export function makingOf(wanted: Tensor, makers: Makers): { together: Set<Tensor>; needed: Set<TensorInstruction> } {
  const together = new Set([wanted]);
  const needed = new Set<TensorInstruction>();
  for (const tensor of together) {
    for (const maker of makers.get(tensor) ?? []) {
      // What is made beside its sums need not be made of them.
      if (tensor !== wanted && isByItself(maker)) continue;
      needed.add(maker);
      for (const output of operandsOf(maker, 'out')) together.add(output);
      // What is rounded does not stay to be rounded again.
      if (isNarrowing(maker.kernel)) for (const input of operandsOf(maker, 'in')) together.add(input);
    }
  }
  return { together, needed };
}

const ALONE = new Set<unknown>(Object.values(ACTIVATIONS).map(({ forward }) => forward));

/** What products end in an activation, as far as it is compiled in another way. */
export interface Ending {
  readonly activation: ActivationName;
  readonly layout: Layout;
  /** Whether all is read in fours. */
  readonly inFours: boolean;
}

/** The endings of a program's products, each once. */
export function endingsIn(program: Program): Ending[] {
  const found = new Map<string, Ending>();
  for (const { kernel, problem, operands } of onTensors(program)) {
    const { activationOf } = operands['c'] ?? {};
    if (kernel !== matmul || !activationOf) continue;
    const { activation } = activationOf;
    const { layout, N, K } = problem as MatmulProblem;
    const inFours = N % 4 === 0 && K % 4 === 0;
    found.set(`${activation} ${layout} ${inFours}`, { activation, layout, inFours });
  }
  return [...found.values()];
}

/** Whether it makes what a product ended in of the product's sums. */
export const isByItself = ({ kernel }: TensorInstruction): boolean => ALONE.has(kernel);

/** Makes what a product ended in of its sums, where these are as the product has left them. */
function byItself(
  tensor: Tensor,
  product: TensorInstruction,
  read: ReadonlySet<Tensor>,
): TensorInstruction | undefined {
  const { activationOf, size } = tensor;
  if (!activationOf || product.operands['preactivation'] !== activationOf.tensor) return undefined;
  // Rounded, they are others.
  if (read.has(tensor) || read.has(activationOf.tensor)) return undefined;
  const { kernel: _, ...common } = product;
  const { forward } = ACTIVATIONS[activationOf.activation];
  return { ...common, kernel: forward, problem: { size }, operands: { x: activationOf.tensor, y: tensor } };
}

/**
 * Of each activation: the instructions that make it again: those of the forward pass that write it, in their order, or the one
 * that makes it of a product's sums. Sums over ranks have none, rounded or not.
 */
export function makersIn(program: Program): Makers {
  const makers = new Map<Tensor, TensorInstruction[]>();
  for (const instruction of onTensors(program)) {
    if (instruction.phase !== 'forward') continue;
    for (const tensor of operandsOf(instruction, 'out'))
      makers.set(tensor, [...(makers.get(tensor) ?? []), instruction]);
  }
  const made = new Set(
    program.instructions.flatMap((instruction) => {
      const { op } = instruction;
      const isExchange = op === 'all-reduce' || op === 'scatter-rows' || op === 'gather-rows';
      return isExchange ? operandsOf(instruction, 'out') : [];
    }),
  );
  const isRounded = ({ kernel, operands }: TensorInstruction) =>
    isNarrowing(kernel) && Object.values(operands).some((tensor) => made.has(tensor));
  for (const [tensor, found] of makers) if (made.has(tensor) || found.some(isRounded)) makers.delete(tensor);
  if (program.appliesAlone === false) return makers;
  const rounded = new Set(
    onTensors(program).flatMap(({ kernel, operands }) => (isNarrowing(kernel) ? Object.values(operands) : [])),
  );
  for (const [tensor, [product]] of makers) {
    const alone = product && byItself(tensor, product, rounded);
    if (alone) makers.set(tensor, [alone]);
  }
  return makers;
}

/** The place of each instruction in a program, and, of what makes an activation by itself, that of the product that it stands for. */
export function positionsIn({ instructions }: Program, makers: Makers): ReadonlyMap<Instruction, number> {
  const places = new Map(instructions.map((instruction, i) => [instruction, i]));
  for (const [i, instruction] of instructions.entries()) {
    if (instruction.phase !== 'forward') continue;
    for (const tensor of operandsOf(instruction, 'out')) {
      const [alone] = makers.get(tensor) ?? [];
      if (alone && isByItself(alone) && !places.has(alone)) places.set(alone, i);
    }
  }
  return places;
}
