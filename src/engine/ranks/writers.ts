// The rank that writes each tensor of a checkpoint. A tensor is written whole, as other libraries read it, so that one rank has to
// have all of it: the one with the most, while it has less than its share to write; else the one with the least to write. Pure.
//
// Invariant: no rank writes more than its share of all and one tensor.

import { assert } from '../../util/errors.ts';

/** A tensor as it is saved, and what each rank has of it. */
export interface SharedTensor {
  readonly name: string;
  /** Bytes of all that is written for it. */
  readonly bytes: number;
  /** By rank: bytes of it that are there. */
  readonly held: ReadonlyMap<number, number>;
}

/** `ranks`: those that may write. */
export function assignWriters(tensors: readonly SharedTensor[], ranks: readonly number[]): Map<string, number> {
  const share = tensors.reduce((sum, { bytes }) => sum + bytes, 0) / ranks.length;
  const load = new Map(ranks.map((rank) => [rank, 0]));
  const writers = new Map<string, number>();
  // The largest first: small ones even out what they leave.
  for (const { name, bytes, held } of tensors.toSorted((a, b) => b.bytes - a.bytes)) {
    const has = (rank: number) => held.get(rank) ?? 0;
    const writes = (rank: number) => load.get(rank) ?? 0;
    const fitting = ranks.filter((rank) => writes(rank) + bytes <= share);
    const [writer] =
      fitting.length > 0
        ? fitting.toSorted((a, b) => has(b) - has(a) || writes(a) - writes(b) || a - b)
        : ranks.toSorted((a, b) => writes(a) - writes(b) || has(b) - has(a) || a - b);
    assert(writer !== undefined, 'some rank writes');
    load.set(writer, writes(writer) + bytes);
    writers.set(name, writer);
  }
  return writers;
}
