// Gated activations in kernel tests: problems, and how far f32 may stray.

import { ACTIVATIONS } from '../../../src/kernels/activations.ts';
import { geglu, gegluBackward, swiglu, swigluBackward } from '../../../src/kernels/gated.ts';
import type { Arrays } from '../../../src/kernels/kernel.ts';
import { ACTIVATION_ERRORS, sigmoid } from '../activation-errors.ts';
import { row } from '../inputs.ts';
import { elementwise } from '../problems.ts';
import { expUlps, TINY, ULP } from '../rounding.ts';

const { abs } = Math;

export const cases = [
  row({
    kernel: swiglu,
    problems: elementwise,
    inputs: ({ size }, random) => ({ gate: random.normals(size, 5) }),
    bound(_problem, { gate }: Arrays<'gate'>, { y }: Arrays<'y'>) {
      return { y: (i) => abs(y[i]!) * ((1 - sigmoid(gate[i]!)) * expUlps(gate[i]!) + 5.5) * ULP + TINY };
    },
  }),
  row({
    kernel: swigluBackward,
    problems: elementwise,
    inputs: ({ size }, random) => ({ dgate: random.normals(size, 5) }),
    bound(_problem, { up, dgate: gate, dup: dy }: Arrays<'up' | 'dgate' | 'dup'>, { dup }: Arrays<'dup'>) {
      return {
        dgate: (i) => {
          const s = sigmoid(gate[i]!);
          const ulps = expUlps(gate[i]!);
          const terms = s * ((1 - s) * ulps + 7) + abs(gate[i]!) * s * (1 - s) * (3 * ulps + 14);
          return abs(dy[i]! * up[i]!) * terms * ULP + TINY;
        },
        dup: (i) => abs(dup[i]!) * ((1 - sigmoid(gate[i]!)) * expUlps(gate[i]!) + 5.5) * ULP + TINY,
      };
    },
  }),
  row({
    kernel: geglu,
    problems: elementwise,
    inputs: ({ size }, random) => ({ gate: random.normals(size, 3) }),
    bound: (_problem, { gate, up }: Arrays<'gate' | 'up'>, { y }: Arrays<'y'>) => ({
      y: (i) =>
        abs(up[i]!) * ACTIVATION_ERRORS.gelu.value(gate[i]!, ACTIVATIONS.gelu.value(gate[i]!)) +
        ULP * abs(y[i]!) +
        TINY,
    }),
  }),
  row({
    kernel: gegluBackward,
    problems: elementwise,
    inputs: ({ size }, random) => ({ dgate: random.normals(size, 3) }),
    bound: (
      _problem,
      { up, dgate: gate, dup: dy }: Arrays<'up' | 'dgate' | 'dup'>,
      { dgate, dup }: Arrays<'dgate' | 'dup'>,
    ) => ({
      dgate: (i) => abs(dy[i]! * up[i]!) * ACTIVATION_ERRORS.gelu.slope(gate[i]!) + 2 * ULP * abs(dgate[i]!) + TINY,
      dup: (i) =>
        abs(dy[i]!) * ACTIVATION_ERRORS.gelu.value(gate[i]!, ACTIVATIONS.gelu.value(gate[i]!)) +
        ULP * abs(dup[i]!) +
        TINY,
    }),
  }),
];
