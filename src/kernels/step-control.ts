// The decisions of an optimizer step, taken on the GPU: skip when something is not finite, how far to clip,
// Adam's bias corrections. `hyper` is written by the CPU before each step, `state` lives from step to step
// (all zeros before the first) and is saved with the optimizer. Where gradients are scaled before they are rounded, as f16 has
// to, the scale and what decides of it lie behind the rest.

import dynamicScale from '../../shaders/step-control/dynamic_scale.wgsl?raw';
import inverseScale from '../../shaders/step-control/inverse_scale.wgsl?raw';
import noScale from '../../shaders/step-control/no_scale.wgsl?raw';
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

/**
 * Where the rest lies in a `hyper` of moments that are rounded by chance: the two words of the step's key, sixteen bits in
 * each number.
 */
export const ROUNDING = { roundingKey: HYPER.size, size: HYPER.size + 4 } as const;

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

/** Where the rest lies in a `state` with a scale of gradients. */
export const SCALER = {
  /** What the gradients of a step are multiplied by before they are rounded: a power of two. */
  gradientScale: STATE.size,
  /** Steps taken since it changed last. */
  goodSteps: STATE.size + 1,
  size: STATE.size + 2,
} as const;

/**
 * Where the rest lies in it on the GPU, which is of no use behind its step and not saved: the scale of the step, where
 * `gradientScale` is the next one's already.
 */
export const DECIDED = { stepScale: SCALER.size, size: SCALER.size + 1 } as const;

/** As in PyTorch's GradScaler: the first scale, and the steps in a row without an overflow that double it. */
export const FIRST_SCALE = 2 ** 16;
export const GROWTH_STEPS = 2000;
/** As in DeepSpeed. */
export const LEAST_SCALE = 1;
/** A gradient of 2^-24 of the least normal half is more than its rounding. */
export const LARGEST_SCALE = 2 ** 24;

/** What `state` is before the first step. `scale`: of gradients, where it has one. */
export function initialState(size: number, scale: number = FIRST_SCALE): Float32Array<ArrayBuffer> {
  const state = new Float32Array(size);
  if (size >= SCALER.size) state[SCALER.gradientScale] = scale;
  return state;
}

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
      dispatch: () => ({ shader: shader + noScale, constants: controlConstants, params: {}, workgroups: [1, 1, 1] }),
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

/**
 * The numbers behind a step that is neither skipped nor clipped, by those before it. `fuses`: of a GPU that rounds a product and
 * its sum once, which WGSL leaves to it.
 */
export function unclippedState(before: Float32Array, hyper: Float32Array, fuses: boolean): Float32Array<ArrayBuffer> {
  const r = Math.fround;
  const state = Float32Array.from(before);
  const advanced = (correction: number, rest: number) => {
    const product = rest * r(1 - correction);
    return correction + (fuses ? product : r(product));
  };
  state[STATE.skip] = 0;
  state[STATE.updates]! += 1;
  state[STATE.correction1] = advanced(before[STATE.correction1]!, hyper[HYPER.oneMinusBeta1]!);
  state[STATE.correction2] = advanced(before[STATE.correction2]!, hyper[HYPER.oneMinusBeta2]!);
  state[STATE.coefficient] = 1 / (before[SCALER.gradientScale] ?? 1);
  return state;
}

/** Whether AdamW goes by the same numbers. */
export const isSameUpdate = (a: Float32Array, b: Float32Array): boolean =>
  [STATE.skip, STATE.updates, STATE.correction1, STATE.correction2, STATE.coefficient].every((i) => a[i] === b[i]);

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

/** The scale as WGSL constants. */
export const scalerConstants: Readonly<Record<string, number>> = {
  SCALER_GRADIENT_SCALE: SCALER.gradientScale,
  SCALER_GOOD_STEPS: SCALER.goodSteps,
  DECIDED_STEP_SCALE: DECIDED.stepScale,
};

/** normSquared (1), of what was scaled back, lossSum (1), hyper (HYPER.size) -> state (DECIDED.size). */
export const scaledStepControl: Kernel<StepControlProblem> = {
  ...stepControl,
  name: 'scaledStepControl',
  operands: (problem) => ({ ...stepControl.operands(problem), state: update(DECIDED.size) }),
  variants: [
    {
      name: 'single',
      dispatch: () => ({
        shader: shader + dynamicScale + inverseScale,
        constants: { ...controlConstants, ...scalerConstants, GROWTH_STEPS, LEAST_SCALE, LARGEST_SCALE },
        params: {},
        workgroups: [1, 1, 1],
      }),
    },
  ],
  reference(problem, data: Arrays<'normSquared' | 'lossSum' | 'hyper' | 'state'>) {
    stepControl.reference(problem, data);
    const { state } = data;
    const scale = state[SCALER.gradientScale]!;
    state[DECIDED.stepScale] = scale;
    if (state[STATE.skip] !== 0) {
      state[SCALER.gradientScale] = Math.max(scale / 2, LEAST_SCALE);
      state[SCALER.goodSteps] = 0;
      return;
    }
    state[STATE.coefficient]! /= scale;
    state[SCALER.goodSteps]! += 1;
    if (state[SCALER.goodSteps]! < GROWTH_STEPS) return;
    state[SCALER.gradientScale] = Math.min(2 * scale, LARGEST_SCALE);
    state[SCALER.goodSteps] = 0;
  },
};
