// Operations of a pass: what is done at one moment, on which pieces of model data and which tensors. Plain data; what makes
// them out of a program's instructions is lower.ts.

import type {
  AppendedRows,
  ChunkInstruction,
  HandOverInstruction,
  HostInstruction,
  Phase,
  Tensor,
  TransferInstruction,
} from '../../graph/program.ts';
import { bytesMoved, type Kernel, type StoredOperands } from '../../kernels/kernel.ts';
import { isNarrow } from '../../kernels/stored.ts';
import { assert } from '../../util/errors.ts';
import type { OwnedPart } from '../ranks/communicator.ts';
import type { ExchangeAxis } from '../ranks/grid.ts';
import { type ChunkRange, isChunkRange, type Use } from './operand-places.ts';
import type { StashPiece } from './stash-ids.ts';

/** What every operation has, whatever its tag. */
interface Common {
  readonly label: string;
  readonly phase: Phase;
  /** Pieces of model data, in the order in which the chunks are listed in the trace. */
  readonly uses: readonly Use[];
  /**
   * Chunks of what kernels read as parameters, by their index, that hold no value here any more behind it: their owners have
   * them, or they are copies.
   */
  readonly releases?: readonly number[];
  /** Chunks of what is frozen, by their number, that hold no value here any more behind it: their owners have them. */
  readonly givesBack?: readonly number[];
  /** There for an operation on the chunks of one index, as the instruction has it. */
  readonly each?: Pick<ChunkInstruction, 'eager' | 'completes' | 'frees'> & {
    readonly index: number;
    /** Indices that are complete together: the chunks of a narrow kind hold several. */
    readonly together: number;
  };
}

/** One dispatch, and where each of its operands lies. */
export interface DispatchOperation extends Common {
  readonly op: 'dispatch';
  // biome-ignore lint/suspicious/noExplicitAny: a list of kernels of different problems
  readonly kernel: Kernel<any>;
  readonly problem: object;
  /** What this is a part of: variants are chosen for it. */
  readonly whole: object;
  readonly operands: Readonly<Record<string, Tensor | ChunkRange>>;
  /** As the instruction has it. */
  readonly again?: boolean;
}

/** An activation that is copied below the GPU, or from there. */
export interface TransferOperation extends Common {
  readonly op: TransferInstruction['op'];
  readonly tensor: Tensor;
  readonly pieces: readonly StashPiece[];
  /** As the instruction has it. */
  readonly keeps?: boolean;
  /** As the instruction has it: which part of the pieces moves is known when the pass runs. */
  readonly rows?: AppendedRows;
}

/** AdamW on the host, over the chunks of one index. */
export interface HostOperation extends Common {
  readonly op: 'host';
  readonly index: number;
  /** Elements, and the bit of `decayMask` that is their first block's. */
  readonly size: number;
  readonly firstBlock: number;
  /** The element at which the index begins in chunks of sixteen bits. */
  readonly firstNarrow: number;
  /** Of the index. `beside`: what of its parameters in sixteen bits lies in chunks of its own. */
  readonly chunks: Readonly<Record<'gradient' | 'parameter' | 'moment1' | 'moment2', number>> & {
    readonly beside?: number;
  };
  readonly operands: HostInstruction['operands'];
  /** As the instruction has it. */
  readonly numbered: boolean;
}

/**
 * An exchange between ranks, part by part. `reduce-scatter`: the owner of a part gets the sum over all ranks; `all-gather`:
 * all ranks get what the owner has; `all-reduce`: one behind the other. With one part the former are what is also called
 * reduce and broadcast. `send`, `receive`: between this rank and the owner of the only part.
 */
export interface CollectiveOperation extends Common {
  readonly op: 'collective';
  readonly collective: 'reduce-scatter' | 'all-gather' | 'all-reduce' | HandOverInstruction['op'];
  /** Between which ranks of the grid. */
  readonly axis: ExchangeAxis;
  /** A tensor, or a chunk that is in use. */
  readonly on: Tensor | { readonly chunk: number };
  readonly parts: readonly OwnedPart[];
  /** Where this rank has its part by itself: what a `reduce-scatter` writes, and an `all-gather` reads. @default in `on` */
  readonly own?: Tensor;
}

/** What is done at one moment; its tag says how. Whatever looks at operations switches over the tag, all of them. */
export type Operation = DispatchOperation | TransferOperation | HostOperation | CollectiveOperation;

export const isDispatch = (operation: Operation): operation is DispatchOperation => operation.op === 'dispatch';

export const isTransfer = (operation: Operation): operation is TransferOperation =>
  operation.op === 'offload' || operation.op === 'fetch';

export const isOnHost = (operation: Operation): operation is HostOperation => operation.op === 'host';

/** Names of operands that are one tensor, each of which the dispatch only reads. */
export function boundTogether({ operands }: Pick<DispatchOperation, 'operands'>): string[] {
  const all = Object.values(operands);
  return Object.keys(operands).filter((name) => {
    const operand = operands[name] as Tensor | ChunkRange;
    return !isChunkRange(operand) && all.indexOf(operand) !== all.lastIndexOf(operand);
  });
}

/** How floats that a dispatch reads are stored, save those that it takes as words; a part of a problem may do without some of them. */
export const storedOperands = ({
  kernel,
  problem,
  operands,
}: Pick<DispatchOperation, 'kernel' | 'problem' | 'operands'>): StoredOperands =>
  Object.fromEntries(
    Object.entries(kernel.operands(problem)).flatMap(([name, { type }]) => {
      const operand = operands[name];
      const element = operand && (isChunkRange(operand) ? operand.element : operand.stored);
      if (!element || type === 'u32') return [];
      assert(element !== 'low16', `${kernel.name}.${name} are halves of floats`);
      return isNarrow(element) ? [[name, element]] : [];
    }),
  );

/** Bytes that a dispatch moves at least on the GPU, its model data as it is stored. */
export const bytesMovedBy = ({
  kernel,
  problem,
  operands,
}: Pick<DispatchOperation, 'kernel' | 'problem' | 'operands'>): number =>
  bytesMoved(kernel, problem, (name) => {
    const operand = operands[name];
    return operand && (isChunkRange(operand) ? operand.element : operand.stored);
  });
