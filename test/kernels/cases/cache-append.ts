// Appending to caches in kernel tests: problems, and how far f32 may stray.

import { cacheAppend } from '../../../src/kernels/cache-append.ts';
import { row } from '../inputs.ts';
import { exact } from '../rounding.ts';

export const cases = [
  row({
    kernel: cacheAppend,
    problems: [
      { batch: 1, seq: 1, width: 1, stride: 1, offset: 0, capacity: 4 },
      { batch: 3, seq: 5, width: 37, stride: 111, offset: 74, capacity: 9 },
      { batch: 3, seq: 5, width: 36, stride: 108, offset: 72, capacity: 7 },
      // Position 3 takes the last rows past the capacity.
      { batch: 2, seq: 7, width: 5, stride: 5, offset: 0, capacity: 8 },
    ],
    inputs: () => ({ position: new Uint32Array([3]) }),
    bound: () => ({ cache: exact }),
  }),
];
