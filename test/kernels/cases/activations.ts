// Activations and their gradients in kernel tests: problems, and how far f32 may stray.

import { ACTIVATION_NAMES, ACTIVATIONS } from '../../../src/kernels/activations.ts';
import type { Arrays } from '../../../src/kernels/kernel.ts';
import { ACTIVATION_ERRORS } from '../activation-errors.ts';
import { row } from '../inputs.ts';
import { elementwise } from '../problems.ts';

const { abs } = Math;

export const cases = ACTIVATION_NAMES.flatMap((name) => [
  row({
    kernel: ACTIVATIONS[name].forward,
    problems: elementwise,
    inputs: ({ size }, random) => ({ x: random.normals(size, 3) }),
    bound: (_problem, { x }: Arrays<'x'>, { y }: Arrays<'y'>) => ({
      y: (i) => ACTIVATION_ERRORS[name].value(x[i]!, y[i]!),
    }),
  }),
  row({
    kernel: ACTIVATIONS[name].backward,
    problems: elementwise,
    inputs: ({ size }, random) => ({ x: random.normals(size, 3) }),
    bound: (_problem, { x, dx: dy }: Arrays<'x' | 'dx'>) => ({
      dx: (i) => abs(dy[i]!) * ACTIVATION_ERRORS[name].slope(x[i]!),
    }),
  }),
]);
