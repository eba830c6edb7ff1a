// The one table of kernels with their problems: kernel tests, gradient checks and the check of shader fragments read it. Lists of
// problems are in problems.ts and attention-cases.ts; inputs that a row does not say are standard normal (inputs.ts).

import { adamw } from '../../src/kernels/adamw.ts';
import { add, fill } from '../../src/kernels/add.ts';
import { attention } from '../../src/kernels/attention.ts';
import { attentionBackwardKV, attentionBackwardQ, attentionDelta } from '../../src/kernels/attention-backward.ts';
import { keysSeen } from '../../src/kernels/attention-mask.ts';
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
import { geluBackward, geluErfBackward } from '../../src/kernels/gelu.ts';
import { headNorm, headNormBackward, headNormParameterGrad } from '../../src/kernels/head-norm.ts';
import { layernorm, layernormBackward, layernormParameterGrad } from '../../src/kernels/layernorm.ts';
import { matmul } from '../../src/kernels/matmul.ts';
import { patches } from '../../src/kernels/patches.ts';
import { rmsnorm, rmsnormBackward, rmsnormParameterGrad } from '../../src/kernels/rmsnorm.ts';
import { rope, ropeTable } from '../../src/kernels/rope.ts';
import { recordNorm, stepControl } from '../../src/kernels/step-control.ts';
import { BLOCK, sumSquares } from '../../src/kernels/sum-squares.ts';
import { tanh, tanhBackward } from '../../src/kernels/tanh.ts';
import { field, fields } from '../entry.ts';
import { attentionGradients, attentions, cached, maskInputs, packed, positionOf } from './attention-cases.ts';
import { HYPERS, IGNORE, type KernelCase, someState, targets } from './inputs.ts';
import {
  elementwise,
  FOLDED_ITEMS,
  FOLDED_ROWS,
  headRows,
  matmuls,
  normBackwards,
  norms,
  parameterGrads,
} from './problems.ts';

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
  ...[geluBackward, geluErfBackward].map((kernel) =>
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
