// The tracer: model code runs once on symbolic tensors and leaves a Program, a flat list of tagged instructions.
// Each operator records a gradient rule as it is traced; `backward` walks the rules in reverse and appends
// what they emit. A Program is plain data: it holds no buffer, no device and no values.

import { fill } from '../kernels/add.ts';
import type { GeluForm } from '../kernels/gelu.ts';
import { type Access, ELEMENT_TYPES, type ElementType, type Kernel } from '../kernels/kernel.ts';
import { storedBytes } from '../kernels/stored.ts';
import type { Kind } from '../memory/layout/kinds.ts';
import { assert } from '../util/errors.ts';
import type { AllGatherInstruction, ExchangeInstruction } from './exchanges.ts';

/**
 * parameter, gradient: model data, in chunks. persistent: lives as long as the program's owner
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
  /** Set on the output of a fused GELU: the tensor that it was applied to, and by which form. */
  readonly geluOf?: { readonly tensor: Tensor; readonly form: GeluForm };
  /** Set on what the backward pass has in place of an activation that did not stay: that activation. */
  readonly standsFor?: Tensor;
  /** How its elements lie, where it is an activation that is kept narrow. @default as `type` says */
  readonly stored?: 'bf16' | undefined;
  /** Set where each of several ranks has a part of it. @default all of them have the same */
  readonly split?: TensorSplit | undefined;
}

/**
 * How ranks share a layer (Shoeybi et al. 2019). A weight `columns`: each has so many of its outputs; `rows`: so many of
 * its inputs. An activation has only the former.
 */
export interface TensorSplit {
  readonly by: 'columns' | 'rows';
  readonly ranks: number;
  /** Of them, the one whose part it is. */
  readonly rank: number;
}

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

/** The part of a step that an instruction belongs to. */
export type Phase = 'forward' | 'backward' | 'update';

/** What every instruction has, whatever its tag says of how it runs. */
export interface Common {
  /** The parameter or operator that it serves: for timings, traces and errors. */
  readonly label: string;
  readonly phase: Phase;
  /** The model's block whose forward pass it is a part of; absent outside of blocks, and for everything else. */
  readonly block?: string;
  /** The part of the model whose parameters it uses, in either pass: a block, or a tile of the head; absent elsewhere. */
  readonly layer?: string;
  /** Neighbours that share one are the same instruction of several micro-batches: on tiled parameters they go tile by tile. */
  readonly across?: object;
}

/** A kernel on whole tensors: its problem, and a tensor for each operand. */
export interface TensorInstruction extends Common {
  readonly op: 'dispatch';
  // biome-ignore lint/suspicious/noExplicitAny: a list of kernels of different problems
  readonly kernel: Kernel<any>;
  readonly problem: object;
  readonly operands: Readonly<Record<string, Tensor>>;
  /** Whether it makes an activation again that was there before. */
  readonly again?: boolean;
  /** What it differs from in its tensors alone, those in chunks left out. */
  readonly copyOf?: TensorInstruction;
}

/** The part of a chunk that holds data. */
export interface ChunkExtent {
  /** Elements. */
  readonly size: number;
  /** Blocks of BLOCK_ELEMENTS in the chunks before it, over all that train. */
  readonly firstBlock: number;
}

/**
 * Where what is done to the chunks of an index runs: in its place in the list (`false`), or earlier, right behind the last of
 * what comes before it that writes one of these chunks (`written`), or that uses one at all (`unused`).
 */
export type Eager = false | 'written' | 'unused';

/** A kernel on model data as it lies, once a chunk index of what trains: the chunks of its kinds side by side. */
export interface ChunkInstruction extends Common {
  readonly op: 'dispatch each chunk';
  // biome-ignore lint/suspicious/noExplicitAny: a list of kernels of different problems
  readonly kernel: Kernel<any>;
  problemOf(extent: ChunkExtent): object;
  /** A kind stands for its chunk of the index. */
  readonly operands: Readonly<Record<string, Tensor | { readonly kind: Kind }>>;
  readonly eager: Eager;
  /** Kinds whose chunk of the index has its value of this step behind it. */
  readonly completes: readonly Kind[];
  /** Kinds whose chunk of the index holds no value any more behind it. */
  readonly frees: readonly Kind[];
}

/** Work on the host over chunks below the GPU, once an index of what trains: AdamW, as the optimizer on the GPU has it. */
export interface HostInstruction extends Common {
  readonly op: 'host each chunk';
  /** The scalars of the step, and which blocks decay: their values are brought from the GPU, or known already. */
  readonly operands: Readonly<Record<'hyper' | 'state' | 'decayMask', Tensor>>;
  readonly eager: Eager;
  readonly completes: readonly Kind[];
  readonly frees: readonly Kind[];
}

/** What lies below the GPU of an activation that was moved there. */
export interface Stash {
  readonly name: string;
  readonly bytes: number;
}

/**
 * `offload`: the bytes of an activation are copied below the GPU, where they stay until they are fetched. `fetch`: they are
 * copied to `tensor`, and are below no more, unless it `keeps` them for another.
 */
export interface TransferInstruction extends Common {
  readonly op: 'offload' | 'fetch';
  readonly tensor: Tensor;
  readonly stash: Stash;
  readonly keeps?: boolean;
}

/** Elements of a tensor, from one on. */
export interface ElementRange {
  readonly offset: number;
  readonly size: number;
}

/** What each of so many ranks has of a tensor becomes the sum over them, on all of them, in place. */
export interface AllReduceInstruction extends Common {
  readonly op: 'all-reduce';
  readonly tensor: Tensor;
  readonly ranks: number;
  /** What of it is summed; the rest stays. */
  readonly ranges: readonly ElementRange[];
}

