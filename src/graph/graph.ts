// `Graph`: the tracer: model code runs once on symbolic tensors and leaves a Program. Each operator records a gradient
// rule as it is traced; `backward` walks the rules in reverse and appends what they emit.

import { fill } from '../kernels/add.ts';
import { operandList } from '../kernels/by-problem.ts';
import type { ElementType, Kernel } from '../kernels/kernel.ts';
import { assert } from '../util/errors.ts';
import {
  type AllGatherInstruction,
  type ChunkEffects,
  type ChunkExtent,
  type ChunkInstruction,
  type ElementRange,
  type HostInstruction,
  type Instruction,
  makeTensor,
  type Phase,
  type Program,
  type RowsInstruction,
  type Tensor,
} from './program.ts';

/** A low-rank update of a weight (Hu et al. 2021): y = x W + scale (drop(x) A^T) B^T. */
export interface Adapter {
  /** A (r, in) and B (out, r). */
  readonly a: Tensor;
  readonly b: Tensor;
  readonly scale: number;
  /** Of x, on its way to A. @default none */
  readonly dropout?: Dropout | undefined;
}

export interface Dropout {
  readonly rate: number;
  /** Tells it from others with the same key. */
  readonly stream: number;
  /** (2) u32: the randomness of a micro-batch. */
  readonly key: Tensor;
}

/** Ranks that share layers, and between these the rows of what is (B, T, C). */
export interface SharedRows {
  readonly ranks: number;
  readonly rank: number;
  readonly batch: number;
  readonly seq: number;
}

/** The state of a trace at the borders of layers that ranks share. Changed by operators/tensor-parallel.ts alone. */
export interface SharedBorders {
  /** What weights of which each rank has columns read in place of a tensor. */
  readonly inputs: Map<Tensor, Tensor>;
  /** This rank's rows of what was gathered last and no sum has ended yet. */
  open: Tensor | undefined;
}

type GradientRule = (dy: Tensor) => void;

export class Graph {
  readonly name: string;
  /** @default every rank has all rows */
  readonly rows: SharedRows | undefined;
  readonly borders: SharedBorders = { inputs: new Map(), open: undefined };
  readonly #instructions: Instruction[] = [];
  readonly #tape: { output: Tensor | undefined; layer: string | undefined; rule: GradientRule }[] = [];
  readonly #gradients = new Map<Tensor, Tensor>();
  readonly #uses = new Map<Tensor, number>();
  readonly #adapters = new Map<Tensor, Adapter>();
  readonly #standIns = new Map<Tensor, Tensor>();
  /** By their text: equal problems are one object. */
  readonly #problems = new Map<string, object>();
  readonly #accumulate: boolean;
  readonly #gradientOf: (parameter: Tensor) => Tensor;
  #phase: Phase;
  #block: string | undefined;
  #layer: string | undefined;

