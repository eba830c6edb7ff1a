// Programs made into operations on chunk ranges: an instruction on a tensor that lies in several tiles becomes one
// dispatch a tile, in the order of the rows, which by the kernels' contract gives the same bits; an instruction on each
// chunk becomes one dispatch a chunk index.
// Pure: no buffer, no device. Invariant: whatever serves a problem's variant choice is the whole problem, never a
// tile, so that the layout of chunks has no part in it.

import type {
  ChunkInstruction,
  Instruction,
  Program,
  Tensor,
  TensorInstruction,
  TransferInstruction,
} from '../../graph/program.ts';
import { operandList } from '../../kernels/by-problem.ts';
import type { Access } from '../../kernels/kernel.ts';
import type { ChunkMap } from '../../memory/layout/chunk-map.ts';
import { indicesIn, type Kind } from '../../memory/layout/kinds.ts';
import { at } from '../../util/at.ts';
import { assert } from '../../util/errors.ts';
import { allReduce, betweenRows, betweenStages, tied } from './lower-exchanges.ts';
import { onHost } from './lower-host.ts';
import {
  type ChunkRange,
  completedTogether,
  indicesFor,
  isChunkRange,
  partOn,
  placesOf,
  problemAt,
  rangeOf,
  type Use,
} from './operand-places.ts';
import type { DispatchOperation, Operation } from './operations.ts';
import { StashIds, type StashPiece } from './stash-ids.ts';

export function lower({ instructions }: Program, map: ChunkMap): Operation[] {
  const stashes = new StashIds(map, instructions);
  const dispatches = dispatchesOn(map);
  const lowerOne = (instruction: Instruction): readonly Operation[] => {
    switch (instruction.op) {
      case 'dispatch': {
        const { copyOf } = instruction;
        if (!copyOf) return dispatches(instruction);
        return dispatches(copyOf).map((operation) => onOthers(operation, instruction));
      }
      case 'dispatch each chunk':
        return dispatches(instruction);
      case 'host each chunk':
        return onHost(instruction, map);
      case 'offload':
        return [transfer(instruction, stashes.take(instruction.stash))];
      case 'fetch':
        return [transfer(instruction, stashes.piecesOf(instruction.stash, instruction.keeps ?? false))];
      case 'all-reduce':
        return [allReduce(instruction)];
      case 'scatter-rows':
      case 'gather-rows':
        return [betweenRows(instruction)];
      case 'all-gather':
      case 'send':
      case 'receive':
        return [betweenStages(instruction)];
      case 'tie':
        return tied(instruction, map);
      default:
        return instruction satisfies never;
    }
  };
  const operations: Operation[] = [];
  for (let i = 0; i < instructions.length; ) {
    const { across } = at(instructions, i);
    let end = i + 1;
    while (across && instructions[end]?.across === across) end++;
    if (end === i + 1) {
      operations.push(...lowerOne(at(instructions, i)));
      i = end;
      continue;
    }
    // A tile of what is shared serves all of them before the next one does.
    const parts = instructions.slice(i, end).map(lowerOne);
    const tiles = Math.max(...parts.map(({ length }) => length));
    for (let tile = 0; tile < tiles; tile++) {
      for (const part of parts) operations.push(at(part, tile));
    }
    i = end;
  }
  return operations;
}

type DispatchInstruction = TensorInstruction | ChunkInstruction;

/** By layout: a fit goes back and forth between a few sizes of chunks. */
const lowered = new WeakMap<ChunkMap, WeakMap<DispatchInstruction, readonly DispatchOperation[]>>();

/** What makes instructions into dispatches, each once: programs that differ in their activations share most of them. */
function dispatchesOn(map: ChunkMap): (instruction: DispatchInstruction) => readonly DispatchOperation[] {
  const known = lowered.get(map) ?? new WeakMap<DispatchInstruction, readonly DispatchOperation[]>();
  lowered.set(map, known);
  return (instruction) => {
    const before = known.get(instruction);
    if (before) return before;
    const found = instruction.op === 'dispatch' ? onTensors(instruction, map) : onEachChunk(instruction, map);
    known.set(instruction, found);
    return found;
  };
}

/** `operation` on the tensors of another instruction; its ranges of chunks stay. */
const onOthers = (operation: DispatchOperation, { operands }: TensorInstruction): DispatchOperation => {
  const own = { ...operation.operands };
  for (const [name, operand] of Object.entries(own)) {
    const tensor = operands[name];
    if (tensor && !isChunkRange(operand)) own[name] = tensor;
  }
  return { ...operation, operands: own };
};

const transfer = ({ op, tensor, keeps, rows, label, phase }: TransferInstruction, pieces: readonly StashPiece[]) => ({
  ...{ op, tensor, pieces, label, phase, uses: [] },
  ...(keeps && { keeps }),
  ...(rows && { rows }),
});

function onTensors(instruction: TensorInstruction, map: ChunkMap): DispatchOperation[] {
  const { op, kernel, problem, whole = problem, label, phase, again = false } = instruction;
  const common = { op, kernel, whole, phase, ...(again && { again }) };
  const { ranges, uses, tiled } = placesOf(instruction, map);
  const operands: Record<string, Tensor | ChunkRange> = {};
  for (const [name] of operandList(kernel, problem)) {
    const operand = ranges[name] ?? instruction.operands[name];
    if (operand && name !== tiled?.name) operands[name] = operand;
  }
  if (!tiled) return [{ ...common, problem, operands, uses, label }];
  const { name, access, list, pieces } = tiled;
  return pieces.map((piece) => ({
    ...common,
    problem: partOn(instruction, name, piece),
    operands: { ...operands, [name]: rangeOf(list, piece.chunk, piece) },
    uses: [...uses, { list, piece, access }],
    label: pieces.length > 1 ? `${label}, rows ${piece.row} to ${piece.row + piece.rows - 1}` : label,
  }));
}

function onEachChunk(instruction: ChunkInstruction, map: ChunkMap): DispatchOperation[] {
  const { kernel, label, phase, eager, completes, frees } = instruction;
  const together = completedTogether(instruction);
  return indicesFor(instruction, map).map((index) => {
    const size = at(map.trainable.used, index);
    const problem = problemAt(instruction, map, index);
    const operands: Record<string, Tensor | ChunkRange> = {};
    const accessOf = new Map<Kind, Access>();
    for (const [name, { access }] of Object.entries(kernel.operands(problem))) {
      const operand = instruction.operands[name];
      assert(operand, `${label}: ${kernel.name} got no ${name}`);
      if ('kind' in operand) {
        const { chunk, offset } = map.placeOf(operand.kind, index);
        const list = map.list(operand.kind);
        operands[name] = rangeOf(list, chunk - list.first, { offset, size });
        accessOf.set(operand.kind, access);
      } else operands[name] = operand;
    }
    const usesOf = (kind: Kind, at: number, access: Access) => {
      const list = map.list(kind);
      return map.piecesIn(kind, at).map((piece): Use => ({ list, piece, access }));
    };
    const uses = map.trainedKinds.flatMap((kind) => {
      const access = accessOf.get(kind);
      return access ? usesOf(kind, index, access) : [];
    });
    // What is complete together goes below together: until then it stays.
    for (let before = index - (index % together); before < index; before++) {
      uses.push(...completes.flatMap((kind) => (indicesIn(kind) < together ? usesOf(kind, before, 'read') : [])));
    }
    const each = { index, eager, completes, frees, together };
    const where = `${label}, chunk ${index}`;
    return { op: 'dispatch', kernel, problem, whole: problem, operands, uses, label: where, phase, each };
  });
}
