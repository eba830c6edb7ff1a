// y = x W (+ bias), with the epilogues of a transformer block fused in: GELU, or the residual stream.
// x is (..., in); W is stored (in, out) as GPT-2 does, or (out, in) as Llama does.

import { geluBackward } from '../../kernels/gelu.ts';
import { type Epilogue, matmul } from '../../kernels/matmul.ts';
import { at } from '../../util/at.ts';
import { assert } from '../../util/errors.ts';
import type { Graph, Tensor } from '../graph.ts';
import { addGradient } from './add.ts';
import { sumRows } from './sum-rows.ts';

export type Stored = 'in,out' | 'out,in';

/** y += scale * (x A^T) B^T, with A (r, in) and B (out, r). */
export interface Lora {
  a: Tensor;
  b: Tensor;
  scale: number;
}

export interface LinearOptions {
  bias?: Tensor;
  /** @default 'in,out' */
  stored?: Stored;
  /** y = gelu(x W + bias); needs a bias. @default false */
  gelu?: boolean;
  /** y = residual + (x W + bias), of y's shape. */
  residual?: Tensor;
  /** A low-rank update of W; not together with gelu or residual. */
  lora?: Lora;
}

const features = (weight: Tensor, stored: Stored): [number, number] => {
  const [first, second] = weight.shape as [number, number];
  return stored === 'in,out' ? [first, second] : [second, first];
};

/** x (..., in) -> y (..., out). */
export function linear(g: Graph, x: Tensor, weight: Tensor, options: LinearOptions = {}): Tensor {
  const { bias, residual, lora, stored = 'in,out', gelu = false } = options;
  assert(!gelu || (bias && !residual), 'a fused gelu needs a bias and takes no residual');
  assert(!lora || !(gelu || residual), 'lora goes with neither gelu nor residual');
  const label = weight.name;
  const [K, N] = features(weight, stored);
  const M = x.size / K;
  const shape = [...x.shape.slice(0, -1), N];
  const sources = [x, weight, bias, residual, lora?.a, lora?.b].filter((tensor) => tensor !== undefined);

  // What the product itself becomes: y, or what GELU makes y of.
  const sum = g.activation(gelu ? `${label} before gelu` : label, shape, sources);
  const y = gelu ? { ...g.activation(label, shape, sources), geluOf: sum } : sum;
  let epilogue: Epilogue = bias ? 'bias' : 'none';
  if (gelu) epilogue = 'biasGelu';
  if (residual) epilogue = bias ? 'biasResidual' : 'residual';
  const operands: Record<string, Tensor> = { a: x, b: weight, c: y };
  if (bias) operands['bias'] = bias;
  if (residual) operands['residual'] = residual;
  if (gelu) operands['preactivation'] = sum;
  g.emit(matmul, { layout: stored === 'in,out' ? 'NN' : 'NT', M, N, K, epilogue }, operands, label);
  const low = lora ? loraForward(g, x, y, lora, M) : undefined;

  g.onBackward(sum, (dy) => {
    weightGradient(g, x, dy, weight, { M, stored, column: 0, width: N });
    if (bias?.wantsGradient) {
      const { gradient, accumulate } = g.gradientTarget(bias);
      sumRows(g, dy, gradient, { rows: M, width: N, accumulate }, bias.name);
    }
    if (lora && low) loraBackward(g, x, dy, lora, low, M);
    inputGradient(g, x, dy, weight, { M, stored, column: 0, width: N });
    if (residual?.wantsGradient && !g.aliasGradient(residual, dy)) addGradient(g, residual, dy, label);
  });
  if (gelu) {
    // Reached only when the consumer could not fold the derivative into its own product.
    g.onBackward(y, (dy) => {
      const { gradient } = g.gradientTarget(sum);
      g.emit(geluBackward, { size: y.size }, { dy, x: sum, dx: gradient }, label);
    });
  }
  return y;
}

/** One of several projections of the same x: a weight (in, out), and a bias (out) where it has one. */
export interface Projection {
  weight: Tensor;
  bias?: Tensor | undefined;
}