  /**
   * `gradientOf` maps a parameter to its gradient tensor. With `accumulate`, gradients of parameters add to
   * what is there (every micro-batch after a step's first). `phase`: of what is emitted, until `backward`.
   */
  constructor(
    name: string,
    options: {
      gradientOf?: (parameter: Tensor) => Tensor;
      accumulate?: boolean;
      phase?: Phase;
      rows?: SharedRows | undefined;
    } = {},
  ) {
    this.name = name;
    this.rows = options.rows;
    this.#phase = options.phase ?? 'forward';
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

  /**
   * A new tensor that an instruction will write. `from`: it requires a gradient if one of these does, and is split where an
   * activation among them is.
   */
  activation(name: string, shape: readonly number[], from: readonly Tensor[] = [], type: ElementType = 'f32'): Tensor {
    const wantsGradient = from.some((tensor) => tensor.wantsGradient);
    const split = from.find((tensor) => tensor.role === 'activation' && tensor.split)?.split;
    return { ...makeTensor(name, shape, 'activation', type, wantsGradient), ...(split && { split }) };
  }

  /** From now on linear layers with this weight take its low-rank update. */
  adapt(weight: Tensor, adapter: Adapter): void {
    assert(!this.#adapters.has(weight), `${weight.name} is adapted already`);
    this.#adapters.set(weight, adapter);
  }

  /** What linear layers with this weight add. */
  adapterOf(weight: Tensor): Adapter | undefined {
    return this.#adapters.get(weight);
  }

  /** Reads of a tensor by the instructions so far: after the forward pass, its number of consumers. */
  uses(tensor: Tensor): number {
    return this.#uses.get(tensor) ?? 0;
  }

  /** Appends one dispatch. */
  emit<P extends object>(kernel: Kernel<P>, posed: P, given: Record<string, Tensor>, label: string): void {
    const problem = this.#known(posed);
    const operands: Record<string, Tensor> = {};
    for (const [name, tensor] of Object.entries(given)) operands[name] = this.#standIns.get(tensor) ?? tensor;
    for (const [name, operand] of operandList(kernel, problem)) {
      const tensor = operands[name];
      assert(tensor, `${label}: ${kernel.name} got no ${name}`);
      assert(
        tensor.type === operand.type,
        `${label}: ${kernel.name}.${name} wants ${operand.type}, got ${tensor.type}`,
      );
      const used = given[name] ?? tensor;
      if (operand.access !== 'write') this.#uses.set(used, this.uses(used) + 1);
      assert(
        tensor.size >= operand.size,
        `${label}: ${kernel.name}.${name} touches ${operand.size} elements, ${tensor.name} has ${tensor.size}`,
      );
    }
    const phase = this.#phase;
    const block = this.#block === undefined ? {} : { block: this.#block };
    const layer = this.#layer === undefined ? {} : { layer: this.#layer };
    this.#instructions.push({ op: 'dispatch', kernel, problem, operands, label, phase, ...block, ...layer });
  }

  #known(problem: object): object {
    const text = JSON.stringify(problem);
    const known = this.#problems.get(text) ?? problem;
    this.#problems.set(text, known);
    return known;
  }

  /** What `trace` emits is the forward pass of a block: what it keeps for the backward pass can be made again from its input. */
  block<T>(name: string, trace: () => T): T {
    assert(this.#block === undefined, `block ${name} begins inside ${this.#block}`);
    this.#block = name;
    try {
      return this.layer(name, trace);
    } finally {
      this.#block = undefined;
    }
  }

  /** What `trace` emits uses these parameters, and its gradient rules do: micro-batches may pass it one after the other. */
  layer<T>(name: string, trace: () => T): T {
    const outer = this.#layer;
    this.#layer = name;
    try {
      return trace();
    } finally {
      this.#layer = outer;
    }
  }

  /** Appends one dispatch a chunk index. See `ChunkInstruction`. */
  emitEachChunk<P extends object>(
    kernel: Kernel<P>,
    problemOf: (extent: ChunkExtent) => P,
    operands: ChunkInstruction['operands'],
    label: string,
    { eager = false, completes = [], frees = [], updates = false }: Partial<ChunkEffects>,
  ): void {
    const op = 'dispatch each chunk';
    const phase = this.#phase;
    const effects = { eager, completes, frees, ...(updates && { updates }) };
    this.#instructions.push({ op, kernel, problemOf, operands, label, phase, ...effects });
  }

  /** Appends a sum over ranks, in place. `ranges`: of what alone. @default all of it */
  emitAllReduce(tensor: Tensor, ranks: number, label: string, ranges?: readonly ElementRange[]): void {
    assert(tensor.type === 'f32' && tensor.split === undefined, `${label}: ${tensor.name} is no partial sum`);
    const phase = this.#phase;
    const block = this.#block === undefined ? {} : { block: this.#block };
    const layer = this.#layer === undefined ? {} : { layer: this.#layer };
    const all = ranges ?? [{ offset: 0, size: tensor.size }];
    this.#instructions.push({ op: 'all-reduce', tensor, ranks, ranges: all, label, phase, ...block, ...layer });
  }

  /** Appends what is between all rows of a tensor and those that each rank has. See `RowsInstruction`. */
  emitRows(op: RowsInstruction['op'], tensor: Tensor, own: Tensor, ranks: number, label: string): void {
    assert(own.size * ranks === tensor.size, `${label}: ${own.name} is one of ${ranks} equal parts of ${tensor.name}`);
    const phase = this.#phase;
    const block = this.#block === undefined ? {} : { block: this.#block };
    const layer = this.#layer === undefined ? {} : { layer: this.#layer };
    this.#instructions.push({ op, tensor, own, ranks, label, phase, ...block, ...layer });
  }

  /** From now on what reads a tensor reads the one that stands for it. */
  standIn(tensor: Tensor): void {
    if (tensor.standsFor) this.#standIns.set(tensor.standsFor, tensor);
  }

  /** What is read as this tensor, and has a gradient of its own. */
  alias(tensor: Tensor): Tensor {
    const { activationOf: _, ...alias } = tensor;
    this.#standIns.set(alias, tensor);
    return alias;
  }

  /** Appends what brings all parts of a tensor to all stages. See `AllGatherInstruction`. */
  emitAllGather(tensor: Tensor, parts: AllGatherInstruction['parts'], label: string): void {
    this.#instructions.push({ op: 'all-gather', tensor, parts, label, phase: this.#phase });
  }

  /** Appends the optimizer on the host. See `HostInstruction`. */
  emitOnHost(label: string, instruction: Omit<HostInstruction, 'op' | 'label' | 'phase'>): void {
    this.#instructions.push({ op: 'host each chunk', label, phase: this.#phase, ...instruction });
  }

  /** Records how the gradient of `output` flows on; kept only if it requires one. */
  onBackward(output: Tensor, rule: GradientRule): void {
    if (output.wantsGradient) this.#tape.push({ output, layer: this.#layer, rule });
  }

  /** Records an end of the graph, whose rule needs no incoming gradient: a loss. */
  onBackwardOfLoss(rule: () => void): void {
    this.#tape.push({ output: undefined, layer: this.#layer, rule });
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
   * last use in a rule may do so: a later addition to it is done in place. A parameter's gradient has a place of its own, which
   * the optimizer reads: it is written there.
   */
  aliasGradient(tensor: Tensor, dy: Tensor): boolean {
    if (!tensor.wantsGradient || tensor.role === 'parameter' || this.#gradients.has(tensor)) return false;
    this.#gradients.set(tensor, dy);
    return true;
  }

  /** Appends the backward pass. Parameters that nothing reached get a zero gradient. */
  backward(parameters: readonly Tensor[]): void {
    this.#phase = 'backward';
    for (const { output, layer, rule } of this.#tape.toReversed()) {
      this.#layer = layer;
      if (output === undefined) (rule as () => void)();
      else {
        const dy = this.#gradients.get(output);
        if (dy) rule(dy);
      }
    }
    this.#layer = undefined;
    for (const parameter of parameters) {
      if (!parameter.wantsGradient || this.#gradients.has(parameter) || this.#accumulate) continue;
      this.emit(fill, { size: parameter.size, value: 0 }, { y: this.#gradientOf(parameter) }, parameter.name);
    }
  }
}
