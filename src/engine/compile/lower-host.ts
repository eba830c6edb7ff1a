// AdamW on the host made into operations: one an index of what is updated there, and what of its chunks each uses. Two indices may have
// theirs of a kind of sixteen bits in one chunk. No arithmetic (kernels/host-adamw.ts).

import type { HostInstruction } from '../../graph/program.ts';
import type { Access } from '../../kernels/kernel.ts';
import type { ChunkMap } from '../../memory/layout/chunk-map.ts';
import { indicesIn, type Kind, MOMENT_KINDS, PARAMETER_KINDS } from '../../memory/layout/kinds.ts';
import { at } from '../../util/at.ts';
import type { Use } from './operand-places.ts';
import type { HostOperation } from './operations.ts';

export function onHost(
  { operands, numbered, label, phase, eager, completes, frees }: HostInstruction,
  map: ChunkMap,
): HostOperation[] {
  const { dtype, momentDtype } = map;
  const { read, full, low, gradient } = PARAMETER_KINDS[dtype];
  const isCopied = read !== full;
  const beside = isCopied ? read : low;
  const [moment1, moment2] = MOMENT_KINDS[momentDtype];
  const accesses: readonly (readonly [Kind, Access])[] = [
    [full, 'update'],
    // A copy that was given up is made anew.
    ...(beside ? [[beside, isCopied ? 'write' : 'update'] as const] : []),
    [gradient, 'read'],
    [moment1, 'update'],
    [moment2, 'update'],
  ];
  const onHost = map.indices.filter((index) => index >= map.hostIndex);
  return onHost.map((index) => {
    const size = at(map.trainable.used, index);
    const chunkOf = (kind: Kind) => map.placeOf(kind, index).chunk;
    const uses = accesses.flatMap(([kind, access]) =>
      map.piecesIn(kind, index).map((piece): Use => ({ list: map.list(kind), piece, access })),
    );
    const narrow = [gradient, moment1].find((kind) => indicesIn(kind) > 1);
    return {
      ...{ op: 'host', index, size, firstBlock: at(map.firstBlock, index), operands, numbered, phase, uses },
      firstNarrow: narrow ? map.placeOf(narrow, index).offset : 0,
      chunks: {
        ...{ gradient: chunkOf(gradient), parameter: chunkOf(full) },
        ...{ moment1: chunkOf(moment1), moment2: chunkOf(moment2) },
        ...(beside && { beside: chunkOf(beside) }),
      },
      label: `${label} on the host, chunk ${index}`,
      each: { index, together: 1, eager, completes, frees },
    };
  });
}
