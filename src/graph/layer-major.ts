// Micro-batches layer by layer: a rewrite of the programs of a step's micro-batches into one in which all of them pass a layer
// before the next, so that parameters and gradients are on the GPU once a step and not once a micro-batch. Each has activations
// and inputs of its own. What becomes of activations is decided before (activations.ts), and when it pays elsewhere
// (engine/compile/ways.ts).
//
// Invariant: every sum over micro-batches adds up in their order, layer by layer as batch by batch, hence to the same bits.
// Sources of the idea: Huang et al. 2019, "GPipe"; Rajbhandari et al. 2021, "ZeRO-Infinity".

import { operandList } from '../kernels/by-problem.ts';
import { assert } from '../util/errors.ts';
import type { Instruction, Phase, Program, Stash, Tensor, TensorInstruction } from './program.ts';

/** How the micro-batches of a step go through the model: one after the other, or all of them a layer at a time. */
export const ACCUMULATE_ORDERS = ['batch', 'layer'] as const;
export type AccumulateOrder = (typeof ACCUMULATE_ORDERS)[number];

/** What a step's first micro-batch runs, and what each of the others does. */
export interface MicroBatches {
  readonly first: Program;
  readonly next: Program;
}

/** All micro-batches of a step in one program, in whatever order. */
export interface OneProgram {
  readonly program: Program;
  /** Of each micro-batch: its tensors in place of those that it would bring its inputs in, were it alone. */
  readonly inputs: readonly ReadonlyMap<Tensor, Tensor>[];
}

/** `inputs`: the tensors in which a micro-batch brings what it is. Not for programs with a gradient that `reorderedGradient` finds. */
export function layerMajor(micros: MicroBatches, count: number, inputs: readonly Tensor[]): OneProgram {
  const first = sectionsOf(micros.first);
  const next = new Map(sectionsOf(micros.next).map((section) => [section.key, section]));
  const shared = first.flatMap(({ key }) => (next.has(key) ? [key] : []));
  assert(shared.join() === [...next.keys()].join(), 'the micro-batches of a step pass the same layers');
  const copies = copiesOf(count, inputs);
  const instructions: Instruction[] = [];
  for (const { key, isOfTables, instructions: own } of first) {
    const others = next.get(key)?.instructions ?? [];
    if (!isOfTables) {
      for (const instruction of own) instructions.push(instruction);
      for (const copy of copies) instructions.push(...others.map((instruction) => copy.of(instruction)));
      continue;
    }
    const counterpart = matched(own, others);
    for (const instruction of own) {
      const other = counterpart.get(instruction);
      const across = {};
      instructions.push(other ? { ...instruction, across } : instruction);
      if (other) instructions.push(...copies.map((copy) => ({ ...copy.of(other), across })));
    }
  }
  const program = { name: `${count} micro-batches`, instructions, outputs: [] };
  return { program, inputs: [new Map(), ...copies.map((copy) => copy.inputs)] };
}

/**
 * A parameter's gradient that would add up in another order, layer by layer: more than one part of the model adds to the
 * same of its elements. Undefined where there is none.
 */
export function reorderedGradient({ next }: Pick<MicroBatches, 'next'>): Tensor | undefined {
  const written = new Map<Tensor, { readonly turn: object; readonly from: number; readonly to: number }[]>();
  for (const section of sectionsOf(next)) {
    for (const instruction of section.instructions) {
      if (instruction.op !== 'dispatch') continue;
      const turn = section.isOfTables ? instruction : section;
      for (const { tensor, from, to } of gradientsOf(instruction)) {
        const before = written.get(tensor) ?? [];
        if (before.some((other) => other.turn !== turn && from < other.to && other.from < to)) return tensor;
        written.set(tensor, [...before, { turn, from, to }]);
      }
    }
  }
  return undefined;
}

/** What a micro-batch writes of gradients of parameters: elements `from` to below `to`. */
function gradientsOf({ kernel, problem, operands }: TensorInstruction) {
  return operandList(kernel, problem).flatMap(([name, { access, start = 0, size }]) => {
    const tensor = operands[name];
    if (access === 'read' || tensor?.role !== 'gradient') return [];
    return [{ tensor, from: start, to: size }];
  });
}

/** Instructions side by side that all micro-batches pass before the next ones. */
interface Section {
  /** One for all micro-batches: their sections of one key are run side by side. */
  readonly key: string;
  readonly phase: Phase;
  readonly layer: string | undefined;
  /** A table may be larger than all that there is room for: each instruction goes for all micro-batches, tile by tile. */
  readonly isOfTables: boolean;
  readonly instructions: readonly Instruction[];
}

