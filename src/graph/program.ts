// Programs: flat lists of tagged instructions over symbolic tensors, as the tracer (graph.ts) writes them and the compiler reads
// them. Plain data: no buffer, no device, no values.

import type { ActivationName } from '../kernels/activations.ts';
import { operandList } from '../kernels/by-problem.ts';
import { type Access, ELEMENT_TYPES, type ElementType, type Kernel } from '../kernels/kernel.ts';
import { storedBytes } from '../kernels/stored.ts';
import type { Kind } from '../memory/layout/kinds.ts';

/**
 * parameter, gradient: model data, in chunks. persistent: lives as long as the program's owner
 * (inputs, optimizer scalars, tables, caches). activation: lives between two instructions, placed by liveness.
 */
export type Role = 'parameter' | 'gradient' | 'persistent' | 'activation';

/** The elements of a tensor, all four bytes wide. */
export type TensorElements = Float32Array<ArrayBuffer> | Int32Array<ArrayBuffer> | Uint32Array<ArrayBuffer>;

export interface Tensor {
  readonly name: string;
  readonly shape: readonly number[];
  readonly size: number;
  readonly type: ElementType;
  readonly role: Role;
  /** Whether the backward pass must compute its gradient. */
  readonly wantsGradient: boolean;
  /** Set on the output of a fused activation: the tensor that it was applied to, and which it is. */
  readonly activationOf?: { readonly tensor: Tensor; readonly activation: ActivationName };
  /** Set on what the backward pass has in place of an activation that did not stay: that activation. */
  readonly standsFor?: Tensor;
  /** How its elements lie, where it is an activation that is kept narrow. @default as `type` says */
  readonly stored?: 'bf16' | 'f16' | undefined;
  /** Set where it is some rows of another: the one whose memory it has, and its first element there. */
  readonly partOf?: { readonly tensor: Tensor; readonly offset: number };
  /** Set where each of several ranks has a part of it. @default all of them have the same */
  readonly split?: TensorSplit | undefined;
  /** Set where it is persistent and always holds the same: makes its elements, which the engine writes into its new buffer. */
  readonly constant?: () => TensorElements;
}

/**
 * How ranks share a layer (Shoeybi et al. 2019). A weight `columns`: each has so many of its outputs; `rows`: so many of
 * its inputs. An activation `columns`: each has so many of its last axis; `rows`: so many of all others together (Korthikanti et
 * al. 2022).
 */
export interface TensorSplit {
  readonly by: 'columns' | 'rows';
  readonly ranks: number;
  /** The one of these ranks whose part it is. */
  readonly rank: number;
  /** Of what cannot be dealt out evenly: rows at the end of this part that are of no tensor, and stay 0; in the last part alone. */
  readonly unused?: number;
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
  /** What it is a part of, where it is one: variants are chosen for that. */
  readonly whole?: object;
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
  /** Whether it updates: then it is about those indices alone that are updated on the GPU. @default about all */
  readonly updates?: boolean;
  readonly eager: Eager;
  /** Kinds whose chunk of the index has its value of this step behind it. */
  readonly completes: readonly Kind[];
  /** Kinds whose chunk of the index holds no value any more behind it. */
  readonly frees: readonly Kind[];
}

/** What an instruction on each chunk does beside its arithmetic. */
export type ChunkEffects = Pick<ChunkInstruction, 'eager' | 'completes' | 'frees' | 'updates'>;

/** Work on the host over chunks below the GPU, once an index of what is updated there: AdamW, as the optimizer on the GPU has it. */
export interface HostInstruction extends Common {
  readonly op: 'host each chunk';
  /** The scalars of the step, and which blocks decay: their values are brought from the GPU, or known already. */
  readonly operands: Readonly<Record<'hyper' | 'state' | 'decayMask', Tensor>>;
  /** Whether `decayMask` numbers the blocks: see `BlockTensors`. */
  readonly numbered: boolean;
  readonly eager: Eager;
  readonly completes: readonly Kind[];
  readonly frees: readonly Kind[];
}

/** What lies below the GPU of an activation that was moved there. */
export interface Stash {
  readonly name: string;
  readonly bytes: number;
  /** Whether it lies there from one run to the next, of this program and all that have it. */
  readonly lasts?: boolean;
}

