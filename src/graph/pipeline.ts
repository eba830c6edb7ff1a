// Pipeline parallel (Huang et al. 2019; Narayanan et al. 2021): programs of a whole model cut into those of stages, each with
// the next blocks, and the micro-batches of a step in the order 1F1B. Rewrites of programs: a family has no part in them.
// The first stage also has what comes before the blocks, the last one what comes behind them.
//
// Invariants: what a stage reads and another one made is handed over between neighbours, both ways in one order; every sum over
// micro-batches adds up in their order, hence to the bits of one rank.

import { fill } from '../kernels/add.ts';
import { at } from '../util/at.ts';
import { assert } from '../util/errors.ts';
import { blocksOf } from './activations.ts';
import type { GridPlace } from './grid-place.ts';
import { copiesOf, type MicroBatches, type OneProgram } from './layer-major.ts';
import type { AllGatherInstruction, HandOverInstruction, Instruction, Phase, Program, Tensor } from './program.ts';
import { operandsOf } from './program.ts';

/** How a model is dealt out. */
export interface Stages {
  readonly size: number;
  readonly ofBlock: ReadonlyMap<string, number>;
}

/** Blocks in their order, as evenly as they can be; what is left over goes to the first stages, since the last has the head. */
export function stagesOf(program: Program, size: number): Stages {
  const blocks = blocksOf(program);
  const ofBlock = new Map<string, number>();
  let stage = 0;
  blocks.forEach((block, i) => {
    if (i >= Math.ceil(((stage + 1) * blocks.length) / size)) stage++;
    ofBlock.set(block, stage);
  });
  return { size, ofBlock };
}

/** The stage of each instruction of a whole model's program: that of its block, or of the one before it in its pass. */
function placed({ instructions }: Program, { size, ofBlock }: Stages): (readonly [Instruction, number])[] {
  let phase: Phase = 'forward';
  let stage = 0;
  return instructions.map((instruction) => {
    if (instruction.phase !== phase) {
      phase = instruction.phase;
      stage = phase === 'forward' ? 0 : size - 1;
    }
    const { block, layer = '' } = instruction;
    const found = ofBlock.get(block ?? layer) ?? stage;
    assert(phase === 'forward' ? found >= stage : found <= stage, `${instruction.label} is in an earlier stage`);
    stage = found;
    return [instruction, found];
  });
}

/** The stages that use each parameter, by its name. */
export function parameterStages(program: Program, stages: Stages): Map<string, number[]> {
  const found = new Map<string, Set<number>>();
  for (const [instruction, stage] of placed(program, stages)) {
    if (instruction.op !== 'dispatch') continue;
    for (const { role, name } of Object.values(instruction.operands)) {
      if (role !== 'parameter' && role !== 'gradient') continue;
      found.set(name, (found.get(name) ?? new Set()).add(stage));
    }
  }
  return new Map([...found].map(([name, some]) => [name, [...some].sort((a, b) => a - b)]));
}

/** What a stage does of a program, with what it gets from its neighbours and what they get from it. */
export function cut<P extends Program>(program: P, stages: Stages, stage: number): P {
  const all = placed(program, stages);
  const instructions: Instruction[] = [];
  for (const phase of ['forward', 'backward', 'update'] as const) {
    const part = all.filter(([instruction]) => instruction.phase === phase);
    if (part.length === 0) continue;
    const ahead = phase === 'forward' ? 1 : -1;
    const handOver = (op: HandOverInstruction['op'], other: number): HandOverInstruction[] => {
      if (other < 0 || other >= stages.size) return [];
      const crossing = crossingBetween(part, op === 'send' ? stage : other, ahead);
      return crossing.map((tensor) => ({ op, tensor, stage: other, label: tensor.name, phase }));
    };
    instructions.push(
      ...handOver('receive', stage - ahead),
      ...part.flatMap(([instruction, found]) => (found === stage ? [instruction] : [])),
      ...handOver('send', stage + ahead),
    );
  }
  return { ...program, instructions };
}

