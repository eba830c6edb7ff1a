// Heads put into rows of more in kernel tests: problems; a copy strays by nothing.

import { putHeads } from '../../../src/kernels/put-heads.ts';
import { row } from '../inputs.ts';

export const cases = [
  row({
    kernel: putHeads,
    problems: [
      { batch: 1, seq: 1, heads: 1, kvHeads: 1, headSize: 1, kvHeadsBefore: 0, allKvHeads: 2 },
      { batch: 1, seq: 37, heads: 2, kvHeads: 2, headSize: 8, kvHeadsBefore: 4, allKvHeads: 6 },
      // Several heads a group, of odd size.
      { batch: 5, seq: 3, heads: 6, kvHeads: 2, headSize: 5, kvHeadsBefore: 1, allKvHeads: 4 },
    ],
    bound: () => ({ y: () => 0 }),
  }),
];
