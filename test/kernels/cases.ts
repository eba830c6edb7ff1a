// The one table of problems: kernel tests, gradient checks and benchmarks read it. Sizes are odd on purpose
// (1, 37, 65, 129, ...). Inputs come from a seeded generator; what a row does not say is standard normal.

import { adamw } from '../../src/kernels/adamw.ts';
import { add, fill } from '../../src/kernels/add.ts';
import { cacheAppend } from '../../src/kernels/cache-append.ts';
import { columnSum } from '../../src/kernels/column-sum.ts';
import { crossEntropyBackward, crossEntropyLoss, crossEntropyTile } from '../../src/kernels/cross-entropy.ts';
import { embedding, embeddingBackward, positionBackward, tokenIndex } from '../../src/kernels/embedding.ts';
import { gelu, geluBackward } from '../../src/kernels/gelu.ts';
import type { Arrays, Kernel } from '../../src/kernels/kernel.ts';
import { layernorm, layernormBackward, layernormParameterGrad } from '../../src/kernels/layernorm.ts';
import { rmsnorm, rmsnormBackward, rmsnormParameterGrad } from '../../src/kernels/rmsnorm.ts';
import { rope, ropeTable } from '../../src/kernels/rope.ts';
import { HYPER, STATE, stepControl } from '../../src/kernels/step-control.ts';
import { BLOCK, sumSquares } from '../../src/kernels/sum-squares.ts';
import { swiglu, swigluBackward } from '../../src/kernels/swiglu.ts';
import type { HostArray } from '../harness.ts';

export type Inputs = Record<string, HostArray>;

export interface KernelCase<P> {
  readonly kernel: Kernel<P>;
  readonly problems: readonly P[];
  /** The operands whose contents are not standard normal. */
  inputs?(problem: P, random: Random): Inputs;
}

/** Uniform and normal numbers from one seed (mulberry32). */
export class Random {
  #state: number;

  constructor(seed: number) {
    this.#state = seed >>> 0;
  }

  /** In [0, 1). */
  uniform(): number {
    this.#state = (this.#state + 0x6d2b79f5) >>> 0;
    let t = this.#state;
    t = Math.imul(t ^ (t >>> 15), t | 1);
    t ^= t + Math.imul(t ^ (t >>> 7), t | 61);
    return ((t ^ (t >>> 14)) >>> 0) / 2 ** 32;
  }

  /** Standard normal (Box-Muller). */
  normal(): number {
    return Math.sqrt(-2 * Math.log(1 - this.uniform())) * Math.cos(2 * Math.PI * this.uniform());
  }

  /** An integer in [from, to). */
  integer(from: number, to: number): number {
    return from + Math.floor(this.uniform() * (to - from));
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
  const random = new Random(seed);
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
      access === 'write' ? new Float64Array(size) : Float64Array.from(data[name]),
    ]),
  );
}

export const IGNORE = -100;

/** Targets with about one in four ignored. */
const targets = (random: Random, rows: number, vocabulary: number) =>
  Int32Array.from({ length: rows }, () => (random.uniform() < 0.25 ? IGNORE : random.integer(0, vocabulary)));

/**
 * One more than a grid of one row can hold: 65,535 workgroups, of 64 invocations or of one row each. Few
 * kernels get one, for they take seconds; kernels.test.ts folds the grids of all the others by hand.
 */
const FOLDED_ITEMS = 65_535 * 64 + 1;
const FOLDED_ROWS = 65_536;

const elementwise = [1, 37, 65, 129, 4099].map((size) => ({ size }));

const norms = [
  { rows: 1, width: 1, eps: 1e-5 },
  { rows: 3, width: 5, eps: 1e-5 },
  { rows: 37, width: 129, eps: 1e-5 },
  { rows: 65, width: 65, eps: 1e-6 },
];

const normBackwards = norms.flatMap(({ rows, width }) => [
  { rows, width, accumulate: false },
  { rows, width, accumulate: true },
]);

const parameterGrads = [
  { rows: 1, width: 1 },
  { rows: 3, width: 5 },
  { rows: 129, width: 37 },
  { rows: 65, width: 65 },
];

export const hyperOf = (values: Partial<Record<keyof typeof HYPER, number>>): Float32Array => {
  const hyper = new Float32Array(HYPER.size);
  for (const [name, value] of Object.entries(values)) hyper[HYPER[name as keyof typeof HYPER]] = value;
  return hyper;
};

