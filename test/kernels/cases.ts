// The one table of problems: kernel tests, gradient checks and the check of shader fragments read it. Sizes are odd on
// purpose (1, 37, 65, 129, ...). Inputs come from a seeded generator; what a row does not say is standard normal.

import { adamw } from '../../src/kernels/adamw.ts';
import { add, fill } from '../../src/kernels/add.ts';
import { type AttentionProblem, attention } from '../../src/kernels/attention.ts';
import {
  type AttentionBackwardProblem,
  attentionBackwardKV,
  attentionBackwardQ,
  attentionDelta,
} from '../../src/kernels/attention-backward.ts';
import { documentStarts, keysSeen } from '../../src/kernels/attention-mask.ts';
import { cacheAppend } from '../../src/kernels/cache-append.ts';
import { columnSum } from '../../src/kernels/column-sum.ts';
import { copyRows } from '../../src/kernels/copy-rows.ts';
import {
  crossEntropyBackward,
  crossEntropyHits,
  crossEntropyLoss,
  crossEntropyTile,
} from '../../src/kernels/cross-entropy.ts';
import { type DropoutProblem, dropout, KEY_WORDS } from '../../src/kernels/dropout.ts';
import {
  embedding,
  embeddingBackward,
  positionBackward,
  positionEmbedding,
  tokenIndex,
} from '../../src/kernels/embedding.ts';
import { geglu, gegluBackward, swiglu, swigluBackward } from '../../src/kernels/gated.ts';
import { gelu, geluBackward, geluErf, geluErfBackward } from '../../src/kernels/gelu.ts';
import { headNorm, headNormBackward, headNormParameterGrad } from '../../src/kernels/head-norm.ts';
import type { Arrays, Kernel } from '../../src/kernels/kernel.ts';
import { layernorm, layernormBackward, layernormParameterGrad } from '../../src/kernels/layernorm.ts';
import { type Epilogue, type Layout, type MatmulProblem, matmul } from '../../src/kernels/matmul.ts';
import { patches } from '../../src/kernels/patches.ts';
import { rmsnorm, rmsnormBackward, rmsnormParameterGrad } from '../../src/kernels/rmsnorm.ts';
import { rope, ropeTable } from '../../src/kernels/rope.ts';
import { HYPER, recordNorm, STATE, stepControl } from '../../src/kernels/step-control.ts';
import { BLOCK, sumSquares } from '../../src/kernels/sum-squares.ts';
import { tanh, tanhBackward } from '../../src/kernels/tanh.ts';
import { Random } from '../../src/util/random.ts';
import { field, fields } from '../entry.ts';
import type { HostArray } from '../harness.ts';

export type Inputs = Record<string, HostArray>;

export interface KernelCase<P> {
  readonly kernel: Kernel<P>;
  readonly problems: readonly P[];
  /** The operands whose contents are not standard normal. */
  inputs?(problem: P, random: Draws): Inputs;
}

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
const targets = (random: Draws, rows: number, vocabulary: number) =>
  Int32Array.from({ length: rows }, () => (random.uniform() < 0.25 ? IGNORE : random.integer(0, vocabulary)));

/**
 * One more than a grid of one row can hold: 65,535 workgroups, of 64 invocations or of one row each. Few
 * kernels get one, for they take seconds; kernels.test.ts folds the grids of all the others by hand.
 */
const FOLDED_ITEMS = 65_535 * 64 + 1;
const FOLDED_ROWS = 65_536;

// One multiple of 4 in each list of sizes: four floats are loaded at a time then.
const elementwise = [1, 37, 65, 129, 260, 4099].map((size) => ({ size }));

const norms = [
  { rows: 1, width: 1, eps: 1e-5 },
  { rows: 3, width: 5, eps: 1e-5 },
  { rows: 37, width: 129, eps: 1e-5 },
  { rows: 65, width: 65, eps: 1e-6 },
  { rows: 5, width: 4, eps: 1e-5 },
  { rows: 66, width: 268, eps: 1e-5 },
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
  { rows: 66, width: 268 },
];

