// The decisions of an optimizer step, taken on the GPU: skip when something is not finite, how far to clip,
// Adam's bias corrections. `hyper` is written by the CPU before each step, `state` lives from step to step
// (all zeros before the first) and is saved with the optimizer.

import normShader from '../../shaders/step-control/record_norm.wgsl?raw';
import shader from '../../shaders/step-control/step_control.wgsl?raw';
import { type Arrays, type Kernel, read, update } from './kernel.ts';

/** Where each number lies in `hyper`. Compute 1 - beta in float64: from a rounded beta it is 2e-7 off. */
export const HYPER = {
  learningRate: 0,
  oneMinusBeta1: 1,
  oneMinusBeta2: 2,
  epsilon: 3,
  weightDecay: 4,
  /** Gradients are scaled down to this norm; 0: never. */
  maxNorm: 5,
  /** loss = lossSum * lossScale. */
  lossScale: 6,
  size: 7,
} as const;

/** Where each number lies in `state`. */
export const STATE = {
  /** 1 - beta1^updates, 1 - beta2^updates. */
  correction1: 0,
  correction2: 1,
  /** Gradients are multiplied by this. */
  coefficient: 2,
  /** Before clipping. */
  gradNorm: 3,
  loss: 4,
  /** 1 when this step changes nothing. */
  skip: 5,
  /** Steps skipped and steps taken, ever. */
  skipped: 6,
  updates: 7,
  size: 8,
} as const;

/** The two maps as WGSL constants: HYPER_LEARNING_RATE, STATE_SKIP, ... */
export const controlConstants: Readonly<Record<string, number>> = Object.fromEntries(
  Object.entries({ HYPER, STATE }).flatMap(([map, indices]) =>
    Object.entries(indices).map(([name, index]) => [`${map}_${name.replace(/[A-Z]/g, '_$&').toUpperCase()}`, index]),
  ),
);

/** It has one size: everything it needs is in its operands. */
export type StepControlProblem = Record<never, never>;

/** normSquared (1), lossSum (1), hyper (HYPER.size) -> state (STATE.size). */
export const stepControl: Kernel<StepControlProblem> = {
  name: 'stepControl',
  operands: () => ({
    normSquared: read(1),
    lossSum: read(1),
    hyper: read(HYPER.size),
    state: update(STATE.size),
  }),
  affectsSpeed: {},
  variants: [
    {
      name: 'single',
      dispatch: () => ({ shader, constants: controlConstants, params: {}, workgroups: [1, 1, 1] }),
    },
  ],
  flops: () => 12,
  reference(_problem, { normSquared, lossSum, hyper, state }: Arrays<'normSquared' | 'lossSum' | 'hyper' | 'state'>) {
    state[STATE.loss] = lossSum[0]! * hyper[HYPER.lossScale]!;
    state[STATE.gradNorm] = Math.sqrt(normSquared[0]!);
    const finite = Number.isFinite(state[STATE.loss]) && Number.isFinite(normSquared[0]);
    state[STATE.skip] = finite ? 0 : 1;
    state[finite ? STATE.updates : STATE.skipped]! += 1;
    if (!finite) return;
    const beta1 = 1 - hyper[HYPER.oneMinusBeta1]!;
    const beta2 = 1 - hyper[HYPER.oneMinusBeta2]!;
    state[STATE.correction1] = beta1 * state[STATE.correction1]! + hyper[HYPER.oneMinusBeta1]!;
    state[STATE.correction2] = beta2 * state[STATE.correction2]! + hyper[HYPER.oneMinusBeta2]!;
    const maxNorm = hyper[HYPER.maxNorm]!;
    state[STATE.coefficient] = maxNorm > 0 ? Math.min(1, maxNorm / (state[STATE.gradNorm]! + 1e-6)) : 1;
  },
};

/** normSquared (1) -> the norm in state: where the step was decided before it was known, and nothing is clipped. */
export const recordNorm: Kernel<StepControlProblem> = {
  name: 'recordNorm',
  operands: () => ({ normSquared: read(1), state: update(STATE.size) }),
  affectsSpeed: {},
  variants: [
    {
      name: 'single',
      dispatch: () => ({ shader: normShader, constants: controlConstants, params: {}, workgroups: [1, 1, 1] }),
    },
  ],
  flops: () => 1,
  reference(_problem, { normSquared, state }: Arrays<'normSquared' | 'state'>) {
    state[STATE.gradNorm] = Math.sqrt(normSquared[0]!);
  },
};
