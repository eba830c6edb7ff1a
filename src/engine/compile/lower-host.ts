// AdamW on the host made into operations: one an index of what trains, and what of its chunks each uses. Where moments are in
// bf16, two indices have theirs in one chunk. No arithmetic (kernels/host-adamw.ts).

import type { HostInstruction } from '../../graph/program.ts';
import type { Access } from '../../kernels/kernel.ts';
import type { ChunkMap } from '../../memory/layout/chunk-map.ts';
import { type Kind, MOMENT_KINDS } from '../../memory/layout/kinds.ts';
import { at } from '../../util/at.ts';
import type { Use } from './operand-places.ts';
import type { HostOperation } from './operations.ts';

/** What AdamW does to the chunks of an index. */
const accessesOf = (first: Kind, second: Kind): readonly (readonly [Kind, Access])[] => [
  ['parameter', 'update'],
  ['gradient', 'read'],
  [first, 'update'],
  [second, 'update'],
];

export function onHost(
  { operands, label, phase, eager, completes, frees }: HostInstruction,
  map: ChunkMap,
): HostOperation[] {
  const [first, second] = MOMENT_KINDS[map.moments];
  return map.trainable.used.map((size, index) => {
    const chunkOf = (kind: Kind) => map.placeOf(kind, index).chunk;
    const uses = accessesOf(first, second).flatMap(([kind, access]) =>
      map.piecesIn(kind, index).map((piece): Use => ({ list: map.list(kind), piece, access })),
    );
    return {
      ...{ op: 'host', index, size, firstBlock: at(map.firstBlock, index), operands, phase, uses },
      chunks: {
        gradient: chunkOf('gradient'),
        parameter: chunkOf('parameter'),
        moment1: chunkOf(first),
        moment2: chunkOf(second),
      },
      ...(map.moments === 'bf16' && { firstNarrow: map.placeOf(first, index).offset }),
      label: `${label} on the host, chunk ${index}`,
      each: { index, together: 1, eager, completes, frees },
    };
  });
}
