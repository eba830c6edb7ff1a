// The kernels on the device against PyTorch's float64 results (test/fixtures/reference/ops), within the
// tolerances that come with them: 4 x the worst of two float32 CPU implementations. Nothing is added to them; a GPU may be off
// by as many of them as what WGSL promises of its arithmetic comes to.

import { describe, expect, it } from 'vitest';
import { parse } from '../../src/formats/safetensors.ts';
import { ACTIVATIONS } from '../../src/kernels/activations.ts';
import { adamw } from '../../src/kernels/adamw.ts';
import { type AttentionProblem, attention } from '../../src/kernels/attention.ts';
import { attentionBackwardKV, attentionBackwardQ } from '../../src/kernels/attention-backward.ts';
import { type AttentionMask, documentStarts } from '../../src/kernels/attention-mask.ts';
import { columnSum } from '../../src/kernels/column-sum.ts';
import { crossEntropyBackward, crossEntropyLoss, crossEntropyTile } from '../../src/kernels/cross-entropy.ts';
import { embedding, embeddingBackward, tokenIndex } from '../../src/kernels/embedding.ts';
import { geglu, gegluBackward, swiglu, swigluBackward } from '../../src/kernels/gated.ts';
import { headNorm, headNormBackward, headNormParameterGrad } from '../../src/kernels/head-norm.ts';
import { ceilDiv, type Kernel, type Variant } from '../../src/kernels/kernel.ts';
import { layernorm, layernormBackward, layernormGradients } from '../../src/kernels/layernorm.ts';
import { matmul } from '../../src/kernels/matmul.ts';
import type { Layout, MatmulProblem } from '../../src/kernels/matmul-problem.ts';
import { ROW_BLOCK } from '../../src/kernels/norm-gradients.ts';
import { patches } from '../../src/kernels/patches.ts';
import { rmsnorm, rmsnormBackward, rmsnormGradients } from '../../src/kernels/rmsnorm.ts';
import { type RopeScaling, rope, ropeTable } from '../../src/kernels/rope.ts';
import { STATE, stepControl } from '../../src/kernels/step-control.ts';
import { BLOCK, sumSquares } from '../../src/kernels/sum-squares.ts';
import { ALLOWED_MULTIPLE } from '../../src/parity/verdict.ts';
import { at } from '../../src/util/at.ts';
import { entry, field, fields, leading } from '../entry.ts';
import { type HostArray, isWorthwhile, runKernel, runnable, testDevice } from '../harness.ts';
import { testHost, VERBOSE } from '../host.ts';
import { hyperOf } from './inputs.ts';

const FOLDER = 'test/fixtures/reference/ops';
const TOLERANCES = (await testDevice()).traits.software ? 1 : ALLOWED_MULTIPLE;
const read = (file: string) => testHost.files.read(`${FOLDER}/${file}`);

interface Case {
  op: string;
  file: string;
  attrs: Record<string, number>;
  inputs: Record<string, number[]>;
  outputs: Record<string, { tol_abs: number }>;
}

const { cases } = JSON.parse(new TextDecoder().decode(await read('index.json'))) as { cases: Case[] };

/** Runs a variant of a kernel: the one of that name, or the default. */
async function run<P>(kernel: Kernel<P>, problem: P, data: Record<string, HostArray>, name?: string) {
  const variants = await runnable(kernel);
  const [fallback] = leading(1, variants);
  const variant = variants.find((candidate) => candidate.name === name) ?? fallback;
  return runKernel(kernel, variant, problem, data);
}

/** One of its results. */
const output = async <P>(result: string, ...of: Parameters<typeof run<P>>): Promise<HostArray> =>
  field(await run(...of), result);

/** One case: its inputs, and a check of its outputs. */
class Reference {
  readonly description: Case;
  readonly #tensors: ReturnType<typeof parse>;

  static async open(description: Case): Promise<Reference> {
    return new Reference(description, parse(await read(description.file), description.file));
  }

  private constructor(description: Case, tensors: ReturnType<typeof parse>) {
    this.description = description;
    this.#tensors = tensors;
  }