/** x (..., in), several projections to out_i -> y (..., sum of out_i), side by side in one packed tensor. */
export function packedLinear(
  g: Graph,
  x: Tensor,
  projections: readonly Projection[],
  stored: Stored,
  label: string,
): Tensor {
  let width = 0;
  const parts = projections.map(({ weight, bias }) => {
    const [, N] = features(weight, stored);
    width += N;
    return { weight, bias, N, column: width - N };
  });
  const K = at(x.shape, x.shape.length - 1);
  const M = x.size / K;
  const sources = parts.flatMap(({ weight, bias }) => (bias ? [weight, bias] : [weight]));
  const y = g.activation(label, [...x.shape.slice(0, -1), width], [x, ...sources]);
  const layout = stored === 'in,out' ? 'NN' : 'NT';
  for (const { weight, bias, N, column } of parts) {
    const problem = { layout, M, N, K, cStride: width, cOffset: column, partial: column > 0 } as const;
    if (bias) g.emit(matmul, { ...problem, epilogue: 'bias' }, { a: x, b: weight, c: y, bias }, weight.name);
    else g.emit(matmul, problem, { a: x, b: weight, c: y }, weight.name);
  }
  g.onBackward(y, (dy) => {
    for (const { weight, bias, N, column } of parts) {
      weightGradient(g, x, dy, weight, { M, stored, column, width });
      if (!bias?.wantsGradient) continue;
      const { gradient, accumulate } = g.gradientTarget(bias);
      sumRows(g, dy, gradient, { rows: M, width: N, stride: width, offset: column, accumulate }, bias.name);
    }
    for (const { weight, column } of parts) inputGradient(g, x, dy, weight, { M, stored, column, width });
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
function weightGradient(g: Graph, x: Tensor, dy: Tensor, weight: Tensor, { M, stored, column, width }: Slice): void {
  if (!weight.wantsGradient) return;
  const { gradient, accumulate } = g.gradientTarget(weight);
  const [inputs, outputs] = features(weight, stored);
  if (stored === 'in,out') {
    g.emit(
      matmul,
      { layout: 'TN', M: inputs, N: outputs, K: M, bStride: width, bOffset: column, accumulate },
      { a: x, b: dy, c: gradient },
      weight.name,
    );
  } else {
    g.emit(
      matmul,
      { layout: 'TN', M: outputs, N: inputs, K: M, aStride: width, aOffset: column, accumulate },
      { a: dy, b: x, c: gradient },
      weight.name,
    );
  }
}

/** dx (+)= dy W^T; when x is a GELU's output of which this is the only use, straight on to the GELU's input. */
function inputGradient(g: Graph, x: Tensor, dy: Tensor, weight: Tensor, { M, stored, column, width }: Slice): void {
  if (!x.wantsGradient) return;
  const [inputs, outputs] = features(weight, stored);
  const layout = stored === 'in,out' ? 'NT' : 'NN';
  const problem = { layout, M, N: inputs, K: outputs, aStride: width, aOffset: column } as const;
  // Uses counted over the forward pass and this rule's weight gradient: the product and dW are two.
  const onlyUse = g.uses(x) <= (weight.wantsGradient ? 2 : 1);
  if (x.geluOf && onlyUse) {
    const { gradient } = g.gradientTarget(x.geluOf);
    g.emit(
      matmul,
      { ...problem, epilogue: 'geluGradient' },
      { a: dy, b: weight, c: gradient, preactivation: x.geluOf },
      weight.name,
    );
    return;
  }
  const { gradient, accumulate } = g.gradientTarget(x);
  g.emit(matmul, { ...problem, accumulate }, { a: dy, b: weight, c: gradient }, weight.name);
}

/** y += (scale * x A^T) B^T; returns the scaled low-rank activation (rows, r). */
function loraForward(g: Graph, x: Tensor, y: Tensor, { a, b, scale }: Lora, M: number): Tensor {
  const [r, K] = a.shape as [number, number];
  const N = at(b.shape, 0);
  const low = g.activation(a.name, [M, r], [x, a]);
  g.emit(matmul, { layout: 'NT', M, N: r, K, epilogue: 'scale', scale }, { a: x, b: a, c: low }, a.name);
  g.emit(matmul, { layout: 'NT', M, N, K: r, accumulate: true }, { a: low, b, c: y }, b.name);
  return low;
}

function loraBackward(g: Graph, x: Tensor, dy: Tensor, { a, b, scale }: Lora, low: Tensor, M: number): void {
  const [r, K] = a.shape as [number, number];
  const N = at(b.shape, 0);
  const dlow = g.activation(`d ${a.name}`, [M, r]);
  weightGradient(g, low, dy, b, { M, stored: 'out,in', column: 0, width: N });
  g.emit(matmul, { layout: 'NN', M, N: r, K: N, epilogue: 'scale', scale }, { a: dy, b, c: dlow }, b.name);
  weightGradient(g, x, dlow, a, { M, stored: 'out,in', column: 0, width: r });
  if (x.wantsGradient) {
    const { gradient, accumulate } = g.gradientTarget(x);
    g.emit(matmul, { layout: 'NN', M, N: K, K: r, accumulate }, { a: dlow, b: a, c: gradient }, a.name);
  }
}
