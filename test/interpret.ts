// Programs on plain arrays: executes any program in float64 with the kernels' own references. An oracle for the traced backward pass that no GPU has a part in.
//
// Invariant: what an instruction did not write is NaN, so that reading it shows in the result.

import type { Batch } from '../src/data/batches.ts';
import type { Program, Stash, Tensor } from '../src/graph/graph.ts';
import type { Arrays } from '../src/kernels/kernel.ts';
import type { Model } from '../src/nn/model.ts';
import type { StepPrograms } from '../src/train/step-programs.ts';
import { field } from './entry.ts';

/** The memory of a program: a Float64Array for each tensor, NaN until written. */
export class Memory {
  readonly #values = new Map<Tensor, Float64Array>();

  of(tensor: Tensor): Float64Array {
    const values = this.#values.get(tensor) ?? new Float64Array(tensor.size).fill(NaN);
    this.#values.set(tensor, values);
    return values;
  }

  set(tensor: Tensor, values: ArrayLike<number>): void {
    this.of(tensor).set(values);
  }

  /** What the trainer writes before a micro-batch: tokens, their index, position 0, the loss's scale. */
  setInputs(model: Model, { inputs, scalars }: StepPrograms, batch: Batch, lossScale: number): void {
    for (const [tensor, values] of inputs.values(batch)) this.set(tensor, values);
    if (model.shape.vocabulary > 0) this.set(inputs.tokens('ids').position, [0]);
    this.set(scalars.lossScale, [lossScale]);
    for (const { tensor, values } of model.constants) this.set(tensor, values());
  }

  /** Executes a program, what goes chunk by chunk apart. Activations of earlier programs are forgotten, as arenas are used again. */
  run(program: Program): void {
    for (const tensor of [...this.#values.keys()]) if (tensor.role === 'activation') this.#values.delete(tensor);
    const below = new Map<Stash, Float64Array>();
    for (const instruction of program.instructions) {
      if (instruction.op === 'offload') {
        const values = this.of(instruction.tensor);
        below.set(instruction.stash, values.slice());
        values.fill(NaN);
      } else if (instruction.op === 'fetch') {
        this.of(instruction.tensor).set(below.get(instruction.stash) ?? []);
        below.delete(instruction.stash);
      }
      if (instruction.op !== 'dispatch') continue;
      const { kernel, problem, operands } = instruction;
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
}
