// y = x W (+ bias), with the epilogues of a transformer block fused in: an activation, or the residual stream.
// x is (..., in); W is stored (in, out) as GPT-2 does, or (out, in) as Llama does.

import { ACTIVATIONS, type ActivationName } from '../../kernels/activations.ts';
import { matmul } from '../../kernels/matmul.ts';
import { type Epilogue, epiloguesOf } from '../../kernels/matmul-problem.ts';
import { at } from '../../util/at.ts';
import { assert } from '../../util/errors.ts';
import type { Graph } from '../graph.ts';
import type { Tensor } from '../program.ts';
import { add, addGradient, addRow } from './add.ts';
import {
  adapterBackward,
  adapterForward,
  adapterInputGradient,
  type LowGradient,
  outerProduct,
  trainedOf,
} from './low-rank.ts';
import { overwritable } from './overwritable.ts';
import { sumRows } from './sum-rows.ts';
import { checkWhole, columnsInput, summedOutput, summedRows } from './tensor-parallel.ts';

export type Stored = 'in,out' | 'out,in';

export interface LinearOptions {
  bias?: Tensor;
  /** @default 'in,out' */
  stored?: Stored;
  /** y = activation(x W + bias); needs a bias. @default y = x W + bias */
  activation?: ActivationName;
  /** y = residual + (x W + bias), of y's shape. */
  residual?: Tensor;
}

/** Of a weight of more dimensions the first is what comes out, or in, as it is stored. */
const features = (weight: Tensor, stored: Stored): [number, number] => {
  const first = at(weight.shape, 0);
  const second = weight.size / first;
  return stored === 'in,out' ? [first, second] : [second, first];
};

/** x (..., in) -> y (..., out). */
export function linear(g: Graph, x: Tensor, weight: Tensor, options: LinearOptions = {}): Tensor {
  if (weight.split?.by === 'rows') return sharedLinear(g, x, weight, options);
  return ownLinear(g, columnsInput(g, x, weight), weight, options);
}

/** Each rank has rows of the weight, and what all have comes behind the sum. */
function sharedLinear(
  g: Graph,
  x: Tensor,
  weight: Tensor,
  { bias, residual, activation, ...options }: LinearOptions,
): Tensor {
  assert(!activation, 'a sum over ranks ends in no activation');
  const y = ownLinear(g, x, weight, options);
  const sum = g.rows ? summedRows(g, y, weight, bias) : y;
  if (bias && !g.rows) addRow(g, y, bias);
  return residual ? add(g, residual, sum, weight.name) : sum;
}

/** With the columns of the weight that this rank has, or the sum over ranks of what each makes of its rows. */
function ownLinear(g: Graph, x: Tensor, weight: Tensor, options: LinearOptions): Tensor {
  const { bias, residual, stored = 'in,out', activation } = options;
  if (!weight.split) checkWhole(x, weight.name);
  assert(!activation || (bias && !residual), 'a fused activation needs a bias and takes no residual');
  const label = weight.name;
  const [K, N] = features(weight, stored);
  const M = x.size / K;
  const shape = [...x.shape.slice(0, -1), N];
  const sources = [x, ...trainedOf(g, weight), bias, residual].filter((tensor) => tensor !== undefined);
  const made = (name: string): Tensor => withSplit(g.activation(name, shape, sources), [weight]);

  // What the product itself becomes: y, or what the activation makes y of.
  const sum = made(activation ? `${label} before ${activation}` : label);
  const y = activation ? { ...made(label), activationOf: { tensor: sum, activation } } : sum;
  let epilogue: Epilogue = bias ? 'bias' : 'none';
  if (activation) epilogue = epiloguesOf(activation).forward;
  if (residual) epilogue = bias ? 'biasResidual' : 'residual';
  const operands: Record<string, Tensor> = { a: x, b: weight, c: y };
  if (bias) operands['bias'] = bias;
  if (residual) operands['residual'] = residual;
  if (activation) operands['preactivation'] = sum;
  const low = adapterForward(g, x, y, g.adapterOf(weight), { M, column: 0, width: N, partial: false });
  const problem = { layout: stored === 'in,out' ? 'NN' : 'NT', M, N, K, epilogue } as const;
  g.emit(matmul, { ...problem, ...(low && { accumulate: true }) }, operands, label);
  summedOutput(g, y, x, weight);

  g.onBackward(sum, (dy) => {
    weightGradient(g, x, dy, weight, { M, stored, column: 0, width: N });
    if (bias?.wantsGradient) {
      const { gradient, accumulate } = g.gradientTarget(bias);
      sumRows(g, dy, gradient, { rows: M, width: N, accumulate, inSlices: true }, bias.name);
    }
    const dlow = adapterBackward(g, dy, low, { M, column: 0, width: N });
    inputGradient(g, x, dy, weight, { M, stored, column: 0, width: N }, dlow);
    if (residual?.wantsGradient && !g.aliasGradient(residual, dy)) addGradient(g, residual, dy, label);
  });
  if (activation) {
    // Reached only when the consumer could not fold the derivative into its own product.
    g.onBackward(y, (dy) => {
      const dx = overwritable(g, dy, `d ${sum.name}`);
      g.emit(ACTIVATIONS[activation].backward, { size: y.size }, { x: sum, dx }, label);
      if (!g.aliasGradient(sum, dx)) addGradient(g, sum, dx, label);
    });
  }
  return y;
}

