// Is each backward reference the derivative of its forward reference? Central differences in float64 along
// random directions, on the problems of the table. No device: kernels.test.ts ties kernels to references.

import { describe, expect, it } from 'vitest';
import { ACTIVATIONS } from '../../src/kernels/activations.ts';
import { attention } from '../../src/kernels/attention.ts';
import { attentionBackwardKV, attentionBackwardQ } from '../../src/kernels/attention-backward.ts';
import { columnSum } from '../../src/kernels/column-sum.ts';
import { crossEntropyBackward, crossEntropyLoss, crossEntropyTile } from '../../src/kernels/cross-entropy.ts';
import {
  embedding,
  embeddingBackward,
  positionBackward,
  positionEmbedding,
  tokenIndex,
} from '../../src/kernels/embedding.ts';
import { geglu, gegluBackward, swiglu, swigluBackward } from '../../src/kernels/gated.ts';
import { headNorm, headNormBackward, headNormParameterGrad } from '../../src/kernels/head-norm.ts';
import { type Arrays, ceilDiv, type Kernel } from '../../src/kernels/kernel.ts';
import { layernorm, layernormBackward, layernormGradients } from '../../src/kernels/layernorm.ts';
import { matmul } from '../../src/kernels/matmul.ts';
import { ROW_BLOCK } from '../../src/kernels/norm-gradients.ts';
import { putHeads } from '../../src/kernels/put-heads.ts';
import { rmsnorm, rmsnormBackward, rmsnormGradients } from '../../src/kernels/rmsnorm.ts';
import { rope } from '../../src/kernels/rope.ts';
import { tanh, tanhBackward } from '../../src/kernels/tanh.ts';
import { at } from '../../src/util/at.ts';
import { field, fields } from '../entry.ts';
import { packed } from './attention-cases.ts';
import { cases } from './cases.ts';
import { Draws, IGNORE, inputsOf, toArrays } from './inputs.ts';

/** The operands of a kernel after its reference ran; `data` is left as it is. */
function run<P>(kernel: Kernel<P>, problem: P, data: Arrays): Arrays {
  const operands = Object.entries(kernel.operands(problem)).map(([name, { access, size }]) => [
    name,
    access === 'write' ? new Float64Array(size) : field(data, name).slice(),
  ]);
  const after = Object.fromEntries(operands) as Arrays;
  kernel.reference(problem, after);
  return after;
}

/** One of them. */
const output = <P>(name: string, kernel: Kernel<P>, problem: P, data: Arrays): Float64Array =>
  field(run(kernel, problem, data), name);

const dot = (a: Float64Array, b: Float64Array) => a.reduce((sum, value, i) => sum + value * b[i]!, 0);

const random = new Draws(7);
const normals = (size: number) => Float64Array.from(random.normals(size));

const STEP = 1e-5;

/**
 * d loss(data) / d data[name] must be gradients[name]. A central difference errs by STEP^2 times the third
 * derivative (about 1e-10 here) and by the loss's rounding over STEP (about 1e-11): 1e-7 of the sum of
 * |gradient * direction| is far above both, and far below any wrong term.
 */
function expectGradients(data: Arrays, loss: (data: Arrays) => number, gradients: Arrays): void {
  for (const [name, gradient] of Object.entries(gradients)) {
    for (let trial = 0; trial < 3; trial++) {
      const direction = normals(gradient.length);
      const moved = (step: number) => ({
        ...data,
        [name]: field(data, name).map((value, i) => value + step * direction[i]!),
      });
      const numeric = (loss(moved(STEP)) - loss(moved(-STEP))) / (2 * STEP);
      const size = gradient.reduce((sum, value, i) => sum + Math.abs(value * direction[i]!), 0);
      const error = Math.abs(numeric - dot(gradient, direction));
      expect(error, `along ${name}: ${numeric} by differences`).toBeLessThanOrEqual(1e-7 * size + 1e-9);
    }
  }
}

/** A test for each problem of the kernel's row whose operands are small enough for plain JavaScript. */
function forEachProblem<P>(kernel: Kernel<P>, check: (problem: P, data: Arrays) => void): void {
  const found = cases.find((candidate) => candidate.kernel === (kernel as unknown));
  if (!found) throw new Error(`no row for ${kernel.name}`);
  const small = found.problems.filter((problem) =>
    Object.values(found.kernel.operands(problem)).every(({ size }) => size < 20_000),
  );
  describe(kernel.name, () => {
    it.each(small.map((problem) => [JSON.stringify(problem), problem]))('%s', (_, problem) => {
      check(problem, toArrays(kernel, problem, inputsOf(found, problem, 3)));
    });
  });
}

/** Adds the blocks of a parameter gradient up. */
function sumBlocks(partials: Float64Array, rows: number, width: number): Float64Array {
  const blocks = ceilDiv(rows, ROW_BLOCK);
  const problem = { rows: blocks, width, stride: width, offset: 0, rowsPerBlock: blocks, accumulate: false };
  return output('y', columnSum, problem, { x: partials });
}

