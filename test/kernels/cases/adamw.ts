// AdamW in kernel tests: problems, and how far f32 may stray.

import { adamw } from '../../../src/kernels/adamw.ts';
import type { Arrays } from '../../../src/kernels/kernel.ts';
import { HYPER, STATE } from '../../../src/kernels/step-control.ts';
import { BLOCK } from '../../../src/kernels/sum-squares.ts';
import { field } from '../../entry.ts';
import { HYPERS, row, someState } from '../inputs.ts';
import { FOLDED_ITEMS, inEveryCase } from '../problems.ts';
import { type Bound, TINY, ULP } from '../rounding.ts';

const { abs, max, sqrt } = Math;

export const cases = [
  row({
    kernel: adamw,
    problems: [
      { size: 1 },
      { size: 37, maskOffset: 33 },
      { size: 129 },
      { size: 33 * BLOCK + 5, maskOffset: 30 },
      { size: 33 * BLOCK + 4, maskOffset: 30 },
      ...inEveryCase({ size: FOLDED_ITEMS }),
    ],
    inputs: (problem, random) => ({
      hyper: HYPERS,
      state: someState(),
      decayMask: Uint32Array.from({ length: field(adamw.operands(problem), 'decayMask').size }, () =>
        random.integer(0, 2 ** 32),
      ),
      m: random.normals(problem.size, 0.1),
      v: random.uniforms(problem.size, 1e-4, 1),
    }),
    bound(
      _problem,
      { gradient, hyper, state, parameter, m, v }: Arrays<'gradient' | 'hyper' | 'state' | 'parameter' | 'm' | 'v'>,
      after: Arrays<'parameter' | 'm' | 'v'>,
    ) {
      const rest1 = hyper[HYPER.oneMinusBeta1]!;
      const rest2 = hyper[HYPER.oneMinusBeta2]!;
      const lr = hyper[HYPER.learningRate]!;
      const g = (i: number) => abs(gradient[i]! * state[STATE.coefficient]!);
      // The step towards g or g^2 has four roundings, the sum one.
      const mError: Bound = (i) => ULP * (abs(after.m[i]!) + 4 * rest1 * (g(i) + abs(m[i]!)));
      const vError: Bound = (i) => ULP * (abs(after.v[i]!) + 5 * rest2 * (g(i) ** 2 + v[i]!));
      return {
        m: mError,
        v: vError,
        parameter: (i) => {
          const root = sqrt(after.v[i]! / state[STATE.correction2]!);
          const denominator = root + hyper[HYPER.epsilon]!;
          const unit = lr / state[STATE.correction1]! / denominator;
          // v / correction2 and the root, then two divisions, a product and two sums.
          const denominatorError = (0.5 * vError(i)) / max(after.v[i]!, TINY) + (1.25 + 4.5) * ULP;
          const step = unit * abs(after.m[i]!);
          const decay = lr * hyper[HYPER.weightDecay]! * abs(parameter[i]!);
          return (
            unit * mError(i) + step * (denominatorError + 8 * ULP) + decay * 4 * ULP + ULP * abs(after.parameter[i]!)
          );
        },
      };
    },
  }),
];
