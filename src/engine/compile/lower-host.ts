// AdamW on the host made into operations: one an index of what is updated there, and what of its chunks each uses. Two indices may have
// theirs of a kind of sixteen bits in one chunk. No arithmetic (kernels/host-adamw.ts).

import type { HostInstruction } from '../../graph/program.ts';
import type { Access } from '../../kernels/kernel.ts';
import type { ChunkMap } from '../../memory/layout/chunk-map.ts';
import { gradientKind, indicesIn, type Kind, MOMENT_KINDS, type TrainingDtype } from '../../memory/layout/kinds.ts';
import { at } from '../../util/at.ts';
import type { Use } from './operand-places.ts';
import type { HostOperation } from './operations.ts';

/** What AdamW updates of parameters, and what it keeps beside that. */
const UPDATED = {
  f32: { parameter: 'parameter' },
  bf16: { parameter: 'parameterBF16', beside: 'parameterLow' },
  f16: { parameter: 'master', beside: 'parameterF16' },
} as const satisfies Record<TrainingDtype, { readonly parameter: Kind; readonly beside?: Kind }>;

export function onHost(
  { operands, numbered, label, phase, eager, completes, frees }: HostInstruction,
  map: ChunkMap,
): HostOperation[] {
  const { dtype, moments } = map;
  const { parameter, beside }: { readonly parameter: Kind; readonly beside?: Kind } = UPDATED[dtype];
  const gradient = gradientKind(dtype);
  const [moment1, moment2] = MOMENT_KINDS[moments];
  const accesses: readonly (readonly [Kind, Access])[] = [
    [parameter, 'update'],
    // A copy that was given up is made anew.
    ...(beside ? [[beside, dtype === 'f16' ? 'write' : 'update'] as const] : []),
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
        ...{ gradient: chunkOf(gradient), parameter: chunkOf(parameter) },
        ...{ moment1: chunkOf(moment1), moment2: chunkOf(moment2) },
        ...(beside && { beside: chunkOf(beside) }),
      },
      label: `${label} on the host, chunk ${index}`,
      each: { index, together: 1, eager, completes, frees },
    };
  });
}
