// `ByProblem`: what is worked out of a kernel's problem, each once. Equal problems of a program are one object (graph/graph.ts),
// so that all blocks of a model share it.

import type { Kernel, Operand } from './kernel.ts';

// biome-ignore lint/suspicious/noExplicitAny: kernels of different problems
type AnyKernel = Kernel<any>;

export class ByProblem<T> {
  readonly #make: (kernel: AnyKernel, problem: object) => T;
  readonly #known = new WeakMap<object, Map<AnyKernel, T>>();

  constructor(make: (kernel: AnyKernel, problem: object) => T) {
    this.#make = make;
  }

  of(kernel: AnyKernel, problem: object): T {
    let known = this.#known.get(problem);
    if (!known) {
      known = new Map();
      this.#known.set(problem, known);
    }
    let found = known.get(kernel);
    if (found === undefined) {
      found = this.#make(kernel, problem);
      known.set(kernel, found);
    }
    return found;
  }
}

/** An operand, and the name that it has in its kernel. */
type NamedOperand = readonly [name: string, operand: Operand];

const lists = new ByProblem((kernel, problem): readonly NamedOperand[] => Object.entries(kernel.operands(problem)));

/** The operands of a problem as a list, in the kernel's order. */
export const operandList = (kernel: AnyKernel, problem: object): readonly NamedOperand[] => lists.of(kernel, problem);
