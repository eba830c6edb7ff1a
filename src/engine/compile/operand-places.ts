// Places of an instruction's operands in the chunks of a layout: which pieces of model data it uses, and how the one that lies
// in several tiles cuts its problem. Instructions are lowered by them (lower.ts), and counted by them (tally.ts).

import type { ChunkInstruction, Tensor, TensorInstruction } from '../../graph/program.ts';
import type { Access } from '../../kernels/kernel.ts';
import { type ChunkElement, storedBytes } from '../../kernels/stored.ts';
import type { ChunkMap } from '../../memory/layout/chunk-map.ts';
import { elementBytesOf, indicesIn, KINDS } from '../../memory/layout/kinds.ts';
import type { Piece } from '../../memory/layout/layout.ts';
import type { ChunkList } from '../../memory/plan/trace.ts';
import { at } from '../../util/at.ts';
import { assert } from '../../util/errors.ts';

/** An operand that is model data: a part of one chunk, in bytes. */
export interface ChunkRange {
  readonly chunk: number;
  readonly offset: number;
  readonly bytes: number;
  readonly element: ChunkElement;
}

/** A piece of model data that a dispatch uses, and how. */
export interface Use {
  readonly list: ChunkList;
  readonly piece: Piece;
  readonly access: Access;
}

export const isChunkRange = (operand: Tensor | ChunkRange): operand is ChunkRange => 'chunk' in operand;

/** Where the operands of an instruction on tensors lie: all of them in one place, but for one at most. */
interface Places {
  readonly operands: Record<string, Tensor | ChunkRange>;
  readonly uses: readonly Use[];
  /** The one that lies in tiles: those of them that its problem needs, in the order of their rows. */
  readonly tiled?: {
    readonly name: string;
    readonly access: Access;
    readonly list: ChunkList;
    readonly pieces: readonly Piece[];
  };
}

export function placesOf(instruction: TensorInstruction, map: ChunkMap): Places {
  const { kernel, problem, operands, label } = instruction;
  const fixed: Record<string, Tensor | ChunkRange> = {};
  const uses: Use[] = [];
  let tiled: Places['tiled'];
  for (const [name, { size, access, start = 0, replaces }] of Object.entries(kernel.operands(problem))) {
    const tensor = operands[name];
    assert(tensor, `${label}: ${kernel.name} got no ${name}`);
    if (tensor.role !== 'parameter' && tensor.role !== 'gradient') {
      fixed[name] = tensor;
      continue;
    }
    const list = map.listOf(tensor.role, tensor.name);
    const all = map.pieces(tensor.name, list.kind);
    const how = { list, access: replaces ? 'write' : access } as const;
    if (all.length === 1) {
      const [piece] = all as [Piece];
      fixed[name] = rangeOf(list, piece.chunk, piece);
      uses.push({ ...how, piece });
      continue;
    }
    assert(!tiled, `${label}: ${kernel.name} has two operands in tiles, ${tiled?.name} and ${name}`);
    tiled = { name, ...how, pieces: all.filter(({ first, size: held }) => first < size && start < first + held) };
  }
  return { operands: fixed, uses, ...(tiled && { tiled }) };
}

/** The part of an instruction's problem that needs one tile of an operand. */
export function partOn({ kernel, problem, label }: TensorInstruction, name: string, piece: Piece): object {
  assert(kernel.tile, `${label}: ${kernel.name} cannot run on tiles of ${name}`);
  const part = kernel.tile(problem, name, piece);
  assert(part, `${label}: ${kernel.name} uses nothing of rows ${piece.row} to ${piece.row + piece.rows - 1}`);
  return part;
}

/** The problem of an instruction on each chunk at one index. */
export const problemAt = (instruction: ChunkInstruction, { trainable, firstBlock }: ChunkMap, index: number): object =>
  instruction.problemOf({ size: at(trainable.used, index), firstBlock: at(firstBlock, index) });

/** The indices of what trains that an instruction on each chunk is about. */
export const indicesFor = (
  { updates = false }: ChunkInstruction,
  { indices, hostIndex }: ChunkMap,
): readonly number[] => (updates ? indices.filter((index) => index < hostIndex) : indices);

/** Indices whose chunks an instruction completes together: those that one chunk of its kinds holds, at most. */
export const completedTogether = ({ completes }: ChunkInstruction): number =>
  completes.reduce((most, kind) => Math.max(most, indicesIn(kind)), 1);

/** `offset` and `size` count elements. */
export function rangeOf(
  { kind, first }: ChunkList,
  index: number,
  { offset, size }: { offset: number; size: number },
): ChunkRange {
  const { element } = KINDS[kind];
  return { chunk: first + index, offset: offset * elementBytesOf(kind), bytes: storedBytes(element, size), element };
}