function sectionsOf({ instructions }: Program): Section[] {
  const runs: { phase: Phase; layer: string | undefined; instructions: Instruction[] }[] = [];
  for (const instruction of instructions) {
    const { phase, layer } = instruction;
    const last = runs.at(-1);
    if (last && last.phase === phase && last.layer === layer) last.instructions.push(instruction);
    else runs.push({ phase, layer, instructions: [instruction] });
  }
  const isOfTables = ({ layer, instructions }: (typeof runs)[number]) =>
    layer === undefined && instructions.some((some) => some.op === 'dispatch' && some.kernel.isOnTable);
  // What lies between layers goes with the one that it ends forward, and begins backward: it may make again what that keeps.
  const joined: typeof runs = [];
  for (const run of runs) {
    const last = joined.at(-1);
    const isBetween = (some: typeof run) => some.layer === undefined && !isOfTables(some);
    const joins = (before: typeof run) =>
      before.phase === run.phase &&
      (run.phase === 'forward'
        ? before.layer !== undefined && isBetween(run)
        : run.layer !== undefined && isBetween(before));
    if (!last || !joins(last)) joined.push({ ...run, instructions: [...run.instructions] });
    else {
      for (const instruction of run.instructions) last.instructions.push(instruction);
      last.layer ??= run.layer;
    }
  }
  const counts = new Map<string, number>();
  return joined.map((run) => {
    const name = `${run.phase} ${run.layer ?? ''}`;
    const seen = counts.get(name) ?? 0;
    counts.set(name, seen + 1);
    return { ...run, key: `${name} ${seen}`, isOfTables: isOfTables(run) };
  });
}

/** Of each instruction of the first micro-batch: the one of the others that does the same, where there is one. */
function matched(own: readonly Instruction[], others: readonly Instruction[]): Map<Instruction, Instruction> {
  const found = new Map<Instruction, Instruction>();
  let next = 0;
  for (const instruction of own) {
    const other = others[next];
    if (!other || nameOf(other) !== nameOf(instruction)) continue;
    found.set(instruction, other);
    next++;
  }
  assert(next === others.length, 'the first micro-batch does what all of them do');
  return found;
}

const nameOf = (instruction: Instruction): string =>
  `${instruction.op} ${'kernel' in instruction ? instruction.kernel.name : ''} ${instruction.label}`;

/** The copies for all micro-batches behind the first, which has the tensors of the programs. */
export const copiesOf = (count: number, inputs: readonly Tensor[]): Copy[] =>
  Array.from({ length: count - 1 }, (_, i) => new Copy(i + 2, inputs));

/** The instructions of a micro-batch on tensors of its own. */
export class Copy {
  readonly inputs: ReadonlyMap<Tensor, Tensor>;
  readonly #number: number;
  readonly #tensors = new Map<Tensor, Tensor>();
  readonly #stashes = new Map<Stash, Stash>();

  constructor(number: number, inputs: readonly Tensor[]) {
    this.#number = number;
    this.inputs = new Map(inputs.map((tensor) => [tensor, this.#renamed(tensor)]));
  }

  of(instruction: Instruction): Instruction {
    switch (instruction.op) {
      case 'dispatch': {
        const operands = Object.entries(instruction.operands).map(([name, tensor]) => [name, this.#own(tensor)]);
        return { ...instruction, operands: Object.fromEntries(operands), copyOf: instruction };
      }
      case 'offload':
      case 'fetch':
        return { ...instruction, tensor: this.#own(instruction.tensor), stash: this.#stash(instruction.stash) };
      case 'all-reduce':
      case 'all-gather':
      case 'send':
      case 'receive':
        return { ...instruction, tensor: this.#own(instruction.tensor) };
      case 'scatter-rows':
      case 'gather-rows':
        return { ...instruction, tensor: this.#own(instruction.tensor), own: this.#own(instruction.own) };
      case 'dispatch each chunk':
      case 'host each chunk':
      case 'tie':
        throw new Error(`internal: ${instruction.label} is of a whole step, not of a micro-batch`);
      default:
        return instruction satisfies never;
    }
  }

  #own(tensor: Tensor): Tensor {
    const input = this.inputs.get(tensor);
    if (input) return input;
    if (tensor.role !== 'activation' && !tensor.partOf) return tensor;
    const known = this.#tensors.get(tensor);
    if (known) return known;
    const { standsFor, partOf } = tensor;
    const own = {
      ...this.#renamed(tensor),
      ...(standsFor && { standsFor: this.#own(standsFor) }),
      ...(partOf && { partOf: { ...partOf, tensor: this.#own(partOf.tensor) } }),
    };
    this.#tensors.set(tensor, own);
    return own;
  }

  #renamed(tensor: Tensor): Tensor {
    return { ...tensor, name: `${tensor.name}, micro-batch ${this.#number}` };
  }

  #stash(stash: Stash): Stash {
    const known = this.#stashes.get(stash);
    const own = known ?? { ...stash, name: `${stash.name}, micro-batch ${this.#number}` };
    this.#stashes.set(stash, own);
    return own;
  }
}
