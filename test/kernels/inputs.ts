// Kernels in tests: a case is one with its problems and its error bound; the inputs, out of a seeded generator, are standard
// normal where a case does not say.

import type { Arrays, Kernel } from '../../src/kernels/kernel.ts';
import { HYPER, STATE } from '../../src/kernels/step-control.ts';
import { Random } from '../../src/util/random.ts';
import { field } from '../entry.ts';
import type { HostArray } from '../harness.ts';
import type { Bounds } from './rounding.ts';

export type Inputs = Record<string, HostArray>;

export interface KernelCase<P> {
  readonly kernel: Kernel<P>;
  readonly problems: readonly P[];
  /** The operands whose contents are not standard normal. */
  inputs?(problem: P, random: Draws): Inputs;
  /** How far f32 may lead each written operand from the reference, element by element (rounding.ts). */
  readonly bound: Bounds<P>;
}

// biome-ignore lint/suspicious/noExplicitAny: a table of kernels of different problems
export const row = <P>(kernelCase: KernelCase<P>): KernelCase<any> => kernelCase;

/** Lists of random numbers from one seed. */
export class Draws extends Random {
  constructor(seed: number) {
    super(seed, 'kernel test');
  }

  /** An integer in [from, to). */
  integer(from: number, to: number): number {
    return from + this.below(to - from);
  }

  normals(size: number, scale = 1, mean = 0): Float32Array {
    const list = new Float32Array(size);
    for (let i = 0; i < size; i++) list[i] = mean + scale * this.normal();
    return list;
  }

  /** In [from, to). */
  uniforms(size: number, from: number, to: number): Float32Array {
    const list = new Float32Array(size);
    for (let i = 0; i < size; i++) list[i] = from + (to - from) * this.uniform();
    return list;
  }

  integers(size: number, from: number, to: number): Int32Array {
    return Int32Array.from({ length: size }, () => this.integer(from, to));
  }
}

/** The contents of every operand that a kernel reads or updates. */
export function inputsOf<P>(kernelCase: KernelCase<P>, problem: P, seed = 1): Inputs {
  const random = new Draws(seed);
  const data = kernelCase.inputs?.(problem, random) ?? {};
  for (const [name, operand] of Object.entries(kernelCase.kernel.operands(problem))) {
    if (operand.access !== 'write') data[name] ??= random.normals(operand.size);
  }
  return data;
}

/** The operands in float64, with room for the written ones: what a reference runs on. */
export function toArrays<P>(kernel: Kernel<P>, problem: P, data: Inputs): Arrays {
  return Object.fromEntries(
    Object.entries(kernel.operands(problem)).map(([name, { access, size }]) => [
      name,
      access === 'write' ? new Float64Array(size) : Float64Array.from(field(data, name)),
    ]),
  );
}

export const IGNORE = -100;

/** Targets with about one in four ignored. */
export const targets = (random: Draws, rows: number, vocabulary: number) =>
  Int32Array.from({ length: rows }, () => (random.uniform() < 0.25 ? IGNORE : random.integer(0, vocabulary)));

export const hyperOf = (values: Partial<Record<keyof typeof HYPER, number>>): Float32Array => {
  const hyper = new Float32Array(HYPER.size);
  for (const [name, value] of Object.entries(values)) hyper[HYPER[name as keyof typeof HYPER]] = value;
  return hyper;
};

export const HYPERS = hyperOf({
  learningRate: 1e-3,
  oneMinusBeta1: 1 - 0.9,
  oneMinusBeta2: 1 - 0.95,
  epsilon: 1e-8,
  weightDecay: 0.1,
  maxNorm: 1,
  lossScale: 1 / 37,
});

/** A state in which some steps were taken. */
export const someState = () => {
  const state = new Float32Array(STATE.size);
  state[STATE.correction1] = 1 - 0.9 ** 3;
  state[STATE.correction2] = 1 - 0.95 ** 3;
  state[STATE.coefficient] = 0.75;
  state[STATE.updates] = 3;
  state[STATE.skipped] = 2;
  return state;
};
