// The tracer: model code runs once on symbolic tensors and leaves a Program, a flat list of instructions.
// Each operator records a gradient rule as it is traced; `backward` walks the rules in reverse and appends
// what they emit. A Program is plain data: it holds no buffer, no device and no values.

import { fill } from '../kernels/add.ts';
import type { ElementType, Kernel } from '../kernels/kernel.ts';
import { assert } from '../util/errors.ts';

/**
 * parameter, gradient, moment: model data, in chunks. persistent: lives as long as the program's owner
 * (inputs, optimizer scalars, tables, caches). activation: lives between two instructions, placed by liveness.
 */
export type Role = 'parameter' | 'gradient' | 'persistent' | 'activation';

export interface Tensor {
  readonly name: string;
  readonly shape: readonly number[];
  readonly size: number;
  readonly type: ElementType;
  readonly role: Role;
  /** Whether the backward pass must compute its gradient. */
  readonly wantsGradient: boolean;
  /** Set on the output of a fused GELU: the tensor that it was applied to. */
  readonly geluOf?: Tensor;
}

/** One dispatch: a kernel, its problem, and a tensor for each operand. */
export interface Instruction {
  // biome-ignore lint/suspicious/noExplicitAny: a list of kernels of different problems
  readonly kernel: Kernel<any>;
  readonly problem: object;
  readonly operands: Readonly<Record<string, Tensor>>;
  /** The parameter or operator that it serves: for timings, traces and errors. */
  readonly label: string;
}

export interface Program {
  readonly name: string;
  readonly instructions: readonly Instruction[];
  /** Activations that must still hold their values when the program has run. */
  readonly outputs: readonly Tensor[];
}

export function makeTensor(
  name: string,
  shape: readonly number[],
  role: Role,
  type: ElementType = 'f32',
  wantsGradient = false,
): Tensor {
  return { name, shape, size: shape.reduce((a, b) => a * b, 1), type, role, wantsGradient };
}

type GradientRule = (dy: Tensor) => void;

export class Graph {
  readonly name: string;
  readonly #instructions: Instruction[] = [];
  readonly #tape: { output: Tensor | undefined; rule: GradientRule }[] = [];
  readonly #gradients = new Map<Tensor, Tensor>();
  readonly #uses = new Map<Tensor, number>();
  readonly #accumulate: boolean;
  readonly #gradientOf: (parameter: Tensor) => Tensor;

  /**
   * `gradientOf` maps a parameter to its gradient tensor. With `accumulate`, gradients of parameters add to
   * what is there (every micro-batch after a step's first).
   */
  constructor(name: string, options: { gradientOf?: (parameter: Tensor) => Tensor; accumulate?: boolean } = {}) {
    this.name = name;
    this.#accumulate = options.accumulate ?? false;
    this.#gradientOf =
      options.gradientOf ??
      ((parameter) => {
        throw new Error(`internal: program ${name} computes no gradients, but ${parameter.name} wants one`);
      });
  }

  /** The finished list. */
  program(outputs: readonly Tensor[] = []): Program {
    return { name: this.name, instructions: this.#instructions, outputs };
  }

  /** A new tensor that an instruction will write. `from`: it wants a gradient if one of these does. */
  activation(name: string, shape: readonly number[], from: readonly Tensor[] = [], type: ElementType = 'f32'): Tensor {
    return makeTensor(
      name,
      shape,
      'activation',
      type,
      from.some((tensor) => tensor.wantsGradient),
    );
  }

  /** Reads of a tensor by the instructions so far: after the forward pass, its number of consumers. */
  uses(tensor: Tensor): number {
    return this.#uses.get(tensor) ?? 0;
  }

  /** Appends one dispatch. */
  emit<P extends object>(kernel: Kernel<P>, problem: P, operands: Record<string, Tensor>, label: string): void {
    for (const [name, operand] of Object.entries(kernel.operands(problem))) {
      const tensor = operands[name];
      assert(tensor, `${label}: ${kernel.name} got no ${name}`);
      assert(
        tensor.type === operand.type,
        `${label}: ${kernel.name}.${name} wants ${operand.type}, got ${tensor.type}`,
      );
      if (operand.access !== 'write') this.#uses.set(tensor, this.uses(tensor) + 1);
      assert(
        tensor.size >= operand.size,
        `${label}: ${kernel.name}.${name} touches ${operand.size} elements, ${tensor.name} has ${tensor.size}`,
      );
    }
    this.#instructions.push({ kernel, problem, operands, label });
  }

  /** Records how the gradient of `output` flows on; kept only if it wants one. */
  onBackward(output: Tensor, rule: GradientRule): void {
    if (output.wantsGradient) this.#tape.push({ output, rule });
  }

  /** Records an end of the graph, whose rule needs no incoming gradient: a loss. */
  onBackwardOfLoss(rule: () => void): void {
    this.#tape.push({ output: undefined, rule });
  }

  /** The gradient tensor to write for `tensor`, and whether it already holds a part of the sum. */
  gradientTarget(tensor: Tensor): { gradient: Tensor; accumulate: boolean } {
    assert(tensor.wantsGradient, `${tensor.name} wants no gradient`);
    const known = this.#gradients.get(tensor);
    if (known) return { gradient: known, accumulate: true };
    const isParameter = tensor.role === 'parameter';
    const gradient = isParameter
      ? this.#gradientOf(tensor)
      : makeTensor(`d ${tensor.name}`, tensor.shape, 'activation');
    this.#gradients.set(tensor, gradient);
    return { gradient, accumulate: isParameter && this.#accumulate };
  }

  /**
   * Hands the gradient of an operator's output on as the gradient of its input, without a copy. Only the
   * last use in a rule may do so: whoever adds to it later does so in place.
   */
  handOn(tensor: Tensor, dy: Tensor): boolean {
    if (!tensor.wantsGradient || this.#gradients.has(tensor)) return false;
    this.#gradients.set(tensor, dy);
    return true;
  }

  /** Appends the backward pass. Parameters that nothing reached get a zero gradient. */
  backward(parameters: readonly Tensor[]): void {
    for (const { output, rule } of this.#tape.toReversed()) {
      if (output === undefined) (rule as () => void)();
      else {
        const dy = this.#gradients.get(output);
        if (dy) rule(dy);
      }
    }
    for (const parameter of parameters) {
      if (!parameter.wantsGradient || this.#gradients.has(parameter) || this.#accumulate) continue;
      this.emit(fill, { size: parameter.size, value: 0 }, { y: this.#gradientOf(parameter) }, parameter.name);
    }
  }
}

/** The program, one instruction a line: `12 matmul h.0.attn.c_attn a=ln_1 (8,64,128) ...`. */
export function printProgram(program: Program): string {
  return program.instructions
    .map(({ kernel, operands, label }, i) => {
      const list = Object.entries(operands).map(([name, t]) => `${name}=${t.name}(${t.shape.join(',')})`);
      return `${String(i).padStart(4)} ${kernel.name} ${label}: ${list.join(' ')}`;
    })
    .join('\n');
}
