// GELU's gradients in kernel tests: problems, and how far f32 may stray.

import { geluBackward, geluErfBackward } from '../../../src/kernels/gelu.ts';
import type { Arrays } from '../../../src/kernels/kernel.ts';
import { geluDerivativeError, geluErfDerivativeError } from '../activation-errors.ts';
import { row } from '../inputs.ts';
import { elementwise } from '../problems.ts';

const { abs } = Math;

export const cases = [
  row({
    kernel: geluBackward,
    problems: elementwise,
    inputs: ({ size }, random) => ({ x: random.normals(size, 3) }),
    bound: (_problem, { dy, x }: Arrays<'dy' | 'x'>) => ({ dx: (i) => abs(dy[i]!) * geluDerivativeError(x[i]!) }),
  }),
  row({
    kernel: geluErfBackward,
    problems: elementwise,
    inputs: ({ size }, random) => ({ x: random.normals(size, 3) }),
    bound: (_problem, { dy, x }: Arrays<'dy' | 'x'>) => ({
      dx: (i) => abs(dy[i]!) * geluErfDerivativeError(x[i]!),
    }),
  }),
];