forEachProblem(layernorm, (problem, data) => {
  const { rows, width } = problem;
  const dy = normals(rows * width);
  const { mean, rstd } = fields(run(layernorm, problem, data), 'mean', 'rstd');
  const given = { ...data, dy, mean, rstd };
  const backward = { rows, width, accumulate: false, accumulateWeight: false, accumulateBias: false };
  const { dx, dweight, dbias } = fields(run(layernormGradients, backward, given), 'dx', 'dweight', 'dbias');
  expect(output('dx', layernormBackward, { rows, width, accumulate: false }, given)).toEqual(dx);
  expectGradients(data, (moved) => dot(output('y', layernorm, problem, moved), dy), {
    ...{ x: dx, weight: dweight, bias: dbias },
  });
});

forEachProblem(rmsnorm, (problem, data) => {
  const { rows, width, gainOffset } = problem;
  const dy = normals(rows * width);
  const given = { ...data, dy, rstd: output('rstd', rmsnorm, problem, data) };
  const backward = { rows, width, accumulate: false, accumulateWeight: false, ...(gainOffset && { gainOffset }) };
  const { dx, dweight } = fields(run(rmsnormGradients, backward, given), 'dx', 'dweight');
  expect(output('dx', rmsnormBackward, backward, given)).toEqual(dx);
  expectGradients(data, (moved) => dot(output('y', rmsnorm, problem, moved), dy), {
    ...{ x: dx, weight: dweight },
  });
});

forEachProblem(headNorm, (problem, data) => {
  const dy = normals(field(data, 'x').length);
  const { normal, rstd } = fields(run(headNorm, problem, data), 'normal', 'rstd');
  const partials = output('partials', headNormParameterGrad, problem, { dy, normal });
  expectGradients(data, (moved) => dot(output('x', headNorm, problem, moved), dy), {
    x: output('dx', headNormBackward, problem, { ...data, normal, rstd, dx: dy }),
    weight: sumBlocks(partials, problem.rows, problem.width),
  });
});

for (const { value, backward } of Object.values(ACTIVATIONS))
  forEachProblem(backward, (problem, data) => {
    const { x, dx: dy } = fields(data, 'x', 'dx');
    expectGradients({ x }, (moved) => dot(field(moved, 'x').map(value), dy), {
      x: output('dx', backward, problem, { x, dx: dy }),
    });
  });

forEachProblem(tanh, (problem, data) => {
  const dy = normals(problem.size);
  const y = output('y', tanh, problem, data);
  expectGradients(data, (moved) => dot(output('y', tanh, problem, moved), dy), {
    x: output('dx', tanhBackward, problem, { y, dx: dy }),
  });
});

const gatedGradients = (backward: typeof swigluBackward, problem: { size: number }, data: Arrays, dy: Float64Array) => {
  const { gate, up } = fields(data, 'gate', 'up');
  return fields(run(backward, problem, { up, dgate: gate, dup: dy }), 'dgate', 'dup');
};

forEachProblem(swiglu, (problem, data) => {
  const dy = normals(problem.size);
  const { dgate, dup } = gatedGradients(swigluBackward, problem, data, dy);
  expectGradients(data, (moved) => dot(output('y', swiglu, problem, moved), dy), { gate: dgate, up: dup });
});

forEachProblem(geglu, (problem, data) => {
  const dy = normals(problem.size);
  const { dgate, dup } = gatedGradients(gegluBackward, problem, data, dy);
  expectGradients(data, (moved) => dot(output('y', geglu, problem, moved), dy), { gate: dgate, up: dup });
});

forEachProblem(rope, (problem, data) => {
  const dy = normals(field(data, 'x').length);
  const dx = output('x', rope, { ...problem, inverse: !problem.inverse }, { ...data, x: dy });
  expectGradients(data, (moved) => dot(output('x', rope, problem, moved), dy), { x: dx });
});

forEachProblem(embedding, (problem, table) => {
  const { rows, width, vocabulary } = problem;
  // Training: ids lie in the vocabulary.
  const weight = field(table, 'weight');
  const ids = field(table, 'ids').map((id) => Math.max(0, Math.min(id, vocabulary - 1)));
  const dy = normals(rows * width);
  const index = Object.entries(tokenIndex(Int32Array.from(ids))).map(([name, list]) => {
    return [name, Float64Array.from(list)];
  });
  const given = { ...Object.fromEntries(index), dy, dweight: new Float64Array(weight.length) };
  expectGradients({ ...table, ids }, (moved) => dot(output('y', embedding, problem, moved), dy), {
    weight: output('dweight', embeddingBackward, problem, given),
  });
});