/** Rows of a tensor to which each run of a program appends some: where those go is known when it runs. */
export interface AppendedRows {
  /** (1) the first of the new rows; those before it are from earlier runs. */
  readonly position: Tensor;
  /** The new ones. */
  readonly count: number;
  /** Of a row. */
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
  /** What moves of a tensor that lasts: the new rows down, those before them up. @default all of it */
  readonly rows?: AppendedRows;
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

/**
 * Between a tensor of which each of so many ranks has an equal number of rows, in the order of the ranks, and one with the rows of
 * all. `scatter-rows`: `own` becomes this rank's rows of the sum of `tensor` over all of them. `gather-rows`: `tensor` becomes the
 * rows of all.
 */
export interface RowsInstruction extends Common {
  readonly op: 'scatter-rows' | 'gather-rows';
  readonly tensor: Tensor;
  readonly own: Tensor;
  readonly ranks: number;
}

// Between the stages of a pipeline: which rank is which stage, and how bytes travel, is the engine's affair.

/** `send`: the neighbour gets the value. `receive`: it is the neighbour's. Both have the same in the same order. */
export interface HandOverInstruction extends Common {
  readonly op: 'send' | 'receive';
  readonly tensor: Tensor;
  /** The neighbour. */
  readonly stage: number;
}

/** Elements that one stage has. */
export interface StageRange extends ElementRange {
  readonly stage: number;
}

/** All stages get what each of them has of a tensor. */
export interface AllGatherInstruction extends Common {
  readonly op: 'all-gather';
  readonly tensor: Tensor;
  readonly parts: readonly StageRange[];
}

/** What the first and the last stage each have of a parameter's gradient becomes the sum, on both. */
export interface TieInstruction extends Common {
  readonly op: 'tie';
  readonly tensor: Tensor;
}

export type ExchangeInstruction = HandOverInstruction | AllGatherInstruction | TieInstruction;

export type Instruction =
  | TensorInstruction
  | ChunkInstruction
  | HostInstruction
  | TransferInstruction
  | AllReduceInstruction
  | RowsInstruction
  | ExchangeInstruction;

/** An activation that an instruction touches: `write` replaces its value, `update` changes a part of it. */
export interface Touch {
  readonly tensor: Tensor;
  readonly access: Access;
}

/** The tensor that has the memory of this one. */
export const holderOf = (tensor: Tensor): Tensor => tensor.partOf?.tensor ?? tensor;

const touches = new WeakMap<Instruction, readonly Touch[]>();

/** The activations that an instruction touches, in the order of its operands; of parts, those that they are of. Those on chunks touch none. */
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
      return operandList(kernel, problem).flatMap(([name, { access }]) => {
        const tensor = operands[name];
        if (tensor?.role !== 'activation') return [];
        // What replaces a part leaves the rest.
        if (tensor.partOf) return [{ tensor: tensor.partOf.tensor, access: access === 'write' ? 'update' : access }];
        return [{ tensor, access }];
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
    case 'scatter-rows':
      return [
        { tensor: instruction.tensor, access: 'read' },
        { tensor: instruction.own, access: 'write' },
      ];
    case 'gather-rows':
      return [
        { tensor: instruction.own, access: 'read' },
        { tensor: instruction.tensor, access: 'write' },
      ];
    case 'all-reduce':
    case 'all-gather':
      return instruction.tensor.role === 'activation' ? [{ tensor: instruction.tensor, access: 'update' }] : [];
    default:
      return instruction satisfies never;
  }
}

/** The instruction on what stands for its operands; itself where they all stay, so that programs share it. */
export function withOperands<I extends Instruction>(instruction: I, standIn: (tensor: Tensor) => Tensor): I {
  if (instruction.op === 'gather-rows') {
    const own = standIn(instruction.own);
    return own === instruction.own ? instruction : { ...instruction, own };
  }
  if (instruction.op !== 'dispatch') return instruction;
  const before = Object.entries(instruction.operands);
  const operands = before.map(([name, tensor]) => [name, standIn(tensor)] as const);
  if (operands.every(([, tensor], i) => tensor === before[i]?.[1])) return instruction;
  return { ...instruction, operands: Object.fromEntries(operands) };
}

export interface Program {
  readonly name: string;
  readonly instructions: readonly Instruction[];
  /** Activations that must still hold their values when the program has run. */
  readonly outputs: readonly Tensor[];
  /**
   * Whether a product that ends in an activation gives the bits that the activation by itself gives of the product's sums: then
   * it is made again without the product. @default true
   */
  readonly appliesAlone?: boolean | undefined;
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

/** A persistent tensor that always holds the same. */
export const makeConstant = (
  name: string,
  shape: readonly number[],
  type: ElementType,
  constant: () => TensorElements,
): Tensor => ({ ...makeTensor(name, shape, 'persistent', type), constant });

export const bytesOf = ({ size, type, stored }: Tensor): number =>
  stored ? storedBytes(stored, size) : size * ELEMENT_TYPES[type];

/** Bytes of so many elements of a tensor, as they lie. */
export const bytesBefore = (tensor: Tensor, elements: number): number => bytesOf({ ...tensor, size: elements });

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

/** The activations that an instruction reads, or writes; what it updates is both. */
export function operandsOf(instruction: Instruction, way: 'in' | 'out'): readonly Tensor[] {
  const known = ways.get(instruction) ?? waysOf(touchedBy(instruction));
  ways.set(instruction, known);
  return known[way];
}

const ways = new WeakMap<Instruction, ReturnType<typeof waysOf>>();

const waysOf = (touched: readonly Touch[]) => ({
  in: touched.filter(({ access }) => access !== 'write').map(({ tensor }) => tensor),
  out: touched.filter(({ access }) => access !== 'read').map(({ tensor }) => tensor),
});
