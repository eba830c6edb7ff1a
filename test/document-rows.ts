// Rows of token documents for tests of packed batches: each document in a row of its own, or all of them in one.

import type { Batch } from '../src/data/batches.ts';

const IGNORED = -100;

/** Documents in one row each, or all in one row, with room left behind them. */
export function documentRows(documents: readonly (readonly number[])[], seq: number, packed: boolean): Batch {
  const count = packed ? 1 : documents.length;
  const [ids, numbers, positions] = [0, 1, 2].map(() => new Int32Array(count * seq)) as [
    Int32Array<ArrayBuffer>,
    Int32Array<ArrayBuffer>,
    Int32Array<ArrayBuffer>,
  ];
  const targets = new Int32Array(count * seq).fill(IGNORED);
  let at = 0;
  for (const [n, document] of documents.entries()) {
    if (!packed) at = n * seq;
    for (const [t, id] of document.entries()) {
      ids[at] = id;
      targets[at] = document[t + 1] ?? IGNORED;
      numbers[at] = n + 1;
      positions[at] = t;
      at++;
    }
  }
  return { ids, targets, ...(packed && { documents: numbers, positions }), batch: count, seq };
}
