// Activations in sixteen bits: a rewrite of a training program, before anything is decided of them. What the forward pass makes
// and the backward pass reads is rounded where it is complete, and all that read it from then on, in either pass, read it
// rounded: what is kept or moved is half as large, and what is made again is made of the same values, hence to the same bits.
// What describes a row (means, deviations, logarithms of sums) stays as it is: it is small, and is exponentiated.
// What f16 has no number for becomes infinite: the loss or a gradient is then not finite either, and the step is skipped.
// By the same rewrite the same activations are moved by coins in float32, which shows what rounding them may do.
//
// Invariant: a program and its narrow one have the same instructions on what is no activation, in the same order.

import { throwCoins } from '../kernels/coins.ts';
import type { Kernel } from '../kernels/kernel.ts';
import { NARROW } from '../kernels/narrow.ts';
import { splitmix32 } from '../util/random.ts';
import { type Instruction, type Program, type Tensor, touchedBy, withOperands } from './program.ts';

/** What activations are kept as for the backward pass. */
export const ACTIVATION_DTYPES = ['f32', 'bf16', 'f16'] as const;
/** One of ACTIVATION_DTYPES. */
export type ActivationDtype = (typeof ACTIVATION_DTYPES)[number];

/** Operands of kernels that describe rows. */
const STATISTICS: ReadonlySet<string> = new Set(['mean', 'rstd', 'lse', 'delta']);

/** What stands in for an activation once it is complete, and the dispatch from one to the other. */
interface StandIn {
  readonly tensor: Tensor;
  // biome-ignore lint/suspicious/noExplicitAny: the problem is its own
  readonly kernel: Kernel<any>;
  readonly problem: object;
  readonly label: string;
}

/** The program with what its forward pass keeps rounded to sixteen bits. */
export const narrowActivations = (program: Program, dtype: Exclude<ActivationDtype, 'f32'>): Program =>
  withStandIns(program, (tensor) => ({
    tensor: { ...tensor, name: `${tensor.name}, ${dtype}`, stored: dtype },
    kernel: NARROW[dtype],
    problem: { size: tensor.size },
    label: `${tensor.name}, rounded`,
  }));

/** Coins that activations are moved by: up or down by a share of the value, and at least by so much, other coins for another seed. */
export interface ActivationCoins {
  readonly share: number;
  readonly least: number;
  readonly seed: number;
}

/** The program with what its forward pass keeps moved by coins, in float32. */
export const throwActivations = (program: Program, { share, least, seed }: ActivationCoins): Program =>
  withStandIns(program, (tensor, number) => ({
    tensor: { ...tensor, name: `${tensor.name}, moved` },
    kernel: throwCoins,
    problem: { size: tensor.size, stream: splitmix32(splitmix32(seed) ^ number), share, least },
    label: `${tensor.name}, moved`,
  }));

/** The program with another tensor in place of each of these activations, once it is complete; they are numbered. */
function withStandIns(program: Program, standInFor: (tensor: Tensor, number: number) => StandIn): Program {
  const completeAt = completions(program);
  const madeOf = new Map<Tensor, Tensor>();
  const standIn = (tensor: Tensor): Tensor => madeOf.get(tensor) ?? tensor;
  const instructions = program.instructions.flatMap((instruction, i): Instruction[] => {
    const { phase, block, layer } = instruction;
    const complete = [...new Set(tensorsOf(instruction))].filter((tensor) => completeAt.get(tensor) === i);
    return [
      withOperands(instruction, standIn),
      ...complete.map((tensor): Instruction => {
        const { tensor: other, kernel, problem, label } = standInFor(tensor, madeOf.size);
        madeOf.set(tensor, other);
        return {
          ...{ op: 'dispatch', phase, kernel, problem, operands: { x: tensor, y: other }, label },
          ...(block !== undefined && { block }),
          ...(layer !== undefined && { layer }),
        };
      }),
    ];
  });
  return { ...program, instructions };
}

/** What an instruction may complete. */
const tensorsOf = (instruction: Instruction): readonly Tensor[] =>
  instruction.op === 'dispatch'
    ? Object.values(instruction.operands)
    : instruction.op === 'all-reduce'
      ? [instruction.tensor]
      : [];

/** Of each activation that is rounded: the instruction behind which it is complete; of a sum over ranks, the sum. */
function completions({ instructions, outputs }: Program): Map<Tensor, number> {
  const written = new Map<Tensor, number>();
  const kept = new Set<Tensor>();
  const others = new Set<Tensor>(outputs);
  for (const [i, instruction] of instructions.entries()) {
    if (instruction.op === 'all-reduce' && instruction.phase === 'forward') {
      written.set(instruction.tensor, i);
      continue;
    }
    if (instruction.op !== 'dispatch') {
      for (const { tensor } of touchedBy(instruction)) others.add(tensor);
      continue;
    }
    const { kernel, problem, operands, phase } = instruction;
    for (const [name, { access, type }] of Object.entries(kernel.operands(problem))) {
      const tensor = operands[name];
      if (tensor?.role !== 'activation') continue;
      if (type !== 'f32' || STATISTICS.has(name)) others.add(tensor);
      if (access === 'read') {
        if (phase === 'backward') kept.add(tensor);
      } else if (phase === 'forward') written.set(tensor, i);
      else others.add(tensor);
    }
  }
  return new Map([...written].filter(([tensor]) => kept.has(tensor) && !others.has(tensor)));
}