export type Instruction =
  | TensorInstruction
  | ChunkInstruction
  | HostInstruction
  | TransferInstruction
  | AllReduceInstruction
  | ExchangeInstruction;

/** An activation that an instruction touches: `write` replaces its value, `update` changes a part of it. */
export interface Touch {
  readonly tensor: Tensor;
  readonly access: Access;
}

const touches = new WeakMap<Instruction, readonly Touch[]>();

/** The activations that an instruction touches, in the order of its operands. Those on chunks touch none. */
export function touchedBy(instruction: Instruction): readonly Touch[] {
  // Planning asks again and again: programs that differ in their activations share most instructions.
  const known = touches.get(instruction) ?? findTouches(instruction);
  touches.set(instruction, known);
  return known;
}

function findTouches(instruction: Instruction): Touch[] {
  switch (instruction.op) {
    case 'dispatch': {
      const { kernel, problem, operands } = instruction;
      return Object.entries(kernel.operands(problem)).flatMap(([name, { access }]) => {
        const tensor = operands[name];
        return tensor?.role === 'activation' ? [{ tensor, access }] : [];
      });
    }
    case 'dispatch each chunk':
    case 'host each chunk':
    case 'tie':
      return [];
    case 'offload':
    case 'send':
      return [{ tensor: instruction.tensor, access: 'read' }];
    case 'fetch':
    case 'receive':
      return [{ tensor: instruction.tensor, access: 'write' }];
    case 'all-reduce':
    case 'all-gather':
      return instruction.tensor.role === 'activation' ? [{ tensor: instruction.tensor, access: 'update' }] : [];
    default:
      return instruction satisfies never;
  }
}

export interface Program {
  readonly name: string;
  readonly instructions: readonly Instruction[];
  /** Activations that must still hold their values when the program has run. */
  readonly outputs: readonly Tensor[];
}

/** The instructions of a program that work on whole tensors. */
export const onTensors = ({ instructions }: Program): TensorInstruction[] =>
  instructions.filter((instruction) => instruction.op === 'dispatch');

export function makeTensor(
  name: string,
  shape: readonly number[],
  role: Role,
  type: ElementType = 'f32',
  wantsGradient = false,
): Tensor {
  return { name, shape, size: shape.reduce((a, b) => a * b, 1), type, role, wantsGradient };
}

export const bytesOf = ({ size, type, stored }: Tensor): number =>
  stored ? storedBytes(stored, size) : size * ELEMENT_TYPES[type];

type GradientRule = (dy: Tensor) => void;

export class Graph {
  readonly name: string;
  readonly #instructions: Instruction[] = [];
  readonly #tape: { output: Tensor | undefined; layer: string | undefined; rule: GradientRule }[] = [];
  readonly #gradients = new Map<Tensor, Tensor>();
  readonly #uses = new Map<Tensor, number>();
  readonly #adapters = new Map<Tensor, Adapter>();
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
    options: { gradientOf?: (parameter: Tensor) => Tensor; accumulate?: boolean; phase?: Phase } = {},
  ) {
    this.name = name;
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
   * A new tensor that an instruction will write. `from`: it wants a gradient if one of these does, and is split where an
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
    const phase = this.#phase;
    const block = this.#block === undefined ? {} : { block: this.#block };
    const layer = this.#layer === undefined ? {} : { layer: this.#layer };
    this.#instructions.push({ op: 'dispatch', kernel, problem, operands, label, phase, ...block, ...layer });
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
    { eager = false, completes = [], frees = [] }: Partial<Pick<ChunkInstruction, 'eager' | 'completes' | 'frees'>>,
  ): void {
    const op = 'dispatch each chunk';
    const phase = this.#phase;
    this.#instructions.push({ op, kernel, problemOf, operands, label, phase, eager, completes, frees });
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

  /** Appends what brings all parts of a tensor to all stages. See `AllGatherInstruction`. */
  emitAllGather(tensor: Tensor, parts: AllGatherInstruction['parts'], label: string): void {
    this.#instructions.push({ op: 'all-gather', tensor, parts, label, phase: this.#phase });
  }

  /** Appends the optimizer on the host. See `HostInstruction`. */
  emitOnHost(label: string, instruction: Pick<HostInstruction, 'operands' | 'eager' | 'completes' | 'frees'>): void {
    this.#instructions.push({ op: 'host each chunk', label, phase: this.#phase, ...instruction });
  }

  /** Records how the gradient of `output` flows on; kept only if it wants one. */
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
   * last use in a rule may do so: a later addition to it is done in place.
   */
  aliasGradient(tensor: Tensor, dy: Tensor): boolean {
    if (!tensor.wantsGradient || this.#gradients.has(tensor)) return false;
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

/** The program, one instruction a line: `12 matmul h.0.attn.c_attn a=ln_1 (8,64,128) ...`. */
export function printProgram(program: Program): string {
  const shown = (operand: Tensor | { kind: Kind }) =>
    'kind' in operand ? `each ${operand.kind} chunk` : `${operand.name}(${operand.shape.join(',')})`;
  return program.instructions
    .map((instruction, i) => {
      const at = String(i).padStart(4);
      if ('tensor' in instruction) return `${at} ${instruction.op} ${instruction.label}: ${shown(instruction.tensor)}`;
      const { op, operands, label } = instruction;
      const name = 'kernel' in instruction ? instruction.kernel.name : 'adamw';
      const list = Object.entries(operands).map(([name, operand]) => `${name}=${shown(operand)}`);
      return `${at} ${op === 'dispatch' ? '' : `${op} `}${name} ${label}: ${list.join(' ')}`;
    })
    .join('\n');
}
