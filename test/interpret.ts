// Programs on plain arrays: executes any program in float64 with the kernels' own references. An oracle for the traced backward pass that no GPU has a part in.
//
// Invariant: what an instruction did not write is NaN, so that reading it shows in the result.

import type { Batch } from '../src/data/batches.ts';
import type { Instruction, Program, Stash, Tensor } from '../src/graph/program.ts';
import type { Arrays } from '../src/kernels/kernel.ts';
import { isNarrowing } from '../src/kernels/narrow.ts';
import type { Model } from '../src/nn/model.ts';
import type { StepPrograms } from '../src/train/step/step-programs.ts';
import { at } from '../src/util/at.ts';
import { CODECS } from '../src/values/stored-elements.ts';
import { field } from './entry.ts';

/** The memory of a program: a Float64Array for each tensor, NaN until written where it is no constant. */
export class Memory {
  readonly #values = new Map<Tensor, Float64Array>();
  readonly #below = new Map<Stash, Float64Array>();

  of(tensor: Tensor): Float64Array {
    if (tensor.partOf) return this.of(tensor.partOf.tensor).subarray(tensor.partOf.offset).subarray(0, tensor.size);
    const values = this.#values.get(tensor) ?? startOf(tensor);
    this.#values.set(tensor, values);
    return values;
  }

  set(tensor: Tensor, values: ArrayLike<number>): void {
    this.of(tensor).set(values);
  }

  /** What the trainer writes before a micro-batch: tokens, their index, position 0, the loss's scale, a key of dropout. */
  setInputs(model: Model, { inputs, scalars, dropoutKey }: StepPrograms, batch: Batch, lossScale: number): void {
    for (const [tensor, values] of inputs.values(batch)) this.set(tensor, values);
    if (model.shape.vocabulary > 0) this.set(inputs.tokens('ids').position, [0]);
    this.set(scalars.lossScale, [lossScale]);
    if (dropoutKey) this.set(dropoutKey, [3, 5]);
  }

  /** Executes a program of one rank, what goes chunk by chunk apart. */
  run(program: Program): void {
    runTogether([{ memory: this, program }]);
  }

  /** Forgets activations, as arenas are used again. */
  begin(): void {
    for (const tensor of [...this.#values.keys()]) if (tensor.role === 'activation') this.#values.delete(tensor);
    this.#below.clear();
  }

  /** Executes one instruction of one rank. */
  execute(instruction: Instruction): void {
    const below = this.#below;
    if (instruction.op === 'offload') {
      const values = this.of(instruction.tensor);
      below.set(instruction.stash, values.slice());
      values.fill(NaN);
    } else if (instruction.op === 'fetch') {
      this.of(instruction.tensor).set(below.get(instruction.stash) ?? []);
      below.delete(instruction.stash);
    }
    if (instruction.op !== 'dispatch') return;
    const { kernel, problem, operands } = instruction;
    if (isNarrowing(kernel)) {
      // Kernels' references read what is kept narrow as the floats that it stands for.
      const [x, y] = [this.of(field(operands, 'x')), field(operands, 'y')];
      const { widen, narrow } = CODECS[y.stored ?? 'bf16'];
      this.of(y).set(widen(narrow(Float32Array.from(x)), y.size));
      return;
    }
    const arrays: Arrays = {};
    for (const [name, { access, size }] of Object.entries(kernel.operands(problem))) {
      // Views of exactly the operand's size: a reference that touches more changes nothing beyond it.
      const view = this.of(field(operands, name)).subarray(0, size);
      if (access === 'write') view.fill(NaN);
      arrays[name] = view;
    }
    kernel.reference(problem, arrays);
  }
}

const startOf = ({ constant, size }: Tensor): Float64Array =>
  constant ? Float64Array.from(constant()) : new Float64Array(size).fill(NaN);

/** Executes the programs of ranks side by side, instruction by instruction; what they add up is the same on all of them. */
export function runTogether(ranks: readonly { readonly memory: Memory; readonly program: Program }[]): void {
  for (const { memory } of ranks) memory.begin();
  const length = Math.max(...ranks.map(({ program }) => program.instructions.length));
  for (let moment = 0; moment < length; moment++) {
    const here = ranks.map(({ memory, program }) => ({ memory, instruction: at(program.instructions, moment) }));
    for (const { memory, instruction } of here) memory.execute(instruction);
    const sums = here.flatMap(({ memory, instruction }) =>
      instruction.op === 'all-reduce' ? [{ ...instruction, values: memory.of(instruction.tensor) }] : [],
    );
    exchangeRows(here);
    const [first] = sums;
    if (!first) continue;
    if (sums.length !== ranks.length || first.ranks !== ranks.length)
      throw new Error(`${first.label}: not of all ranks`);
    for (const { offset, size } of first.ranges) {
      for (let i = offset; i < offset + size; i++) {
        const sum = sums.reduce((total, { values }) => total + at(values, i), 0);
        for (const { values } of sums) values[i] = sum;
      }
    }
  }
}

/** Where each rank has some rows of a tensor. */
function exchangeRows(here: readonly { readonly memory: Memory; readonly instruction: Instruction }[]): void {
  const parts = here.flatMap(({ memory, instruction }) =>
    instruction.op === 'scatter-rows' || instruction.op === 'gather-rows'
      ? [{ ...instruction, all: memory.of(instruction.tensor), rows: memory.of(instruction.own) }]
      : [],
  );
  const [first] = parts;
  if (!first) return;
  if (parts.length !== here.length || first.ranks !== here.length) throw new Error(`${first.label}: not of all ranks`);
  for (const [rank, { op, rows }] of parts.entries()) {
    const begin = rank * rows.length;
    if (op === 'scatter-rows') {
      for (const i of rows.keys()) rows[i] = parts.reduce((sum, { all }) => sum + at(all, begin + i), 0);
    } else for (const { all } of parts) all.set(rows, begin);
  }
}