/** What stages up to this one write in a pass, and those behind it read in it; in the order in which it is written. */
function crossingBetween(part: readonly (readonly [Instruction, number])[], stage: number, ahead: number): Tensor[] {
  const isBehind = (other: number) => (other - stage) * ahead > 0;
  const written = new Set<Tensor>();
  const read = new Set<Tensor>();
  for (const [instruction, other] of part) {
    if (isBehind(other)) for (const tensor of operandsOf(instruction, 'in')) read.add(tensor);
    else for (const tensor of operandsOf(instruction, 'out')) written.add(tensor);
  }
  return [...written].filter((tensor) => read.has(tensor));
}

/** A stage's program that adds to what another one began in the whole model's: here it begins with zeros. */
export function fromZero(program: Program, gradients: readonly Tensor[]): Program {
  const left = new Set(gradients);
  const instructions = program.instructions.flatMap((instruction): Instruction[] => {
    const { label, phase } = instruction;
    if (instruction.op !== 'dispatch') return [instruction];
    const begun = Object.values(instruction.operands).filter((tensor) => left.delete(tensor));
    const zeros = begun.map((y): Instruction => {
      const problem = { size: y.size, value: 0 };
      return { op: 'dispatch', kernel: fill, problem, operands: { y }, label, phase };
    });
    return [...zeros, instruction];
  });
  return { ...program, instructions };
}

/** A forward pass behind which all stages have what the last one has made. */
export function withResults<P extends Program>(program: P, made: readonly Tensor[], size: number): P {
  const gathers = made.map((tensor): AllGatherInstruction => {
    const parts = [{ stage: size - 1, offset: 0, size: tensor.size }];
    return { op: 'all-gather', tensor, parts, label: tensor.name, phase: 'forward' };
  });
  return { ...program, instructions: [...program.instructions, ...gathers] };
}

/**
 * All micro-batches of a step as one of the stages does them: one forward and one backward in turn, behind as many forward
 * as there are stages after it; and then the sum of what two stages have of a gradient (`tied`). So it has the activations of no more micro-batches at once than there are stages from it on.
 */
export function oneForwardOneBackward(
  { first, next }: MicroBatches,
  place: GridPlace,
  count: number,
  { inputs, tied }: { readonly inputs: readonly Tensor[]; readonly tied: readonly Tensor[] },
): OneProgram {
  const copies = copiesOf(count, inputs);
  const passOf = (micro: number, phase: Phase): Instruction[] => {
    const { instructions } = micro === 0 ? first : next;
    const own = instructions.filter((instruction) => instruction.phase === phase);
    return micro === 0 ? own : own.map((instruction) => at(copies, micro - 1).of(instruction));
  };
  const instructions: Instruction[] = [];
  const ahead = aheadOf(place, count);
  for (let micro = 0; micro < ahead; micro++) instructions.push(...passOf(micro, 'forward'));
  for (let micro = 0; micro < count; micro++) {
    if (micro + ahead < count) instructions.push(...passOf(micro + ahead, 'forward'));
    instructions.push(...passOf(micro, 'backward'));
  }
  instructions.push(...tied.map((tensor) => ({ op: 'tie', tensor, label: tensor.name, phase: 'backward' }) as const));
  const program = { name: `${count} micro-batches of a stage`, instructions, outputs: [] };
  return { program, inputs: [new Map(), ...copies.map((copy) => copy.inputs)] };
}

/** Forward passes of a stage before its first backward pass, the one right before it apart. */
const aheadOf = ({ rank, size }: GridPlace, count: number): number => Math.min(size - rank - 1, count);

/** Micro-batches whose activations a stage has at once, at most. */
export const microBatchesAtOnce = (place: GridPlace, count: number): number =>
  Math.min(aheadOf(place, count) + 1, count);
