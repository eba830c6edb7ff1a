// Patches of images in kernel tests: problems, and how far f32 may stray.

import { patches } from '../../../src/kernels/patches.ts';
import { row } from '../inputs.ts';
import { exact } from '../rounding.ts';

export const cases = [
  row({
    kernel: patches,
    problems: [
      { batch: 1, channels: 1, height: 1, width: 1, patchHeight: 1, patchWidth: 1 },
      { batch: 2, channels: 3, height: 8, width: 8, patchHeight: 4, patchWidth: 4 },
      { batch: 1, channels: 2, height: 6, width: 15, patchHeight: 2, patchWidth: 5 },
      { batch: 3, channels: 1, height: 28, width: 28, patchHeight: 7, patchWidth: 7 },
    ],
    bound: () => ({ y: exact }),
  }),
];
