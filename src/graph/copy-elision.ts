// Copies left out: a rewrite of a program that runs. An operator that works in place is given a copy of what it overwrites
// (operators/overwritable.ts); where that is the last use of the tensor, it is given the tensor itself. This comes last of all rewrites,
// when it is known what else reads a tensor: before, each value has a tensor of its own, and can be made again, moved or cut. Copies
// stay of what a second backward pass reads again, and of what is stored narrow.
//
// Invariant: no bit changes: whether on a copy or not, the operator is the same.
// Source of the idea: copy insertion and elision in XLA; Chaitin et al. 1981, "Register Allocation via Coloring" (coalescing).

import { copyTensor } from '../kernels/copy-tensor.ts';
import { at } from '../util/at.ts';
import { holderOf, type Instruction, type Program, type Tensor, type TensorInstruction, touchedBy } from './program.ts';

/** The program without the copies that nothing needs; itself where there are none. */
export function withoutCopies(program: Program): Program {
  const { instructions, outputs } = program;
  const uses = new LastUses();
  instructions.forEach((instruction, i) => {
    for (const tensor of activationsIn(instruction)) uses.add(tensor, i);
  });
  for (const tensor of outputs) uses.add(tensor, instructions.length);
  const renamed = new Renamed();
  const kept = instructions.flatMap((instruction, i): Instruction[] => {
    const copied = copiedBy(instruction);
    if (!copied || uses.of(copied.x) > i) return [renamed.in(instruction)];
    renamed.add(copied.y, copied.x);
    return [];
  });
  if (kept.length === instructions.length) return program;
  return { ...program, instructions: kept, outputs: outputs.map((tensor) => renamed.of(tensor)) };
}

/** The tensors of a copy of an activation, or of a part of one, to one that lies as it does. */
function copiedBy(instruction: Instruction): { readonly x: Tensor; readonly y: Tensor } | undefined {
  if (instruction.op !== 'dispatch' || instruction.kernel !== copyTensor) return undefined;
  const { x, y } = instruction.operands;
  const lieAlike = x?.role === 'activation' && y?.role === 'activation' && x.stored === y.stored;
  return lieAlike && !y.partOf ? { x, y } : undefined;
}

function activationsIn(instruction: Instruction): readonly Tensor[] {
  if (instruction.op !== 'dispatch') return touchedBy(instruction).map(({ tensor }) => tensor);
  return Object.values(instruction.operands).filter(({ role }) => role === 'activation');
}

/** The elements of a tensor's memory that a part of it has. */
const rangeOf = ({ partOf, size }: Tensor) => ({ from: partOf?.offset ?? 0, to: (partOf?.offset ?? 0) + size });

/** Where in a program each part of each tensor's memory is last used. */
class LastUses {
  readonly #uses = new Map<Tensor, { readonly from: number; readonly to: number; last: number }[]>();

  /** In ascending order. */
  add(tensor: Tensor, last: number): void {
    const { from, to } = rangeOf(tensor);
    const all = this.#uses.get(holderOf(tensor)) ?? [];
    this.#uses.set(holderOf(tensor), all);
    const known = all.find((use) => use.from === from && use.to === to);
    if (known) known.last = last;
    else all.push({ from, to, last });
  }

  of(tensor: Tensor): number {
    const { from, to } = rangeOf(tensor);
    const all = this.#uses.get(holderOf(tensor)) ?? [];
    return all.reduce((most, use) => (use.from < to && from < use.to ? Math.max(most, use.last) : most), -1);
  }
}

/** What was made of each instruction last: programs that differ in their activations share most of them. */
const known = new WeakMap<TensorInstruction, TensorInstruction>();

/** Which tensor stands for which. */
class Renamed {
  readonly #tensors = new Map<Tensor, Tensor>();

  /** `tensor` stands for a copy from here on. */
  add(copy: Tensor, tensor: Tensor): void {
    this.#tensors.set(copy, this.of(tensor));
  }

  of(tensor: Tensor): Tensor {
    const found = this.#tensors.get(tensor);
    const { partOf } = tensor;
    if (found || !partOf) return found ?? tensor;
    const holder = this.#tensors.get(partOf.tensor);
    if (!holder) return tensor;
    const part = { ...tensor, partOf: { ...partOf, tensor: holder } };
    this.#tensors.set(tensor, part);
    return part;
  }

  /** The instruction on what stands for its tensors; itself where these are all its own. */
  in(instruction: Instruction): Instruction {
    if (instruction.op === 'dispatch') return this.#inDispatch(instruction);
    let found = instruction;
    if ('tensor' in found) {
      const tensor = this.of(found.tensor);
      if (tensor !== found.tensor) found = { ...found, tensor };
    }
    if ('own' in found) {
      const own = this.of(found.own);
      if (own !== found.own) found = { ...found, own };
    }
    return found;
  }

  #inDispatch(instruction: TensorInstruction): TensorInstruction {
    const names = Object.keys(instruction.operands);
    const tensors = Object.values(instruction.operands).map((tensor) => this.of(tensor));
    const isOn = ({ operands }: TensorInstruction) => names.every((name, i) => operands[name] === at(tensors, i));
    if (isOn(instruction)) return instruction;
    const before = known.get(instruction);
    if (before && isOn(before)) return before;
    const operands = Object.fromEntries(names.map((name, i) => [name, at(tensors, i)]));
    const made = { ...instruction, operands };
    known.set(instruction, made);
    return made;
  }
}