const HYPERS = hyperOf({
  learningRate: 1e-3,
  oneMinusBeta1: 1 - 0.9,
  oneMinusBeta2: 1 - 0.95,
  epsilon: 1e-8,
  weightDecay: 0.1,
  maxNorm: 1,
  lossScale: 1 / 37,
});

/** A state in which some steps were taken. */
const someState = () => {
  const state = new Float32Array(STATE.size);
  state[STATE.correction1] = 1 - 0.9 ** 3;
  state[STATE.correction2] = 1 - 0.95 ** 3;
  state[STATE.coefficient] = 0.75;
  state[STATE.updates] = 3;
  state[STATE.skipped] = 2;
  return state;
};

// biome-ignore lint/suspicious/noExplicitAny: a table of kernels of different problems
const row = <P>(kernelCase: KernelCase<P>): KernelCase<any> => kernelCase;

export const cases = [
  row({ kernel: layernorm, problems: norms }),
  row({
    kernel: layernormBackward,
    problems: normBackwards,
    inputs: ({ rows }, random) => ({ rstd: random.uniforms(rows, 0.5, 2) }),
  }),
  row({
    kernel: layernormParameterGrad,
    problems: parameterGrads,
    inputs: ({ rows }, random) => ({ rstd: random.uniforms(rows, 0.5, 2) }),
  }),
  row({
    kernel: columnSum,
    problems: [
      { rows: 1, width: 1, stride: 1, offset: 0, rowsPerBlock: 1, accumulate: false },
      { rows: 3, width: 5, stride: 11, offset: 4, rowsPerBlock: 2, accumulate: true },
      { rows: 129, width: 37, stride: 37, offset: 0, rowsPerBlock: 32, accumulate: false },
      { rows: 1001, width: 1, stride: 1, offset: 0, rowsPerBlock: 1001, accumulate: false },
      { rows: 65, width: 129, stride: 387, offset: 258, rowsPerBlock: 65, accumulate: true },
    ],
  }),
  row({ kernel: rmsnorm, problems: [...norms, { rows: FOLDED_ROWS, width: 3, eps: 1e-5 }] }),
  row({
    kernel: rmsnormBackward,
    problems: normBackwards,
    inputs: ({ rows }, random) => ({ rstd: random.uniforms(rows, 0.5, 2) }),
  }),
  row({
    kernel: rmsnormParameterGrad,
    problems: parameterGrads,
    inputs: ({ rows }, random) => ({ rstd: random.uniforms(rows, 0.5, 2) }),
  }),
  row({
    kernel: gelu,
    problems: elementwise,
    inputs: ({ size }, random) => ({ x: random.normals(size, 3) }),
  }),
  row({
    kernel: geluBackward,
    problems: elementwise,
    inputs: ({ size }, random) => ({ x: random.normals(size, 3) }),
  }),
  row({
    kernel: swiglu,
    problems: elementwise,
    inputs: ({ size }, random) => ({ gate: random.normals(size, 5) }),
  }),
  row({
    kernel: swigluBackward,
    problems: elementwise,
    inputs: ({ size }, random) => ({ gate: random.normals(size, 5) }),
  }),
  row({ kernel: add, problems: [...elementwise, { size: FOLDED_ITEMS }] }),
  row({ kernel: fill, problems: elementwise.map(({ size }) => ({ size, value: -1.5 })) }),
  row({
    kernel: rope,
    problems: [
      { rows: 1, seq: 1, heads: 1, headSize: 2, stride: 2, offset: 0, positions: 3, inverse: false },
      { rows: 15, seq: 5, heads: 3, headSize: 6, stride: 25, offset: 3, positions: 37, inverse: false },
      { rows: 65, seq: 65, heads: 2, headSize: 10, stride: 20, offset: 0, positions: 129, inverse: true },
      // Positions 2..38 of a table of 33: the last five read its last row.
      { rows: 37, seq: 37, heads: 1, headSize: 4, stride: 4, offset: 0, positions: 33, inverse: false },
    ],
    inputs: ({ positions, headSize }) => ({
      table: ropeTable(positions, headSize, 10_000),
      position: new Uint32Array([2]),
    }),
  }),
  row({
    kernel: embedding,
    problems: [
      { rows: 1, seq: 1, width: 1, vocabulary: 1, positions: 0 },
      { rows: 15, seq: 5, width: 37, vocabulary: 11, positions: 8 },
      { rows: 65, seq: 65, width: 3, vocabulary: 129, positions: 0 },
      { rows: 74, seq: 37, width: 5, vocabulary: 7, positions: 37 },
    ],
    // Two ids lie outside the vocabulary, and position 3 takes the longest row past the table.
    inputs: ({ rows, vocabulary }, random) => ({
      ids: random.integers(rows, -1, vocabulary + 1),
      position: new Uint32Array([3]),
    }),
  }),
  row({
    kernel: embeddingBackward,
    problems: [
      { rows: 1, width: 1, vocabulary: 1 },
      { rows: 15, width: 37, vocabulary: 5 },
      { rows: 129, width: 3, vocabulary: 1000 },
    ],
    inputs: ({ rows, vocabulary }, random) => ({ ...tokenIndex(random.integers(rows, 0, vocabulary)) }),
  }),
  row({
    kernel: positionBackward,
    problems: [
      { batch: 1, seq: 1, width: 1, positions: 1, accumulate: false },
      { batch: 3, seq: 5, width: 37, positions: 8, accumulate: false },
      { batch: 5, seq: 7, width: 3, positions: 65, accumulate: true },
    ],
  }),
  row({
    kernel: crossEntropyTile,
    problems: [
      { rows: 1, tile: 1, first: 0, begin: true },
      { rows: 3, tile: 5, first: 0, begin: true },
      { rows: 37, tile: 129, first: 65, begin: false },
      { rows: 65, tile: 65, first: 130, begin: true },
    ],
    inputs: ({ rows, tile, first }, random) => ({
      logits: random.normals(rows * tile, 4),
      targets: targets(random, rows, first + tile + 3),
      sum: random.uniforms(rows, 1, 9),
    }),
  }),
  row({
    kernel: crossEntropyLoss,
    problems: [1, 37, 129].map((rows) => ({ rows, ignoreIndex: IGNORE })),
    inputs: ({ rows }, random) => ({
      sum: random.uniforms(rows, 1, 9),
      targets: targets(random, rows, 5),
    }),
  }),
  row({
    kernel: crossEntropyBackward,
    problems: [
      { rows: 1, tile: 1, first: 0, ignoreIndex: IGNORE },
      { rows: 3, tile: 5, first: 5, ignoreIndex: IGNORE },
      { rows: 37, tile: 129, first: 65, ignoreIndex: IGNORE },
      { rows: 65, tile: 199, first: 0, ignoreIndex: IGNORE },
    ],
    inputs: ({ rows, tile, first }, random) => ({
      logits: random.normals(rows * tile, 2),
      lse: Float32Array.from({ length: 2 * rows }, (_, i) => (i % 2 === 0 ? 4 : 3) + random.uniform()),
      targets: targets(random, rows, first + tile + 3),
      scale: new Float32Array([0.125]),
    }),
  }),
  row({
    kernel: sumSquares,
    problems: [1, 37, 129, 257, 1000, 256 * 65 + 3].flatMap((size) => [
      { size, first: 0 },
      { size, first: 3 },
    ]),
  }),
  row({
    kernel: stepControl,
    problems: [{}],
    inputs: () => ({
      normSquared: new Float32Array([7.3]),
      lossSum: new Float32Array([129.5]),
      hyper: HYPERS,
      state: someState(),
    }),
  }),
  row({
    kernel: adamw,
    problems: [
      { size: 1 },
      { size: 37, maskOffset: 33 },
      { size: 129 },
      { size: 33 * BLOCK + 5, maskOffset: 30 },
      { size: FOLDED_ITEMS },
    ],
    inputs: (problem, random) => ({
      hyper: HYPERS,
      state: someState(),
      decayMask: Uint32Array.from({ length: adamw.operands(problem).decayMask.size }, () => random.integer(0, 2 ** 32)),
      m: random.normals(problem.size, 0.1),
      v: random.uniforms(problem.size, 1e-4, 1),
    }),
  }),
  row({
    kernel: cacheAppend,
    problems: [
      { batch: 1, seq: 1, width: 1, stride: 1, offset: 0, capacity: 4 },
      { batch: 3, seq: 5, width: 37, stride: 111, offset: 74, capacity: 9 },
      // Position 3 takes the last rows past the capacity.
      { batch: 2, seq: 7, width: 5, stride: 5, offset: 0, capacity: 8 },
    ],
    inputs: () => ({ position: new Uint32Array([3]) }),
  }),
];