  attrs<Name extends string>(...names: Name[]): Record<Name, number> {
    return fields(this.description.attrs, ...names);
  }

  input(name: string): HostArray {
    return entry(this.#tensors, name).data as HostArray;
  }

  inputs<Name extends string>(...names: Name[]): Record<Name, HostArray> {
    return Object.fromEntries(names.map((name) => [name, this.input(name)])) as Record<Name, HostArray>;
  }

  shape(name: string): readonly number[] {
    return field(this.description.inputs, name);
  }

  expect(name: string, result: ArrayLike<number>): void {
    const wanted = entry(this.#tensors, name).data as Float64Array;
    const { tol_abs } = field(this.description.outputs, name);
    expect(result.length).toBe(wanted.length);
    let worst = 0;
    for (let i = 0; i < wanted.length; i++) {
      expect(Number.isFinite(result[i]), `${name}[${i}] is ${result[i]}`).toBe(true);
      worst = Math.max(worst, Math.abs(result[i]! - wanted[i]!));
    }
    if (VERBOSE) {
      console.log(`${this.description.file} ${name}: ${(worst / tol_abs).toFixed(3)} of the tolerance`);
    }
    const allowed = TOLERANCES * tol_abs;
    expect(worst, `${name} is off by ${worst}, allowed ${allowed}`).toBeLessThanOrEqual(allowed);
  }
}

function describeOp(op: string, check: (reference: Reference) => Promise<void>): void {
  const own = cases.filter((candidate) => candidate.op === op);
  describe(op, () => {
    it('has cases', () => expect(own.length).toBeGreaterThan(0));
    it.each(own.map((candidate) => [candidate.file, candidate]))('%s', async (_, candidate) =>
      check(await Reference.open(candidate)),
    );
  });
}

const product = (shape: readonly number[]) => shape.reduce((a, b) => a * b, 1);

/** Adds the blocks of a parameter gradient up. */
async function sumBlocks(partials: HostArray, rows: number, width: number): Promise<HostArray> {
  const blocks = ceilDiv(rows, ROW_BLOCK);
  const problem = { rows: blocks, width, stride: width, offset: 0, rowsPerBlock: blocks, accumulate: false };
  return output('y', columnSum, problem, { x: partials });
}

describeOp('layernorm', async (reference) => {
  const shape = reference.shape('x');
  const width = at(shape, shape.length - 1);
  const rows = product(shape) / width;
  const { x, weight, bias, dy } = reference.inputs('x', 'weight', 'bias', 'dy');
  for (const variant of ['rows', 'workgroup']) {
    const results = await run(layernorm, { rows, width, ...reference.attrs('eps') }, { x, weight, bias }, variant);
    const { y, mean, rstd } = fields(results, 'y', 'mean', 'rstd');
    reference.expect('y', y);
    const data = { dy, x, weight, mean, rstd };
    const anew = { accumulate: false, accumulateWeight: false, accumulateBias: false };
    reference.expect('dx', await output('dx', layernormBackward, { rows, width, accumulate: false }, data, variant));
    const gradients = await run(layernormGradients, { rows, width, ...anew }, data, variant);
    for (const name of ['dx', 'dweight', 'dbias']) reference.expect(name, field(gradients, name));
  }
});

async function checkRMSNorm(reference: Reference, gainOffset?: number): Promise<void> {
  const shape = reference.shape('x');
  const width = at(shape, shape.length - 1);
  const rows = product(shape) / width;
  const gain = gainOffset === undefined ? {} : { gainOffset };
  const { x, weight, dy } = reference.inputs('x', 'weight', 'dy');
  for (const variant of ['rows', 'workgroup']) {
    const results = await run(rmsnorm, { rows, width, ...reference.attrs('eps'), ...gain }, { x, weight }, variant);
    const { y, rstd } = fields(results, 'y', 'rstd');
    reference.expect('y', y);
    const data = { dy, x, weight, rstd };
    const anew = { accumulate: false, accumulateWeight: false, ...gain };
    reference.expect('dx', await output('dx', rmsnormBackward, { rows, width, ...anew }, data, variant));
    const gradients = await run(rmsnormGradients, { rows, width, ...anew }, data, variant);
    for (const name of ['dx', 'dweight']) reference.expect(name, field(gradients, name));
  }
}

describeOp('rmsnorm', (reference) => checkRMSNorm(reference));
describeOp('rmsnorm_one_plus', (reference) => checkRMSNorm(reference, 1));

describeOp('head_rmsnorm', async (reference) => {
  const attrs = reference.attrs('heads', 'head_dim', 'offset', 'stride', 'eps', 'one_plus');
  const { heads, head_dim: width, offset, stride, eps, one_plus } = attrs;
  const rows = (product(reference.shape('x')) / stride) * heads;
  const gain = one_plus ? { gainOffset: 1 } : {};
  const problem = { rows, heads, width, stride, offset };
  // A kernel touches nothing behind the last head, and is given no more.
  const used = field(headNorm.operands({ ...problem, eps }), 'x').size;
  const whole = (name: string, part: HostArray) => {
    const all = Float32Array.from(reference.input(name));
    all.set(part);
    return all;
  };
  const { x, weight, dy } = reference.inputs('x', 'weight', 'dy');
  for (const variant of ['rows', 'workgroup']) {
    const data = { x: x.slice(0, used), weight };
    const after = await run(headNorm, { ...problem, eps, ...gain }, data, variant);
    const { x: y, normal, rstd } = fields(after, 'x', 'normal', 'rstd');
    reference.expect('y', whole('x', y));
    const given = { normal, weight, rstd, dx: dy.slice(0, used) };
    const dx = await output('dx', headNormBackward, { ...problem, ...gain }, given, variant);
    reference.expect('dx', whole('dy', dx));
    const partials = await output('partials', headNormParameterGrad, problem, { dy: dy.slice(0, used), normal });
    reference.expect('dweight', await sumBlocks(partials, rows, width));
  }
});

describe.each([
  ['gelu_new', 'biasGelu', ACTIVATIONS.gelu.backward],
  ['gelu_erf', 'biasGeluErf', ACTIVATIONS.geluErf.backward],
] as const)('%s', (op, epilogue, backward) => {
  describeOp(op, async (reference) => {
    const { x, dy } = reference.inputs('x', 'dy');
    // The product is 1 x, which is exact.
    const problem: MatmulProblem = { layout: 'NN', M: 1, N: x.length, K: 1, epilogue };
    const data = { a: new Float32Array([1]), b: x, bias: new Float32Array(x.length) };
    reference.expect('y', await output('c', matmul, problem, data));
    reference.expect('dx', await output('dx', backward, { size: x.length }, { x, dx: dy }));
  });
});

describe.each([
  ['swiglu', swiglu, swigluBackward],
  ['geglu', geglu, gegluBackward],
] as const)('%s', (op, forward, backward) => {
  describeOp(op, async (reference) => {
    const { gate, up, dy } = reference.inputs('gate', 'up', 'dy');
    reference.expect('y', await output('y', forward, { size: gate.length }, { gate, up }));
    const results = await run(backward, { size: gate.length }, { up, dgate: gate, dup: dy });
    const { dgate, dup } = fields(results, 'dgate', 'dup');
    reference.expect('dgate', dgate);
    reference.expect('dup', dup);
  });
});

/** Columns first..first+tile-1 of a (rows, vocabulary) matrix. */
function columns(matrix: HostArray, rows: number, vocabulary: number, first: number, tile: number): Float32Array {
  return Float32Array.from({ length: rows * tile }, (_, i) => {
    return matrix[Math.floor(i / tile) * vocabulary + first + (i % tile)]!;
  });
}

/** The operators that are a product, or three. */
const PRODUCTS = ['matmul', 'conv1d', 'linear'];
const products = PRODUCTS.flatMap((name) => cases.filter(({ op }) => op === name));

/** Of the product's variants those that are worth their compilation in a case. */
async function worthwhile({ description }: Reference): Promise<Variant<MatmulProblem>[]> {
  const index = products.indexOf(description);
  const variants = await runnable(matmul);
  const isWorth = await Promise.all(variants.map((variant) => isWorthwhile(variant, index, 16)));
  return variants.filter((_, i) => isWorth[i]);
}

describeOp('matmul', async (reference) => {
  const { mode, accumulate } = reference.description.attrs as unknown as { mode: Layout; accumulate: boolean };
  const { M, N, K } = reference.attrs('M', 'N', 'K');
  const data: Record<string, HostArray> = { a: reference.input('A'), b: reference.input('B') };
  if (accumulate) data.c = reference.input('C0');
  for (const { name } of await worthwhile(reference)) {
    reference.expect('C', await output('c', matmul, { layout: mode, M, N, K, accumulate }, data, name));
  }
});

/** y = x W + b with W (in, out), or (out, in); dx, dW and db. */
async function checkLinear(reference: Reference, stored: 'in,out' | 'out,in'): Promise<void> {
  const [rows, inputs] = leading(2, reference.shape('x'));
  const [outputs] = leading(1, reference.shape('bias'));
  const { x, weight, bias, dy } = reference.inputs('x', 'weight', 'bias', 'dy');
  const forward: MatmulProblem = { layout: 'NN', M: rows, N: outputs, K: inputs, epilogue: 'bias' };
  const toInput: MatmulProblem = { layout: 'NT', M: rows, N: inputs, K: outputs };
  const toWeight: MatmulProblem = { layout: 'TN', M: inputs, N: outputs, K: rows };
  if (stored === 'out,in') {
    Object.assign(forward, { layout: 'NT' });
    Object.assign(toInput, { layout: 'NN' });
    Object.assign(toWeight, { M: outputs, N: inputs });
  }
  const gradients = stored === 'in,out' ? { a: x, b: dy } : { a: dy, b: x };
  for (const { name } of await worthwhile(reference)) {
    reference.expect('y', await output('c', matmul, forward, { a: x, b: weight, bias }, name));
    reference.expect('dx', await output('c', matmul, toInput, { a: dy, b: weight }, name));
    reference.expect('dweight', await output('c', matmul, toWeight, gradients, name));
  }
  const sum = { rows, width: outputs, stride: outputs, offset: 0, rowsPerBlock: rows, accumulate: false };
  reference.expect('dbias', await output('y', columnSum, sum, { x: dy }));
}

describeOp('conv1d', (reference) => checkLinear(reference, 'in,out'));
describeOp('linear', (reference) => checkLinear(reference, 'out,in'));

/** y = x W^T + scale (x A^T) B^T by the products that an adapted linear is made of, and dx, dA and dB; W is frozen. */
describeOp('lora_linear', async (reference) => {
  const [rows, inputs] = leading(2, reference.shape('x'));
  const [outputs, rank] = leading(2, reference.shape('B'));
  const { x, weight, A, B, dy } = reference.inputs('x', 'weight', 'A', 'B', 'dy');
  const scaled = { epilogue: 'scale', ...reference.attrs('scale') } as const;
  const product = (problem: MatmulProblem, a: HostArray, b: HostArray, c?: HostArray) =>
    output('c', matmul, { ...problem, accumulate: c !== undefined }, { a, b, ...(c && { c }) });
  const low = await product({ layout: 'NT', M: rows, N: rank, K: inputs, ...scaled }, x, A);
  const update = await product({ layout: 'NT', M: rows, N: outputs, K: rank }, low, B);
  reference.expect('y', await product({ layout: 'NT', M: rows, N: outputs, K: inputs }, x, weight, update));
  reference.expect('dB', await product({ layout: 'TN', M: outputs, N: rank, K: rows }, dy, low));
  const dlow = await product({ layout: 'NN', M: rows, N: rank, K: outputs, ...scaled }, dy, B);
  reference.expect('dA', await product({ layout: 'TN', M: rank, N: inputs, K: rows }, dlow, x));
  const dx = await product({ layout: 'NN', M: rows, N: inputs, K: outputs }, dy, weight);
  reference.expect('dx', await product({ layout: 'NN', M: rows, N: inputs, K: rank }, dlow, A, dx));
});

/** A product with it is exact. */
const identity = (size: number): Float32Array =>
  Float32Array.from({ length: size ** 2 }, (_, i) => (i % (size + 1) === 0 ? 1 : 0));

/** Logits squashed by matmul's epilogue. */
async function capped(logits: HostArray, rows: number, vocabulary: number, scale: number): Promise<HostArray> {
  const problem = { layout: 'NT', M: rows, N: vocabulary, K: vocabulary, epilogue: 'softcap', scale } as const;
  return output('c', matmul, problem, { a: logits, b: identity(vocabulary) });
}

async function checkCrossEntropy(reference: Reference, cap: { softcap?: number } = {}): Promise<void> {
  const [rows, vocabulary] = leading(2, reference.shape('logits'));
  const { ignore_index: ignoreIndex, valid } = reference.attrs('ignore_index', 'valid');
  const { logits: given, targets } = reference.inputs('logits', 'targets');
  const logits = cap.softcap === undefined ? given : await capped(given, rows, vocabulary, cap.softcap);
  // The whole vocabulary, halves, and tiles that leave an odd rest.
  for (const [width, variant] of [
    [vocabulary, 'rows'],
    [vocabulary, 'workgroup'],
    [ceilDiv(vocabulary, 2), 'rows'],
    [37, 'workgroup'],
    [7, 'rows'],
  ] as const) {
    let statistics: Record<string, HostArray> = {};
    for (let first = 0; first < vocabulary; first += width) {
      const tile = Math.min(width, vocabulary - first);
      const data = { ...statistics, targets, logits: columns(logits, rows, vocabulary, first, tile) };
      statistics = await run(crossEntropyTile, { rows, tile, first, begin: first === 0 }, data, variant);
    }
    const losses = await run(crossEntropyLoss, { rows, ignoreIndex }, { ...statistics, targets });
    const { loss, lse } = fields(losses, 'loss', 'lse');
    reference.expect('per_token', loss);

    const sum = { rows, width: 1, stride: 1, offset: 0, rowsPerBlock: rows, accumulate: false };
    const lossSum = await output('y', columnSum, sum, { x: loss });
    const state = await output(
      'state',
      stepControl,
      {},
      {
        lossSum,
        normSquared: new Float32Array(1),
        hyper: hyperOf({ lossScale: 1 / valid }),
        state: new Float32Array(STATE.size),
      },
    );
    reference.expect('loss', [state[STATE.loss]!]);

    const dlogits = new Float32Array(rows * vocabulary);
    for (let first = 0; first < vocabulary; first += width) {
      const tile = Math.min(width, vocabulary - first);
      const scale = new Float32Array([1 / valid]);
      const part =
        cap.softcap === undefined
          ? await output(
              'c',
              matmul,
              {
                ...{ layout: 'NT', M: rows, N: tile, K: vocabulary, bOffset: first * vocabulary },
                ...{ epilogue: 'crossEntropy', firstLabel: first, ignoreIndex },
              },
              {
                a: logits,
                b: identity(vocabulary).subarray(0, (first + tile) * vocabulary),
                lse,
                targets,
                gradientScale: scale,
              },
            )
          : await output(
              'logits',
              crossEntropyBackward,
              { rows, tile, first, ignoreIndex, softcap: cap.softcap },
              { lse, targets, scale, logits: columns(logits, rows, vocabulary, first, tile) },
            );
      part.forEach((value, i) => {
        dlogits[Math.floor(i / tile) * vocabulary + first + (i % tile)] = value;
      });
    }
    reference.expect('dlogits', dlogits);
  }
}

describeOp('cross_entropy', (reference) => checkCrossEntropy(reference));
describeOp('softcap_cross_entropy', (reference) => {
  return checkCrossEntropy(reference, reference.attrs('softcap'));
});

async function checkRope(reference: Reference, scaling?: RopeScaling): Promise<void> {
  const [batch, heads, seq, headSize] = leading(4, reference.shape('x'));
  const { pos0, theta } = reference.attrs('pos0', 'theta');
  // (B, H, T, D) here is (B, T, H, D) in the kernel.
  const index = (i: number) => {
    const d = i % headSize;
    const t = Math.floor(i / headSize) % seq;
    const h = Math.floor(i / headSize / seq) % heads;
    const b = Math.floor(i / headSize / seq / heads);
    return ((b * seq + t) * heads + h) * headSize + d;
  };
  const turn = async (name: string, inverse: boolean) => {
    const given = reference.input(name);
    const x = new Float32Array(given.length);
    given.forEach((value, i) => {
      x[index(i)] = value;
    });
    const positions = pos0 + seq;
    const stride = heads * headSize;
    const problem = { rows: batch * seq, seq, heads, headSize, stride, offset: 0, positions, inverse };
    const table = ropeTable(positions, headSize, theta, scaling);
    const turned = await output('x', rope, problem, { table, position: new Uint32Array([pos0]), x });
    return Float32Array.from(given, (_, i) => turned[index(i)]!);
  };
  reference.expect('y', await turn('x', false));
  reference.expect('dx', await turn('dy', true));
}

describeOp('rope', (reference) => checkRope(reference));

/** Each stretch of rows whose positions go up by one is a sequence of its own. */
describeOp('rope_positions', async (reference) => {
  const [batch, heads, seq, headSize] = leading(4, reference.shape('x'));
  const { theta } = reference.attrs('theta');
  const ids = reference.input('position_ids');
  const positions = Math.max(...ids) + 1;
  const table = ropeTable(positions, headSize, theta);
  const turn = async (name: string, inverse: boolean) => {
    const given = Float32Array.from(reference.input(name));
    for (let first = 0, end = 0; first < batch * seq; first = end) {
      for (end = first + 1; end % seq !== 0 && ids[end] === ids[end - 1]! + 1; ) end++;
      const rows = end - first;
      // (B, H, T, D) here is (T, H, D) in the kernel.
      const index = (i: number) => {
        const [row, head] = [first + Math.floor(i / headSize / heads), Math.floor(i / headSize) % heads];
        return ((Math.floor(row / seq) * heads + head) * seq + (row % seq)) * headSize + (i % headSize);
      };
      const x = Float32Array.from({ length: rows * heads * headSize }, (_, i) => given[index(i)]!);
      const shape = { rows, seq: rows, heads, headSize, stride: heads * headSize, offset: 0, positions };
      const data = { table, position: new Uint32Array([ids[first]!]), x };
      const turned = await output('x', rope, { ...shape, inverse }, data);
      turned.forEach((value, i) => {
        given[index(i)] = value;
      });
    }
    return given;
  };
  reference.expect('y', await turn('x', false));
  reference.expect('dx', await turn('dy', true));
});

describeOp('rope_llama3', (reference) => {
  const names = ['factor', 'low_freq_factor', 'high_freq_factor', 'original_max_position_embeddings'] as const;
  const attrs = reference.attrs(...names);
  const { factor, low_freq_factor: low, high_freq_factor: high, original_max_position_embeddings: positions } = attrs;
  return checkRope(reference, { kind: 'llama3', factor, low, high, positions });
});

type HeadsShape = readonly [batch: number, heads: number, seq: number, size: number];

interface Heads {
  readonly data: HostArray;
  readonly shape: HeadsShape;
}

/** (B, H, T, D) heads side by side, as (B, T, packed row). */
function packRows(...tensors: readonly [Heads, ...Heads[]]): Float32Array {
  const [batch, , seq, size] = tensors[0].shape;
  const stride = tensors.reduce((sum, { shape }) => sum + shape[1] * size, 0);
  const rows = new Float32Array(batch * seq * stride);
  let column = 0;
  for (const { data, shape } of tensors) {
    data.forEach((value, i) => {
      const head = Math.floor(i / size / seq) % shape[1];
      const row = Math.floor(i / size / seq / shape[1]) * seq + (Math.floor(i / size) % seq);
      rows[row * stride + column + head * size + (i % size)] = value;
    });
    column += shape[1] * size;
  }
  return rows;
}

/** Columns of packed rows as (B, H, T, D). */
function unpackRows(rows: HostArray, shape: HeadsShape, stride: number, column: number): Float32Array {
  const [, heads, seq, size] = shape;
  return Float32Array.from({ length: product(shape) }, (_, i) => {
    const head = Math.floor(i / size / seq) % heads;
    const row = Math.floor(i / size / seq / heads) * seq + (Math.floor(i / size) % seq);
    return rows[row * stride + column + head * size + (i % size)]!;
  });
}

const attentionVariants = await runnable(attentionBackwardQ);

async function checkAttention(
  reference: Reference,
  mask: AttentionMask,
  masks: Record<string, HostArray> = {},
): Promise<void> {
  const tensor = (name: string): Heads => ({ data: reference.input(name), shape: leading(4, reference.shape(name)) });
  const [q, k, v] = [tensor('q'), tensor('k'), tensor('v')];
  const [batch, heads, seq, headSize] = q.shape;
  const [, kvHeads, kvRows] = k.shape;
  const kvWidth = kvHeads * headSize;
  const width = heads * headSize;
  const dy = packRows(tensor('dy'));
  const { q_offset: offset = 0 } = reference.description.attrs;
  const position = new Uint32Array([offset]);
  const index = cases.filter(({ op }) => op.endsWith('_attention')).indexOf(reference.description);
  for (const { name } of [...attentionVariants, { name: 'rows' }]) {
    if (!(await isWorthwhile({ name }, index, 18))) continue;
    const problem: AttentionProblem = {
      ...{ batch, seq, heads, kvHeads, headSize, kvRows, qStride: width, qOffset: 0 },
      ...{ kStride: kvWidth, kOffset: 0, vStride: kvWidth, vOffset: 0, mask },
    };
    const given = { q: packRows(q), k: packRows(k), v: packRows(v), position, ...masks };
    const { y, lse } = fields(await run(attention, problem, given, name), 'y', 'lse');
    reference.expect('y', unpackRows(y, q.shape, width, 0));
    if (offset > 0 || name === 'rows') continue; // training starts at position 0, generation has no gradient

    const qkv = packRows(q, k, v);
    const data = { qkv, dy, lse, ...masks };
    const backward = { batch, seq, heads, kvHeads, headSize, mask };
    const ofQueries = { ...data, y, dqkv: new Float32Array(qkv.length) };
    const { dqkv, delta } = fields(await run(attentionBackwardQ, backward, ofQueries, name), 'dqkv', 'delta');
    const gradients = await output('dqkv', attentionBackwardKV, backward, { ...data, delta, dqkv }, name);
    const stride = width + 2 * kvWidth;
    reference.expect('dq', unpackRows(gradients, q.shape, stride, 0));
    reference.expect('dk', unpackRows(gradients, k.shape, stride, width));
    reference.expect('dv', unpackRows(gradients, v.shape, stride, width + kvWidth));
  }
}

describeOp('causal_attention', (reference) => checkAttention(reference, 'causal'));
describeOp('window_attention', (reference) => checkAttention(reference, reference.attrs('window')));
describeOp('document_attention', (reference) => {
  const [batch, seq] = leading(2, reference.shape('document_ids'));
  const starts = documentStarts(reference.input('document_ids'), seq);
  expect(starts).toHaveLength(batch * seq);
  return checkAttention(reference, 'documents', { documentStarts: starts });
});
describeOp('padded_attention', (reference) => {
  if (!('attention_mask' in reference.description.inputs)) return checkAttention(reference, 'none');
  return checkAttention(reference, 'padding', { keyMask: reference.input('attention_mask') });
});

describeOp('patch_embedding', async (reference) => {
  const [batch, channels, height, width] = leading(4, reference.shape('x'));
  const [patchHeight, patchWidth] = reference.description.attrs['patch'] as unknown as [number, number];
  const [outputs] = leading(1, reference.shape('weight'));
  const problem = { batch, channels, height, width, patchHeight, patchWidth };
  const rows = await output('y', patches, problem, { pixels: reference.input('x') });
  const inputs = channels * patchHeight * patchWidth;
  const count = rows.length / inputs;
  const { weight, bias, dy } = reference.inputs('weight', 'bias', 'dy');
  const forward: MatmulProblem = { layout: 'NT', M: count, N: outputs, K: inputs, epilogue: 'bias' };
  reference.expect('y', await output('c', matmul, forward, { a: rows, b: weight, bias }));
  const gradient: MatmulProblem = { layout: 'TN', M: outputs, N: inputs, K: count };
  reference.expect('dweight', await output('c', matmul, gradient, { a: dy, b: rows }));
  const sum = { rows: count, width: outputs, stride: outputs, offset: 0, rowsPerBlock: count, accumulate: false };
  reference.expect('dbias', await output('y', columnSum, sum, { x: dy }));
});

describeOp('embedding', async (reference) => {
  const [vocabulary, width] = leading(2, reference.shape('weight'));
  const ids = reference.input('ids') as Int32Array;
  const rows = ids.length;
  const weight = reference.input('weight');
  reference.expect('y', await output('y', embedding, { rows, width, vocabulary }, { ids, weight }));
  const data = { ...tokenIndex(ids), dy: reference.input('dy'), dweight: new Float32Array(vocabulary * width) };
  reference.expect('dweight', await output('dweight', embeddingBackward, { rows, width, vocabulary }, data));
});

describeOp('adamw', async (reference) => {
  const { step, lr, beta1, beta2, ...attrs } = reference.attrs('step', 'lr', 'beta1', 'beta2', 'eps', 'weight_decay');
  const hyper = hyperOf({
    learningRate: lr,
    oneMinusBeta1: 1 - beta1,
    oneMinusBeta2: 1 - beta2,
    epsilon: attrs.eps,
    weightDecay: attrs.weight_decay,
  });
  const before = new Float32Array(STATE.size);
  before[STATE.correction1] = 1 - beta1 ** (step - 1);
  before[STATE.correction2] = 1 - beta2 ** (step - 1);
  const [normSquared, lossSum] = [new Float32Array(1), new Float32Array(1)];
  const state = await output('state', stepControl, {}, { normSquared, lossSum, hyper, state: before });
  const { p: parameter, g: gradient, m, v } = reference.inputs('p', 'g', 'm', 'v');
  const data = { gradient, hyper, state, decayMask: new Uint32Array([1]), parameter, m, v };
  const results = await run(adamw, { size: parameter.length }, data);
  reference.expect('p_new', field(results, 'parameter'));
  reference.expect('m_new', field(results, 'm'));
  reference.expect('v_new', field(results, 'v'));
});

describeOp('clip_grad_norm', async (reference) => {
  const names = ['g0', 'g1', 'g2'];
  let partials: HostArray = new Float32Array(0);
  for (const name of names) {
    const x = reference.input(name);
    const first: number = partials.length;
    const longer = new Float32Array(first + ceilDiv(x.length, BLOCK));
    longer.set(partials);
    partials = await output('partials', sumSquares, { size: x.length, first }, { x, partials: longer });
  }
  const rows = partials.length;
  const sum = { rows, width: 1, stride: 1, offset: 0, rowsPerBlock: rows, accumulate: false };
  const normSquared = await output('y', columnSum, sum, { x: partials });
  const hyper = hyperOf({ maxNorm: reference.attrs('max_norm').max_norm });
  const lossSum = new Float32Array(1);
  const state = await output(
    'state',
    stepControl,
    {},
    { normSquared, lossSum, hyper, state: new Float32Array(STATE.size) },
  );
  reference.expect('norm', [state[STATE.gradNorm]!]);
  for (const name of names) {
    const clipped = Float32Array.from(reference.input(name), (g) => g * state[STATE.coefficient]!);
    reference.expect(`${name}_new`, clipped);
  }
});