/** An odd rest of columns, heads behind others, one head, and four floats at a time. */
const headRows = [
  { rows: 28, heads: 4, width: 14, stride: 56, offset: 0 },
  { rows: 18, heads: 2, width: 10, stride: 81, offset: 41 },
  { rows: 3, heads: 1, width: 2, stride: 2, offset: 0 },
  { rows: 65 * 3, heads: 3, width: 16, stride: 80, offset: 16 },
  { rows: 2, heads: 2, width: 132, stride: 264, offset: 0 },
];

const layouts: readonly Layout[] = ['NN', 'NT', 'TN'];
const epilogues: readonly Epilogue[] = [
  'scale',
  'softcap',
  'bias',
  'residual',
  'biasResidual',
  'biasGelu',
  'geluGradient',
  'biasGeluErf',
  'geluErfGradient',
];

const matmuls: readonly MatmulProblem[] = [
  ...layouts.flatMap((layout) => [
    { layout, M: 1, N: 1, K: 1 },
    { layout, M: 3, N: 5, K: 7, accumulate: true },
    { layout, M: 17, N: 33, K: 65 },
    { layout, M: 51, N: 40, K: 1 },
    // Multiples of 4, then tiles of every variant cut at each edge.
    { layout, M: 64, N: 48, K: 36, accumulate: true },
    { layout, M: 132, N: 196, K: 68 },
  ]),
  // Only K is a multiple of 4.
  { layout: 'NT', M: 17, N: 33, K: 64 },
  // Few rows.
  { layout: 'NT', M: 1, N: 65, K: 64, aOffset: 128 },
  { layout: 'NN', M: 2, N: 132, K: 12, accumulate: true },
  { layout: 'NT', M: 3, N: 9, K: 129 },
  // A column block of a packed y, of which dW and dx read the like; 'in,out' weights, then 'out,in' ones.
  { layout: 'NN', M: 37, N: 20, K: 12, cStride: 60, cOffset: 20, partial: true },
  { layout: 'NN', M: 17, N: 5, K: 7, cStride: 15, cOffset: 10, partial: true },
  { layout: 'TN', M: 12, N: 20, K: 36, bStride: 60, bOffset: 40, accumulate: true },
  { layout: 'TN', M: 7, N: 5, K: 9, bStride: 15, bOffset: 5 },
  { layout: 'NT', M: 37, N: 12, K: 20, aStride: 60, aOffset: 40, accumulate: true },
  { layout: 'TN', M: 20, N: 12, K: 36, aStride: 60, aOffset: 20 },
  { layout: 'NN', M: 9, N: 5, K: 7, aStride: 21, aOffset: 14, accumulate: true },
  // A row tile of a large weight, and of its gradient.
  { layout: 'NN', M: 9, N: 12, K: 7, bOffset: 36, accumulate: true },
  { layout: 'TN', M: 7, N: 12, K: 20, cOffset: 36, accumulate: true, partial: true },
  ...epilogues.map((epilogue): MatmulProblem => ({ layout: 'NN', M: 17, N: 33, K: 65, epilogue, scale: 0.3 })),
  { layout: 'NT', M: 1, N: 36, K: 20, epilogue: 'biasGelu' },
  // Small quotients, and such that tanh is 1.
  { layout: 'NT', M: 17, N: 36, K: 20, epilogue: 'softcap', scale: 30 },
  { layout: 'NN', M: 3, N: 65, K: 64, epilogue: 'softcap', scale: 0.5 },
  // Behind a low-rank update, which the product goes on from.
  ...epilogues.map((epilogue): MatmulProblem => ({ layout: 'NT', M: 17, N: 33, K: 65, accumulate: true, epilogue })),
  { layout: 'NN', M: 20, N: 12, K: 36, accumulate: true, epilogue: 'geluGradient' },
  // Some columns of C, as a row tile of a weight stored transposed gives them.
  ...epilogues.map(
    (epilogue): MatmulProblem => ({
      ...{ layout: 'NT', M: 17, N: 20, K: 12, cStride: 37, cOffset: 9, biasOffset: 9, partial: true },
      ...{ epilogue, scale: 0.3 },
    }),
  ),
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

/** Attention over a packed projection, as in training. */
export function packed(p: AttentionBackwardProblem): AttentionProblem {
  const stride = (p.heads + 2 * p.kvHeads) * p.headSize;
  const kOffset = p.heads * p.headSize;
  const vOffset = (p.heads + p.kvHeads) * p.headSize;
  return { ...p, kvRows: p.seq, qStride: stride, qOffset: 0, kStride: stride, kOffset, vStride: stride, vOffset };
}

const attentions: AttentionBackwardProblem[] = [
  { batch: 1, seq: 1, heads: 1, kvHeads: 1, headSize: 4 },
  { batch: 2, seq: 3, heads: 2, kvHeads: 2, headSize: 5 },
  { batch: 1, seq: 37, heads: 8, kvHeads: 2, headSize: 8 },
  { batch: 3, seq: 16, heads: 1, kvHeads: 1, headSize: 10 },
  { batch: 2, seq: 65, heads: 4, kvHeads: 4, headSize: 16 },
  { batch: 1, seq: 37, heads: 5, kvHeads: 1, headSize: 24 },
  { batch: 1, seq: 33, heads: 3, kvHeads: 3, headSize: 32 },
  { batch: 1, seq: 65, heads: 1, kvHeads: 1, headSize: 64 },
  // Tiles are of 4, 16 or 32 rows: windows of one token, up to a tile's border, past it, past the row.
  { batch: 1, seq: 37, heads: 2, kvHeads: 2, headSize: 8, mask: { window: 1 } },
  { batch: 2, seq: 67, heads: 3, kvHeads: 1, headSize: 5, mask: { window: 32 } },
  { batch: 1, seq: 37, heads: 3, kvHeads: 3, headSize: 12, mask: { window: 100 } },
  { batch: 1, seq: 70, heads: 2, kvHeads: 1, headSize: 32, mask: { window: 33 } },
  { batch: 2, seq: 101, heads: 4, kvHeads: 2, headSize: 16, mask: { window: 7 } },
  // A scale of its own.
  { batch: 1, seq: 37, heads: 4, kvHeads: 1, headSize: 12, mask: { window: 6 }, scale: 20 ** -0.5 },
  { batch: 2, seq: 33, heads: 2, kvHeads: 1, headSize: 5, scale: 1 },
  { batch: 1, seq: 1, heads: 2, kvHeads: 1, headSize: 8, mask: 'none' },
  { batch: 3, seq: 37, heads: 4, kvHeads: 2, headSize: 5, mask: 'none' },
  { batch: 1, seq: 65, heads: 3, kvHeads: 3, headSize: 16, mask: 'none' },
  // In the first row one document, in the second those of one token, in the others of any length. With one head, the
  // lanes of a workgroup work on different rows.
  { batch: 1, seq: 37, heads: 2, kvHeads: 2, headSize: 8, mask: 'documents' },
  { batch: 5, seq: 37, heads: 1, kvHeads: 1, headSize: 12, mask: 'documents' },
  { batch: 3, seq: 101, heads: 4, kvHeads: 2, headSize: 16, mask: 'documents' },
  { batch: 4, seq: 67, heads: 3, kvHeads: 1, headSize: 5, mask: 'documents' },
  // In the first row no padding, in the second one token alone, in the third holes, in the others any length.
  { batch: 3, seq: 1, heads: 2, kvHeads: 1, headSize: 8, mask: 'padding' },
  { batch: 5, seq: 37, heads: 1, kvHeads: 1, headSize: 12, mask: 'padding' },
  { batch: 3, seq: 101, heads: 4, kvHeads: 2, headSize: 16, mask: 'padding' },
  { batch: 4, seq: 67, heads: 3, kvHeads: 3, headSize: 5, mask: 'padding' },
];

/** Over a cache of 70 rows a batch: unpacked keys and values, queries at an odd stride or a wide one. */
const overCache: AttentionBackwardProblem[] = [
  { batch: 2, seq: 1, heads: 4, kvHeads: 2, headSize: 16 },
  { batch: 1, seq: 37, heads: 2, kvHeads: 1, headSize: 12 },
  { batch: 2, seq: 3, heads: 3, kvHeads: 3, headSize: 5 },
  { batch: 2, seq: 1, heads: 4, kvHeads: 2, headSize: 16, mask: { window: 5 } },
  { batch: 1, seq: 37, heads: 2, kvHeads: 1, headSize: 12, mask: { window: 9 } },
  { batch: 2, seq: 3, heads: 3, kvHeads: 3, headSize: 5, mask: { window: 2 } },
  { batch: 1, seq: 1, heads: 4, kvHeads: 1, headSize: 16, scale: 0.1 },
  { batch: 2, seq: 3, heads: 4, kvHeads: 2, headSize: 16, mask: 'none' },
  { batch: 2, seq: 3, heads: 3, kvHeads: 3, headSize: 5, mask: 'none' },
  { batch: 3, seq: 1, heads: 4, kvHeads: 2, headSize: 16, mask: 'documents' },
  { batch: 3, seq: 37, heads: 1, kvHeads: 1, headSize: 12, mask: 'documents' },
  { batch: 2, seq: 3, heads: 3, kvHeads: 3, headSize: 5, mask: 'documents' },
];

const cached: AttentionProblem[] = overCache.map((p) => {
  const width = p.kvHeads * p.headSize;
  const q = { qStride: p.heads * p.headSize + 4, qOffset: 4 };
  return { ...p, ...q, kvRows: 70, kStride: width, kOffset: 0, vStride: width, vOffset: 0 };
});

/** Where the queries of a problem over a cache begin; the last problem's rows end with the cache. */
const positionOf = (p: AttentionProblem) => (p.kvRows === p.seq ? 0 : p.headSize === 5 ? 68 : 31);

/** What the mask asks for: for each query the first key of its document (over a cache, one begun before the queries), or the keys that are no padding. */
function maskInputs(p: AttentionProblem, random: Draws): Inputs {
  if (p.mask === 'padding') {
    const lengths = Array.from({ length: p.batch }, () => random.integer(1, p.seq + 1));
    const keyMask = Int32Array.from({ length: p.batch * p.seq }, (_, i) => {
      const [row, key] = [Math.floor(i / p.seq), i % p.seq];
      if (row === 0) return 1;
      if (row === 1) return Number(key === p.seq >> 1);
      return Number(row === 2 ? key === 0 || random.uniform() < 0.6 : key < lengths[row]!);
    });
    return { keyMask };
  }
  if (p.mask !== 'documents') return {};
  const position = positionOf(p);
  if (position > 0) {
    const begins = Array.from({ length: p.batch }, () => random.integer(0, position + 1));
    return { documentStarts: Uint32Array.from({ length: p.batch * p.seq }, (_, i) => begins[Math.floor(i / p.seq)]!) };
  }
  let document = 0;
  const documents = Int32Array.from({ length: p.batch * p.seq }, (_, i) => {
    const row = Math.floor(i / p.seq);
    if (row === 1 || (row > 1 && random.uniform() < 0.1)) document++;
    return document;
  });
  return { documentStarts: documentStarts(documents, p.seq) };
}

/** The packed rows, a gradient, and what the forward pass leaves for the backward one. */
function attentionGradients(p: AttentionBackwardProblem, random: Draws): Inputs {
  const forward = packed(p);
  const qkv = random.normals(p.batch * p.seq * forward.qStride);
  const dy = random.normals(p.batch * p.seq * p.heads * p.headSize);
  const masks = maskInputs(forward, random);
  const given = { q: qkv, k: qkv, v: qkv, position: new Uint32Array(1), ...masks };
  const arrays = toArrays(attention, forward, given);
  attention.reference(forward, arrays);
  const after = fields(arrays, 'y', 'lse');
  const rows = { rows: p.batch * p.seq, heads: p.heads, headSize: p.headSize };
  const deltas = { dy: Float64Array.from(dy), y: after.y, delta: new Float64Array(after.lse.length / 2) };
  attentionDelta.reference(rows, deltas);
  return { qkv, dy, lse: Float32Array.from(after.lse), delta: Float32Array.from(deltas.delta), ...masks };
}

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
      { rows: 131, width: 36, stride: 84, offset: 40, rowsPerBlock: 33, accumulate: true },
      // Behind others, which stay.
      { rows: 37, width: 5, stride: 5, offset: 0, rowsPerBlock: 37, accumulate: false, into: 9 },
      { rows: 19, width: 12, stride: 12, offset: 0, rowsPerBlock: 7, accumulate: true, into: 8 },
    ],
  }),
  row({
    kernel: rmsnorm,
    problems: [
      ...norms,
      { rows: 3, width: 5, eps: 1e-6, gainOffset: 1 },
      { rows: 66, width: 268, eps: 1e-6, gainOffset: 1 },
      { rows: FOLDED_ROWS, width: 3, eps: 1e-5 },
    ],
  }),
  row({
    kernel: rmsnormBackward,
    problems: [
      ...normBackwards,
      { rows: 3, width: 5, accumulate: true, gainOffset: 1 },
      { rows: 66, width: 268, accumulate: false, gainOffset: 1 },
    ],
    inputs: ({ rows }, random) => ({ rstd: random.uniforms(rows, 0.5, 2) }),
  }),
  row({
    kernel: rmsnormParameterGrad,
    problems: parameterGrads,
    inputs: ({ rows }, random) => ({ rstd: random.uniforms(rows, 0.5, 2) }),
  }),
  row({
    kernel: headNorm,
    problems: headRows.flatMap((heads) => [
      { ...heads, eps: 1e-6 },
      { ...heads, eps: 1e-5, gainOffset: 1 },
    ]),
  }),
  row({
    kernel: headNormBackward,
    problems: headRows.flatMap((heads) => [heads, { ...heads, gainOffset: 1 }]),
    inputs: ({ rows }, random) => ({ rstd: random.uniforms(rows, 0.5, 2) }),
  }),
  row({ kernel: headNormParameterGrad, problems: headRows }),
  ...[gelu, geluBackward, geluErf, geluErfBackward].map((kernel) =>
    row({ kernel, problems: elementwise, inputs: ({ size }, random) => ({ x: random.normals(size, 3) }) }),
  ),
  row({ kernel: tanh, problems: elementwise, inputs: ({ size }, random) => ({ x: random.normals(size, 3) }) }),
  row({
    kernel: tanhBackward,
    problems: elementwise,
    inputs: ({ size }, random) => ({ y: random.normals(size, 3).map(Math.tanh) }),
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
  row({
    kernel: geglu,
    problems: elementwise,
    inputs: ({ size }, random) => ({ gate: random.normals(size, 3) }),
  }),
  row({
    kernel: gegluBackward,
    problems: elementwise,
    inputs: ({ size }, random) => ({ gate: random.normals(size, 3) }),
  }),
  row({ kernel: add, problems: [...elementwise, { size: FOLDED_ITEMS }] }),
  row({
    kernel: dropout,
    problems: elementwise.flatMap(({ size }, stream): DropoutProblem[] => [
      { size, rate: 0.3, stream, accumulate: false },
      { size, rate: 0.3, stream, accumulate: true },
      { size, rate: 0, stream, accumulate: false },
    ]),
    inputs: (_problem, random) => ({ key: Uint32Array.from(random.integers(KEY_WORDS, 0, 2 ** 31 - 1)) }),
  }),
  row({ kernel: fill, problems: elementwise.map(({ size }) => ({ size, value: -1.5 })) }),
  row({
    kernel: rope,
    problems: [
      { rows: 1, seq: 1, heads: 1, headSize: 2, stride: 2, offset: 0, positions: 3, inverse: false },
      { rows: 15, seq: 5, heads: 3, headSize: 6, stride: 25, offset: 3, positions: 37, inverse: false },
      { rows: 65, seq: 65, heads: 2, headSize: 10, stride: 20, offset: 0, positions: 129, inverse: true },
      { rows: 15, seq: 5, heads: 3, headSize: 8, stride: 60, offset: 28, positions: 37, inverse: true },
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
      { rows: 1, width: 1, vocabulary: 1 },
      { rows: 15, width: 37, vocabulary: 11 },
      { rows: 65, width: 3, vocabulary: 129 },
      { rows: 74, width: 20, vocabulary: 7 },
      { rows: 37, width: 5, vocabulary: 11, scale: Math.sqrt(5) },
      // The rows of one tile of the table, of which y already holds the others.
      { rows: 65, width: 12, vocabulary: 129, firstRow: 37, rowCount: 65 },
    ],
    // Two ids lie outside the vocabulary.
    inputs: ({ rows, vocabulary }, random) => ({ ids: random.integers(rows, -1, vocabulary + 1) }),
  }),
  row({
    kernel: positionEmbedding,
    problems: [
      { rows: 1, seq: 1, width: 1, positions: 1 },
      { rows: 15, seq: 5, width: 37, positions: 8 },
      { rows: 74, seq: 37, width: 5, positions: 37 },
      { rows: 74, seq: 37, width: 20, positions: 37 },
      { rows: 74, seq: 37, width: 5, positions: 37, firstRow: 5, rowCount: 17 },
    ],
    // Position 3 takes the longest row past the table.
    inputs: () => ({ position: new Uint32Array([3]) }),
  }),
  row({
    kernel: embeddingBackward,
    problems: [
      { rows: 1, width: 1, vocabulary: 1 },
      { rows: 15, width: 37, vocabulary: 5 },
      { rows: 129, width: 3, vocabulary: 1000 },
      { rows: 129, width: 12, vocabulary: 11 },
      { rows: 129, width: 5, vocabulary: 11, scale: Math.sqrt(5) },
      { rows: 129, width: 3, vocabulary: 37, firstRow: 5, rowCount: 17 },
      { rows: 129, width: 4, vocabulary: 37, fromRow: 11, toRow: 30 },
      { rows: 129, width: 3, vocabulary: 37, firstRow: 5, rowCount: 17, fromRow: 7, toRow: 19 },
    ],
    inputs: ({ rows, vocabulary }, random) => ({ ...tokenIndex(random.integers(rows, 0, vocabulary)) }),
  }),
  row({
    kernel: positionBackward,
    problems: [
      { batch: 1, seq: 1, width: 1, positions: 1, accumulate: false },
      { batch: 3, seq: 5, width: 37, positions: 8, accumulate: false },
      { batch: 5, seq: 7, width: 3, positions: 65, accumulate: true },
      { batch: 3, seq: 37, width: 5, positions: 65, firstRow: 17, rowCount: 37, accumulate: false },
    ],
  }),
  row({ kernel: matmul, problems: matmuls }),
  row({
    kernel: crossEntropyTile,
    problems: [
      { rows: 1, tile: 1, first: 0, begin: true },
      { rows: 3, tile: 5, first: 0, begin: true },
      { rows: 37, tile: 129, first: 65, begin: false },
      { rows: 65, tile: 65, first: 130, begin: true },
      // Four floats at a time, within rows and across their ends.
      { rows: 37, tile: 132, first: 65, begin: false },
      { rows: 36, tile: 65, first: 0, begin: true },
      { rows: 12, tile: 3, first: 3, begin: false },
      // Rows in the middle of more.
      { rows: 37, tile: 33, first: 65, begin: false, firstRow: 129 },
      { rows: 12, tile: 36, first: 0, begin: true, firstRow: 5 },
    ],
    inputs: ({ rows, tile, first, firstRow = 0 }, random) => ({
      logits: random.normals(rows * tile, 4),
      targets: targets(random, firstRow + rows, first + tile + 3),
      sum: random.uniforms(firstRow + rows, 1, 9),
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
    kernel: crossEntropyHits,
    problems: [1, 37, 129].map((rows) => ({ rows, ignoreIndex: IGNORE })),
    // Some of the targets are the highest.
    inputs({ rows }, random) {
      const maximum = random.normals(rows);
      const picked = maximum.map((value) => (random.uniform() < 0.5 ? value : value - 1));
      return { maximum, picked, targets: targets(random, rows, 5) };
    },
  }),
  row({
    kernel: crossEntropyBackward,
    problems: [
      { rows: 1, tile: 1, first: 0, ignoreIndex: IGNORE },
      { rows: 3, tile: 5, first: 5, ignoreIndex: IGNORE },
      { rows: 37, tile: 129, first: 65, ignoreIndex: IGNORE },
      { rows: 65, tile: 199, first: 0, ignoreIndex: IGNORE },
      { rows: 37, tile: 132, first: 65, ignoreIndex: IGNORE },
      { rows: 36, tile: 65, first: 0, ignoreIndex: IGNORE },
      { rows: 12, tile: 1, first: 1, ignoreIndex: IGNORE },
      { rows: 37, tile: 33, first: 65, ignoreIndex: IGNORE, softcap: 9 },
      { rows: 12, tile: 36, first: 0, ignoreIndex: IGNORE, softcap: 30 },
      { rows: 37, tile: 33, first: 65, ignoreIndex: IGNORE, firstRow: 129 },
      { rows: 12, tile: 36, first: 0, ignoreIndex: IGNORE, softcap: 30, firstRow: 5 },
    ],
    inputs: ({ rows, tile, first, firstRow = 0 }, random) => ({
      logits: random.normals(rows * tile, 2),
      lse: Float32Array.from({ length: 2 * (firstRow + rows) }, (_, i) => (i % 2 === 0 ? 4 : 3) + random.uniform()),
      targets: targets(random, firstRow + rows, first + tile + 3),
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
    kernel: recordNorm,
    problems: [{}],
    inputs: () => ({ normSquared: new Float32Array([7.3]), state: someState() }),
  }),
  row({
    kernel: adamw,
    problems: [
      { size: 1 },
      { size: 37, maskOffset: 33 },
      { size: 129 },
      { size: 33 * BLOCK + 5, maskOffset: 30 },
      { size: 33 * BLOCK + 4, maskOffset: 30 },
      { size: FOLDED_ITEMS },
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
  }),
  row({
    kernel: attention,
    problems: [...attentions.map(packed), ...cached],
    // Rows of the cache that no query of any batch sees hold NaN.
    inputs(p, random) {
      const position = positionOf(p);
      const { k, v } = fields(attention.operands(p), 'k', 'v');
      const keys = random.normals(k.size);
      const values = random.normals(v.size);
      const masks = maskInputs(p, random);
      const arrays = Object.fromEntries(Object.entries(masks).map(([name, list]) => [name, Float64Array.from(list)]));
      const seen = Array.from({ length: p.batch * p.seq }, (_, i) => keysSeen(p.mask, { ...p, position }, i, arrays));
      for (let row = 0; row < p.batch * p.kvRows; row++) {
        const key = row % p.kvRows;
        // Padding is read, and weighs nothing.
        if (p.mask === 'padding' || seen.some((keys) => keys.includes(key))) continue;
        keys.fill(Number.NaN, row * p.kStride, (row + 1) * p.kStride);
        values.fill(Number.NaN, row * p.vStride, (row + 1) * p.vStride);
      }
      return { k: keys, v: values, position: new Uint32Array([position]), ...masks };
    },
  }),
  row({
    kernel: copyRows,
    problems: [
      { batch: 1, rows: 1, width: 1, xRows: 1, xFirst: 0, yRows: 1, yFirst: 0 },
      // Behind a row in front, that row for all, and back.
      { batch: 3, rows: 16, width: 5, xRows: 16, xFirst: 0, yRows: 17, yFirst: 1, partial: true },
      { batch: 3, rows: 1, width: 12, xRows: 0, xFirst: 0, yRows: 17, yFirst: 0, partial: true },
      { batch: 5, rows: 37, width: 36, xRows: 38, xFirst: 1, yRows: 37, yFirst: 0 },
      { batch: 3, rows: 1, width: 37, xRows: 17, xFirst: 0, yRows: 1, yFirst: 0, accumulate: true },
    ],
  }),
  row({
    kernel: patches,
    problems: [
      { batch: 1, channels: 1, height: 1, width: 1, patchHeight: 1, patchWidth: 1 },
      { batch: 2, channels: 3, height: 8, width: 8, patchHeight: 4, patchWidth: 4 },
      { batch: 1, channels: 2, height: 6, width: 15, patchHeight: 2, patchWidth: 5 },
      { batch: 3, channels: 1, height: 28, width: 28, patchHeight: 7, patchWidth: 7 },
    ],
  }),
  row({
    kernel: attentionDelta,
    problems: [
      { rows: 1, heads: 1, headSize: 1 },
      { rows: 37, heads: 3, headSize: 5 },
      { rows: 65, heads: 5, headSize: 16 },
    ],
  }),
  row({ kernel: attentionBackwardQ, problems: attentions, inputs: attentionGradients }),
  row({ kernel: attentionBackwardKV, problems: attentions, inputs: attentionGradients }),
  row({
    kernel: cacheAppend,
    problems: [
      { batch: 1, seq: 1, width: 1, stride: 1, offset: 0, capacity: 4 },
      { batch: 3, seq: 5, width: 37, stride: 111, offset: 74, capacity: 9 },
      { batch: 3, seq: 5, width: 36, stride: 108, offset: 72, capacity: 7 },
      // Position 3 takes the last rows past the capacity.
      { batch: 2, seq: 7, width: 5, stride: 5, offset: 0, capacity: 8 },
    ],
    inputs: () => ({ position: new Uint32Array([3]) }),
  }),
];
