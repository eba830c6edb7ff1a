// Step control in kernel tests: problems, and how far f32 may stray.

import type { Arrays } from '../../../src/kernels/kernel.ts';
import { recordNorm, STATE, stepControl } from '../../../src/kernels/step-control.ts';
import { HYPERS, row, someState } from '../inputs.ts';
import { ULP } from '../rounding.ts';

const { abs } = Math;

export const cases = [
  row({
    kernel: stepControl,
    problems: [{}],
    inputs: () => ({
      normSquared: new Float32Array([7.3]),
      lossSum: new Float32Array([129.5]),
      hyper: HYPERS,
      state: someState(),
    }),
    bound(_problem, _before, { state }: Arrays<'state'>) {
      const ulps: Record<number, number> = {
        [STATE.correction1]: 4,
        [STATE.correction2]: 4,
        [STATE.coefficient]: 4.5 + 1 + 2.5,
        [STATE.gradNorm]: 4.5,
        [STATE.loss]: 1,
      };
      return { state: (i) => (ulps[i] ?? 0) * ULP * abs(state[i]!) };
    },
  }),
  row({
    kernel: recordNorm,
    problems: [{}],
    inputs: () => ({ normSquared: new Float32Array([7.3]), state: someState() }),
    bound: (_problem, _before, { state }: Arrays<'state'>) => ({
      state: (i) => (i === STATE.gradNorm ? 4.5 * ULP * abs(state[i]!) : 0),
    }),
  }),
];