forEachProblem(positionEmbedding, (problem, table) => {
  // Training: sequences start at position 0.
  const data = { ...table, position: new Float64Array(1) };
  const dy = normals(problem.rows * problem.width);
  const backward = { ...problem, batch: problem.rows / problem.seq, accumulate: false };
  expectGradients(data, (moved) => dot(output('y', positionEmbedding, problem, moved), dy), {
    positionWeight: output('dweight', positionBackward, backward, { dy }),
    y: dy,
  });
});

forEachProblem(attentionBackwardQ, (problem, data) => {
  const { batch, seq, headSize, heads, kvHeads, kvHeadsBefore = 0, allKvHeads = kvHeads, ...rest } = problem;
  const group = heads / kvHeads;
  const all = { ...rest, batch, seq, headSize, heads: group * allKvHeads, kvHeads: allKvHeads };
  const { qkv, dy: drawn, dqkv: drawnGradient } = fields(data, 'qkv', 'dy', 'dqkv');
  // Of some of the heads: the loss does not depend on the others.
  const isOwn = (head: number) => head >= group * kvHeadsBefore && head < group * kvHeadsBefore + heads;
  const dy = drawn.map((value, i) => (isOwn(Math.floor(i / headSize) % all.heads) ? value : 0));
  const { qkv: _qkv, dy: _dy, y: _y, lse: _lse, delta: _delta, dqkv: _dqkv, ...masks } = data;
  const forward = (x: Float64Array) =>
    run(attention, packed(all), { q: x, k: x, v: x, position: new Float64Array(1), ...masks });
  const { y, lse } = fields(forward(qkv), 'y', 'lse');
  const given = { qkv, dy, lse, ...masks };
  const empty = { delta: new Float64Array(batch * seq * all.heads), dqkv: new Float64Array(drawnGradient.length) };
  const { dqkv, delta } = fields(run(attentionBackwardQ, problem, { ...given, y, ...empty }), 'dqkv', 'delta');
  const x = output('dqkv', attentionBackwardKV, problem, { ...given, delta, dqkv });
  const places = { batch, seq, headSize, heads, kvHeads, kvHeadsBefore, allKvHeads };
  expectGradients({ qkv }, (moved) => dot(field(forward(field(moved, 'qkv')), 'y'), dy), {
    qkv: output('y', putHeads, places, { x, y: new Float64Array(qkv.length) }),
  });
});

describe('cross-entropy', () => {
  it.each([
    [1, [1], undefined],
    [5, [7], undefined],
    [37, [65, 64], undefined],
    [3, [1, 5, 2], undefined],
    [5, [7], 3],
    [37, [65, 64], 1.5],
  ])('%d rows, tiles %j, logits capped at %s', (rows, tiles, softcap) => {
    const vocabulary = tiles.reduce((a, b) => a + b);
    const targets = Float64Array.from({ length: rows }, (_, r) =>
      r % 4 === 3 ? IGNORE : random.integer(0, vocabulary),
    );
    const data = Object.fromEntries(tiles.map((tile, i) => [`tile${i}`, normals(rows * tile)])) as Arrays;
    const scale = 0.25;
    const firsts = tiles.map((_, i) => tiles.slice(0, i).reduce((a, b) => a + b, 0));

    /** What matmul's epilogue makes of its products. */
    const cap = (z: number) => (softcap === undefined ? z : softcap * Math.tanh(z / softcap));
    const logitsOf = (given: Arrays, i: number) => field(given, `tile${i}`).map(cap);
    const forward = (given: Arrays) => {
      let statistics: Arrays = {};
      tiles.forEach((tile, i) => {
        const problem = { rows, tile, first: at(firsts, i), begin: i === 0 };
        statistics = run(crossEntropyTile, problem, { ...statistics, targets, logits: logitsOf(given, i) });
      });
      return run(crossEntropyLoss, { rows, ignoreIndex: IGNORE }, { ...statistics, targets });
    };
    const lse = field(forward(data), 'lse');
    const gradients = tiles.map((tile, i) => {
      const of = { first: at(firsts, i), ignoreIndex: IGNORE };
      const logits = logitsOf(data, i);
      if (softcap) {
        const given = { lse, targets, scale: Float64Array.of(scale), logits };
        return [`tile${i}`, output('logits', crossEntropyBackward, { rows, tile, ...of, softcap }, given)];
      }
      // As a product with the identity.
      const b = Float64Array.from({ length: tile ** 2 }, (_, j) => (j % (tile + 1) === 0 ? 1 : 0));
      const sizes = { layout: 'NT', M: rows, N: tile, K: tile } as const;
      const end = { epilogue: 'crossEntropy', firstLabel: of.first, ignoreIndex: IGNORE } as const;
      const given = { a: logits, b, lse, targets, gradientScale: Float64Array.of(scale) };
      return [`tile${i}`, output('c', matmul, { ...sizes, ...end }, given)];
    });
    const loss = (given: Arrays) => scale * field(forward(given), 'loss').reduce((a, b) => a + b);
    expectGradients(data, loss, Object.fromEntries(gradients) as Arrays);
  });
});
