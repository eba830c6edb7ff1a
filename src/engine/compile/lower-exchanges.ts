// The lowering of exchanges between ranks, from instructions to operations: the rank that adds up each part, and the rank and
// axis of the grid that a value goes to. Pure. The collectives on chunks that a step has beside them are in ranks/collectives.ts.

import {
  type AllGatherInstruction,
  type AllReduceInstruction,
  bytesBefore,
  bytesOf,
  type ElementRange,
  type HandOverInstruction,
  type RowsInstruction,
  type TieInstruction,
} from '../../graph/program.ts';
import type { ChunkMap } from '../../memory/layout/chunk-map.ts';
import { elementBytesOf } from '../../memory/layout/kinds.ts';
import type { OwnedPart } from '../ranks/communicator.ts';
import type { CollectiveOperation } from './operations.ts';

/** Each rank adds up an equal part. `elementBytes`: of one of the range. */
const evenParts = ({ offset, size }: ElementRange, ranks: number, elementBytes: number): OwnedPart[] =>
  Array.from({ length: ranks }, (_, owner) => {
    const firstOf = (rank: number) => elementBytes * (offset + Math.floor((rank * size) / ranks));
    return { owner, offset: firstOf(owner), bytes: firstOf(owner + 1) - firstOf(owner) };
  }).filter(({ bytes }) => bytes > 0);

export function allReduce({ tensor, ranks, ranges, label, phase }: AllReduceInstruction): CollectiveOperation {
  const parts = ranges.flatMap((range) => evenParts(range, ranks, bytesBefore(tensor, 1)));
  const on = { op: 'collective', collective: 'all-reduce', axis: 'tensor', on: tensor } as const;
  return { ...on, parts, label: `all-reduce ${label}`, phase, uses: [] };
}

/** Each rank has the part of its rows. */
export function betweenRows({ op, tensor, own, ranks, label, phase }: RowsInstruction): CollectiveOperation {
  const collective = op === 'scatter-rows' ? 'reduce-scatter' : 'all-gather';
  const bytes = bytesOf(own);
  const parts = Array.from({ length: ranks }, (_, owner) => ({ owner, offset: owner * bytes, bytes }));
  const exchange = { op: 'collective', collective, axis: 'tensor', on: tensor, own, parts } as const;
  return { ...exchange, label: `${collective} rows ${label}`, phase, uses: [] };
}

/** Between the two ends of a pipeline, which have the tensor in the same pieces. */
export function tied({ tensor, label, phase }: TieInstruction, map: ChunkMap): CollectiveOperation[] {
  const list = map.listOf('gradient', tensor.name);
  const width = elementBytesOf(list.kind);
  return map.pieces(tensor.name, list.kind).map((piece) => ({
    ...{ op: 'collective', collective: 'all-reduce', axis: 'ends', on: { chunk: list.first + piece.chunk } },
    ...{ parts: evenParts(piece, 2, width), label: `all-reduce tied ${label}, row ${piece.row}`, phase },
    uses: [{ list, piece, access: 'update' }],
  }));
}

export function betweenStages(instruction: HandOverInstruction | AllGatherInstruction): CollectiveOperation {
  const { op: collective, tensor: on, label, phase } = instruction;
  const parts =
    collective === 'all-gather'
      ? instruction.parts.map(({ stage, offset, size }) => ({
          ...{ owner: stage, offset: bytesBefore(on, offset), bytes: bytesBefore(on, size) },
        }))
      : [{ owner: instruction.stage, offset: 0, bytes: bytesOf(on) }];
  const exchange = { op: 'collective', collective, axis: 'pipeline', on, parts } as const;
  return { ...exchange, label: `${collective} ${label}`, phase, uses: [] };
}