/** A product is split by the columns of its weights, whatever it is a product of. */
function withSplit({ split: _, ...tensor }: Tensor, weights: readonly Tensor[]): Tensor {
  const split = weights.find((weight) => weight.split?.by === 'columns')?.split;
  return split ? { ...tensor, split } : tensor;
}

/** One of several projections of the same x: a weight (in, out), and a bias (out) where it has one. */
export interface Projection {
  weight: Tensor;
  bias?: Tensor | undefined;
}

/** x (..., in), several projections to out_i -> y (..., sum of out_i), side by side in one packed tensor. */
export function packedLinear(
  g: Graph,
  input: Tensor,
  projections: readonly Projection[],
  stored: Stored,
  label: string,
): Tensor {
  const x = projections.reduce((all, { weight }) => columnsInput(g, all, weight), input);
  let width = 0;
  const parts = projections.map(({ weight, bias }) => {
    const [, N] = features(weight, stored);
    width += N;
    return { weight, bias, N, column: width - N };
  });
  const K = at(x.shape, x.shape.length - 1);
  const M = x.size / K;
  const sources = parts.flatMap(({ weight, bias }) => [...trainedOf(g, weight), ...(bias ? [bias] : [])]);
  const made = g.activation(label, [...x.shape.slice(0, -1), width], [x, ...sources]);
  const y = withSplit(
    made,
    parts.map(({ weight }) => weight),
  );
  if (!y.split) checkWhole(x, label);
  const layout = stored === 'in,out' ? 'NN' : 'NT';
  const written = parts.map(({ weight, bias, N, column }) => {
    const partial = column > 0;
    const low = adapterForward(g, x, y, g.adapterOf(weight), { M, column, width, partial });
    const place = { cStride: width, cOffset: column, partial, ...(low && { accumulate: true }) };
    const problem = { layout, M, N, K, ...place } as const;
    if (bias) g.emit(matmul, { ...problem, epilogue: 'bias' }, { a: x, b: weight, c: y, bias }, weight.name);
    else g.emit(matmul, problem, { a: x, b: weight, c: y }, weight.name);
    return { weight, column, low };
  });
  g.onBackward(y, (dy) => {
    for (const { weight, bias, N, column } of parts) {
      weightGradient(g, x, dy, weight, { M, stored, column, width });
      if (!bias?.wantsGradient) continue;
      const { gradient, accumulate } = g.gradientTarget(bias);
      const sum = { rows: M, width: N, stride: width, offset: column, accumulate, inSlices: true };
      sumRows(g, dy, gradient, sum, bias.name);
    }
    const throughAll = written.map(({ weight, column, low }) => {
      return { weight, column, dlow: adapterBackward(g, dy, low, { M, column, width }) };
    });
    for (const { weight, column, dlow } of throughAll)
      inputGradient(g, x, dy, weight, { M, stored, column, width }, dlow);
  });
  return y;
}

/** Where the gradient of this weight's output lies in dy: `width` columns a row, from `column` on. */
interface Slice {
  M: number;
  stored: Stored;
  column: number;
  width: number;
}

/** dW = x^T dy (in, out), or dy^T x (out, in). */
function weightGradient(g: Graph, x: Tensor, dy: Tensor, weight: Tensor, slice: Slice): void {
  if (!weight.wantsGradient) return;
  if (slice.stored === 'out,in') outerProduct(g, dy, x, weight, slice);
  else {
    const { M, column, width } = slice;
    const [inputs, outputs] = features(weight, 'in,out');
    const { gradient, accumulate } = g.gradientTarget(weight);
    const problem = { M: inputs, N: outputs, K: M, bStride: width, bOffset: column, accumulate };
    g.emit(matmul, { layout: 'TN', ...problem }, { a: x, b: dy, c: gradient }, weight.name);
  }
}

/** dx (+)= dy W^T and what comes through the adapter; when x is an activation's output of which this is the only use, straight on to the activation's input. */
function inputGradient(
  g: Graph,
  x: Tensor,
  dy: Tensor,
  weight: Tensor,
  { M, stored, column, width }: Slice,
  low: LowGradient | undefined,
): void {
  if (!x.wantsGradient) return;
  const [inputs, outputs] = features(weight, stored);
  const layout = stored === 'in,out' ? 'NT' : 'NN';
  const problem = { layout, M, N: inputs, K: outputs, aStride: width, aOffset: column } as const;
  // Uses counted over the forward pass and this rule so far: the product, dW, and those of the adapter.
  const own = 1 + (weight.wantsGradient ? 1 : 0) + (low?.uses ?? 0);
  const preactivation = g.uses(x) <= own ? x.activationOf : undefined;
  const into = preactivation?.tensor ?? x;
  if (low) adapterInputGradient(g, low, into, M);
  const { gradient, accumulate } = g.gradientTarget(into);
  const operands = { a: dy, b: weight, c: gradient };
  if (preactivation) {
    const fused = {
      ...problem,
      epilogue: epiloguesOf(preactivation.activation).gradient,
      ...(accumulate && { accumulate }),
    };
    g.emit(matmul, fused, { ...operands, preactivation: into }, weight.name);
  } else g.emit(matmul, { ...problem, accumulate }, operands, weight.name);
}
