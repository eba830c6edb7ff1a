// Places of an instruction's operands in the chunks of a layout: which pieces of model data it uses, and how the one that lies
// in several tiles cuts its problem. Instructions are lowered by them (lower.ts), and counted by them (tally.ts).

import type { ChunkInstruction, Tensor, TensorInstruction } from '../../graph/program.ts';
import { ByProblem, operandList } from '../../kernels/by-problem.ts';
import type { Access, Operand } from '../../kernels/kernel.ts';
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

/** Where what an instruction on tensors has in chunks lies: each operand in one place, but for one at most. */
interface Places {
  readonly ranges: Readonly<Record<string, ChunkRange>>;
  readonly uses: readonly Use[];
  /** The one that lies in tiles: those of them that its problem needs, in the order of their rows. */
  readonly tiled?: {
    readonly name: string;
    readonly access: Access;
    readonly list: ChunkList;
    readonly pieces: readonly Piece[];
  };
}

/** An operand in chunks, which are those of its tensor. */
interface ModelOperand {
  readonly name: string;
  readonly operand: Operand;
  readonly role: 'parameter' | 'gradient';
  readonly tensor: string;
}

const known = new WeakMap<TensorInstruction, readonly ModelOperand[]>();

/** What an instruction has in chunks, whatever their layout: of many, nothing. */
export function modelOperands(instruction: TensorInstruction): readonly ModelOperand[] {
  const before = known.get(instruction);
  if (before) return before;
  const { kernel, problem, operands, label } = instruction;
  const found = operandList(kernel, problem).flatMap(([name, operand]): ModelOperand[] => {
    const tensor = operands[name];
    assert(tensor, `${label}: ${kernel.name} got no ${name}`);
    const { role, name: of } = tensor;
    return role === 'parameter' || role === 'gradient' ? [{ name, operand, role, tensor: of }] : [];
  });
  known.set(instruction, found);
  return found;
}

export function placesOf(instruction: TensorInstruction, map: ChunkMap): Places {
  const { kernel, label } = instruction;
  const ranges: Record<string, ChunkRange> = {};
  const uses: Use[] = [];
  let tiled: Places['tiled'];
  for (const { name, operand, role, tensor } of modelOperands(instruction)) {
    const { size, access, start = 0, replaces } = operand;
    const list = map.listOf(role, tensor);
    const all = map.pieces(tensor, list.kind);
    const how = { list, access: replaces ? 'write' : access } as const;
    if (all.length === 1) {
      const [piece] = all as [Piece];
      ranges[name] = rangeOf(list, piece.chunk, piece);
      uses.push({ ...how, piece });
      continue;
    }
    assert(!tiled, `${label}: ${kernel.name} has two operands in tiles, ${tiled?.name} and ${name}`);
    tiled = { name, ...how, pieces: all.filter(({ first, size: held }) => first < size && start < first + held) };
  }
  return { ranges, uses, ...(tiled && { tiled }) };
}

/** By operand and tile. */
const parts = new ByProblem((): Map<string, object> => new Map());

/** The part of an instruction's problem that needs one tile of an operand. */
export function partOn({ kernel, problem, label }: TensorInstruction, name: string, piece: Piece): object {
  const known = parts.of(kernel, problem);
  const key = `${name} ${piece.first} ${piece.size}`;
  const before = known.get(key);
  if (before) return before;
  assert(kernel.tile, `${label}: ${kernel.name} cannot run on tiles of ${name}`);
  const part = kernel.tile(problem, name, piece);
  assert(part, `${label}: ${kernel.name} uses nothing of rows ${piece.row} to ${piece.row + piece.rows - 1}`);
  known.set(key, part);
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
