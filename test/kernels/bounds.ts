// How far f32 arithmetic may lead a kernel from its float64 reference, element by element.
//
// Counted in ULP = 2^-23, relative: WGSL lets +, -, * round in either direction (one ulp), division is good
// to 2.5 ulp, sqrt to 4.5 (it is 1 / inverseSqrt), exp(x) to 3 + 2|x|, log to 3 or, on [0.5, 2], to 2^-21
// absolute (WGSL, "Floating point accuracy"). A sum of n terms in any order errs by at most n ulp of the
// sum of their absolute values. Second-order terms are left out, small change is rounded up.

import type { AttentionProblem } from '../../src/kernels/attention.ts';
import type { AttentionBackwardProblem } from '../../src/kernels/attention-backward.ts';
import { keysSeen } from '../../src/kernels/attention-mask.ts';
import { scaleOf } from '../../src/kernels/attention-tiles.ts';
import { geluOf } from '../../src/kernels/gelu.ts';
import type { HeadNormBackwardProblem, HeadNormProblem, HeadRows } from '../../src/kernels/head-norm.ts';
import type { Arrays } from '../../src/kernels/kernel.ts';
import { ROW_BLOCK } from '../../src/kernels/layernorm.ts';
import { type MatmulProblem, matmul } from '../../src/kernels/matmul.ts';
import { HYPER, STATE } from '../../src/kernels/step-control.ts';
import { BLOCK } from '../../src/kernels/sum-squares.ts';

export const ULP = 2 ** -23;

/** Results that underflow may be flushed to zero, and clamped tails are this small. */
const TINY = 1e-28;

/** What float64 loses where it computes 1 + tanh(u) near tanh(u) = -1. */
const CANCELLED = 2 ** -52;

type Bound = (i: number) => number;
/** A method, so that each may say which operands it reads. */
type Bounds<P> = { of(problem: P, before: Arrays, after: Arrays): Record<string, Bound> }['of'];
type MaskArrays = Partial<Arrays<'documentStarts' | 'keyMask'>>;

type BackwardArrays = Arrays<'qkv' | 'dy' | 'lse' | 'delta'> & MaskArrays;

const { abs, max, min, exp, log, sqrt } = Math;
const exact: Bound = () => 0;

/** The mean of term(0..n-1). */
function average(n: number, term: Bound): number {
  let sum = 0;
  for (let i = 0; i < n; i++) sum += term(i);
  return sum / n;
}

/** A bound computed once a row, then asked for each element of it. */
function byRow(width: number, make: (r: number) => (c: number) => number): Bound {
  let row = -1;
  let bound: (c: number) => number = exact;
  return (i) => {
    const r = Math.floor(i / width);
    if (r !== row) {
      row = r;
      bound = make(r);
    }
    return bound(i - r * width);
  };
}

/** Ulps of exp(x), and of its argument when that was computed with `argument` relative ulps. */
const expUlps = (x: number, argument = 0) => 3 + (2 + argument) * abs(x);

interface Rows {
  rows: number;
  width: number;
  accumulate?: boolean;
  gainOffset?: number;
}

/** |g|, mean |g| and mean |g n| |n|: the terms of dx / rstd, with g = dy * weight and n the normalised x. */
const normBackward =
  (centre: boolean): Bounds<Rows> =>
  ({ width, accumulate, gainOffset = 0 }, before: Arrays<'dy' | 'x' | 'weight' | 'mean' | 'rstd' | 'dx'>) => {
    const { dy, x, weight, rstd } = before;
    return {
      dx: byRow(width, (r) => {
        const g = (c: number) => abs(dy[r * width + c]! * (weight[c]! + gainOffset));
        const n = (c: number) => abs((x[r * width + c]! - (centre ? before.mean[r]! : 0)) * rstd[r]!);
        const meanG = centre ? average(width, g) : 0;
        const meanGN = average(width, (c) => g(c) * n(c));
        // Sums of width terms with four roundings each, a division, then the last line's eight operations; the gain.
        const ulps = width + 4 + 2.5 + 8 + (gainOffset === 0 ? 0 : 2);
        return (c) =>
          ulps * ULP * rstd[r]! * (g(c) + meanG + n(c) * meanGN) +
          (accumulate ? ULP * (abs(before.dx[r * width + c]!) + rstd[r]! * (g(c) + meanG + n(c) * meanGN)) : 0);
      }),
    };
  };

/** Bounds of every written operand, by kernel name. */
// biome-ignore lint/suspicious/noExplicitAny: kernels of different problems
export const bounds: Record<string, Bounds<any>> = {
  layernorm(
    { width, eps }: { width: number; eps: number },
    { x, weight, bias }: Arrays<'x' | 'weight' | 'bias'>,
    { mean, rstd }: Arrays<'mean' | 'rstd'>,
  ) {
    // Errors of a row: of the mean (absolute), of rstd (relative).
    const rowErrors = (r: number) => {
      const at = r * width;
      const size = average(width, (c) => abs(x[at + c]!));
      const spread = average(width, (c) => abs(x[at + c]! - mean[r]!));
      const variance = average(width, (c) => (x[at + c]! - mean[r]!) ** 2);
      const meanError = (width + 2.5) * ULP * size;
      const varianceError = (width + 5.5) * ULP * variance + 2 * spread * meanError + meanError ** 2;
      return { meanError, rstdError: (0.5 * varianceError) / (variance + eps) + (4.5 + 2.5 + 1) * ULP };
    };
    return {
      y: byRow(width, (r) => {
        const { meanError, rstdError } = rowErrors(r);
        return (c) => {
          const centred = abs(x[r * width + c]! - mean[r]!);
          const product = centred * rstd[r]! * abs(weight[c]!);
          return abs(weight[c]!) * rstd[r]! * meanError + product * (rstdError + 4 * ULP) + ULP * abs(bias[c]!);
        };
      }),
      mean: (r) => rowErrors(r).meanError,
      rstd: (r) => rstd[r]! * rowErrors(r).rstdError,
    };
  },
  layernormBackward: normBackward(true),
  rmsnormBackward: normBackward(false),
  rmsnorm({ width, gainOffset = 0 }: Rows, _before, { y, rstd }: Arrays<'y' | 'rstd'>) {
    const relative = rstdError(width);
    const roundings = gainOffset === 0 ? 2 : 3;
    return { y: (i) => abs(y[i]!) * (relative + roundings * ULP), rstd: (r) => rstd[r]! * relative };
  },
  headNorm(p: HeadNormProblem, _before, { x, normal, rstd }: Arrays<'x' | 'normal' | 'rstd'>) {
    const relative = rstdError(p.width);
    const isHead = headColumns(p);
    return {
      x: (i) => (isHead(i) ? abs(x[i]!) * (relative + 3 * ULP) : 0),
      normal: (i) => abs(normal[i]!) * (relative + ULP),
      rstd: (r) => rstd[r]! * relative,
    };
  },
  headNormBackward(
    p: HeadNormBackwardProblem,
    { normal, weight, rstd, dx }: Arrays<'normal' | 'weight' | 'rstd' | 'dx'>,
  ) {
    const { heads, width, stride, offset, gainOffset = 0 } = p;
    const isHead = headColumns(p);
    return {
      dx: (i) => {
        if (!isHead(i)) return 0;
        const c = (i - offset) % stride;
        const row = Math.floor((i - offset) / stride) * heads + Math.floor(c / width);
        const first = i - (c % width);
        const g = (j: number) => abs(dx[first + j]! * (weight[j]! + gainOffset));
        const n = (j: number) => abs(normal[row * width + j]!);
        const meanGN = average(width, (j) => g(j) * n(j));
        // As rmsnormBackward: sums of width terms with three roundings each, a division, the last line.
        return (width + 3 + 2.5 + 6) * ULP * rstd[row]! * (g(c % width) + n(c % width) * meanGN);
      },
    };
  },
  headNormParameterGrad(p: HeadRows, { dy, normal }: Arrays<'dy' | 'normal'>) {
    const { rows, heads, width, stride, offset } = p;
    return {
      partials: (i) => {
        const block = Math.floor(i / width);
        let sum = 0;
        for (let r = block * ROW_BLOCK; r < min(rows, (block + 1) * ROW_BLOCK); r++) {
          const base = Math.floor(r / heads) * stride + offset + (r % heads) * width;
          sum += abs(dy[base + (i % width)]! * normal[r * width + (i % width)]!);
        }
        return (min(rows, ROW_BLOCK) + 1) * ULP * sum;
      },
    };
  },
  layernormParameterGrad({ rows, width }: Rows, { dy, x, mean, rstd }: Arrays<'dy' | 'x' | 'mean' | 'rstd'>) {
    return {
      partials: (i) => {
        const block = Math.floor(i / (2 * width));
        const c = i % width;
        const isBias = i % (2 * width) >= width;
        let sum = 0;
        for (let r = block * ROW_BLOCK; r < min(rows, (block + 1) * ROW_BLOCK); r++) {
          const term = isBias ? 1 : (x[r * width + c]! - mean[r]!) * rstd[r]!;
          sum += abs(dy[r * width + c]! * term);
        }
        return (min(rows, ROW_BLOCK) + 3) * ULP * sum;
      },
    };
  },
  rmsnormParameterGrad({ rows, width }: Rows, { dy, x, rstd }: Arrays<'dy' | 'x' | 'rstd'>) {
    return {
      partials: (i) => {
        const block = Math.floor(i / width);
        const c = i % width;
        let sum = 0;
        for (let r = block * ROW_BLOCK; r < min(rows, (block + 1) * ROW_BLOCK); r++) {
          sum += abs(dy[r * width + c]! * x[r * width + c]! * rstd[r]!);
        }
        return (min(rows, ROW_BLOCK) + 2) * ULP * sum;
      },
    };
  },
  columnSum({ rows, width, stride, offset, rowsPerBlock, accumulate, into = 0 }, { x, y }: Arrays<'x' | 'y'>) {
    return {
      y: (i) => {
        if (i < into) return 0;
        const block = Math.floor((i - into) / width);
        let sum = accumulate ? abs(y[i]!) : 0;
        for (let r = block * rowsPerBlock; r < min(rows, (block + 1) * rowsPerBlock); r++) {
          sum += abs(x[offset + r * stride + ((i - into) % width)]!);
        }
        // Four running sums, two more levels, the old value.
        return (Math.ceil(min(rows, rowsPerBlock) / 4) + 3 + 2 + 1) * ULP * sum;
      },
    };
  },
  // Two roundings of a product whose factor is rounded, and a sum. What goes is the same, or all of it would be off.
  dropout: (_problem, { x, y: old }: Arrays<'x' | 'y'>, { y }: Arrays<'y'>) => ({
    y: (i) => 4 * ULP * (abs(x[i]!) + abs(y[i]!) + abs(old[i]!)),
  }),
  // The reference's own 1 + tanh(u) cancels to CANCELLED in the left tail.
  // s = 1 / (1 + e) with e good to E: s is good to (1 - s) E + 1 + 2.5 ulps, 1 - s = e s to twice that.
  gelu: (_problem, { x }: Arrays<'x'>, { y }: Arrays<'y'>) => ({ y: (i) => geluError(x[i]!, y[i]!) }),
  geluBackward: (_problem, { dy, x }: Arrays<'dy' | 'x'>) => ({ dx: (i) => abs(dy[i]!) * geluDerivativeError(x[i]!) }),
  geluErf: (_problem, { x }: Arrays<'x'>, { y }: Arrays<'y'>) => ({ y: (i) => geluErfError(x[i]!, y[i]!) }),
  geluErfBackward: (_problem, { dy, x }: Arrays<'dy' | 'x'>) => ({
    dx: (i) => abs(dy[i]!) * geluErfDerivativeError(x[i]!),
  }),
  // Its argument is given, and not the quotient of which tanhError speaks.
  tanh: (_problem, { x }: Arrays<'x'>) => ({ y: (i) => tanhError(x[i]!) + TINY }),
  // A sum and a difference, their product, and its product with dy.
  tanhBackward: (_problem, _before, { dx }: Arrays<'dx'>) => ({ dx: (i) => 4 * ULP * abs(dx[i]!) + TINY }),
  swiglu(_problem, { gate }: Arrays<'gate'>, { y }: Arrays<'y'>) {
    return { y: (i) => abs(y[i]!) * ((1 - sigmoid(gate[i]!)) * expUlps(gate[i]!) + 5.5) * ULP + TINY };
  },
  swigluBackward(_problem, { dy, gate, up }: Arrays<'dy' | 'gate' | 'up'>, { dup }: Arrays<'dup'>) {
    return {
      dgate: (i) => {
        const s = sigmoid(gate[i]!);
        const ulps = expUlps(gate[i]!);
        const terms = s * ((1 - s) * ulps + 7) + abs(gate[i]!) * s * (1 - s) * (3 * ulps + 14);
        return abs(dy[i]! * up[i]!) * terms * ULP + TINY;
      },
      dup: (i) => abs(dup[i]!) * ((1 - sigmoid(gate[i]!)) * expUlps(gate[i]!) + 5.5) * ULP + TINY,
    };
  },
  geglu: (_problem, { gate, up }: Arrays<'gate' | 'up'>, { y }: Arrays<'y'>) => ({
    y: (i) => abs(up[i]!) * geluError(gate[i]!, geluOf(gate[i]!)) + ULP * abs(y[i]!) + TINY,
  }),
  gegluBackward: (
    _problem,
    { dy, gate, up }: Arrays<'dy' | 'gate' | 'up'>,
    { dgate, dup }: Arrays<'dgate' | 'dup'>,
  ) => ({
    dgate: (i) => abs(dy[i]! * up[i]!) * geluDerivativeError(gate[i]!) + 2 * ULP * abs(dgate[i]!) + TINY,
    dup: (i) => abs(dy[i]!) * geluError(gate[i]!, geluOf(gate[i]!)) + ULP * abs(dup[i]!) + TINY,
  }),
  add: (_problem, _before, { y }: Arrays<'y'>) => ({ y: (i) => ULP * abs(y[i]!) }),
  fill: () => ({ y: exact }),
  rope({ heads, headSize, stride, offset }, { x }: Arrays<'x'>) {
    return {
      x: (i) => {
        const c = (i % stride) - offset;
        if (c < 0 || c >= heads * headSize) return 0;
        const half = headSize / 2;
        const partner = c % headSize < half ? i + half : i - half;
        return 2 * ULP * (abs(x[i]!) + abs(x[partner]!));
      },
    };
  },
  // Exact where the scale is 1.
  embedding: ({ scale = 1 }, _before, { y }: Arrays<'y'>) => ({ y: (i) => (scale === 1 ? 0 : ULP * abs(y[i]!)) }),
  positionEmbedding: (_, _before, { y }: Arrays<'y'>) => ({ y: (i) => ULP * abs(y[i]!) }),
  embeddingBackward(
    { rows, width, firstRow = 0, scale = 1 },
    { tokens, starts, order, dy, dweight }: Arrays<'tokens' | 'starts' | 'order' | 'dy' | 'dweight'>,
  ) {
    const slotOf = new Map<number, number>();
    for (let s = 0; s < rows; s++) slotOf.set(tokens[s]!, s);
    return {
      dweight: (i) => {
        const slot = slotOf.get(firstRow + Math.floor(i / width));
        if (slot === undefined) return 0;
        let sum = abs(dweight[i]!);
        for (let j = starts[slot]!; j < starts[slot + 1]!; j++) {
          sum += abs(scale * dy[order[j]! * width + (i % width)]!);
        }
        return (starts[slot + 1]! - starts[slot]! + 2) * ULP * sum;
      },
    };
  },
  positionBackward({ batch, seq, width, accumulate, firstRow = 0 }, { dy, dweight }: Arrays<'dy' | 'dweight'>) {
    return {
      dweight: (i) => {
        const from = firstRow * width + i;
        if (from >= seq * width) return 0;
        let sum = accumulate ? abs(dweight[i]!) : 0;
        for (let b = 0; b < batch; b++) sum += abs(dy[b * seq * width + from]!);
        return (batch + 1) * ULP * sum;
      },
    };
  },
  matmul(
    p: MatmulProblem,
    before: Arrays<'a' | 'b' | 'c' | 'bias' | 'preactivation'>,
    after: Arrays<'c' | 'preactivation'>,
  ) {
    // The sums, and the sums of absolute values: K products with one rounding each, then K + 1 terms added up.
    const run = (of: (value: number) => number) => {
      const data = { a: before.a.map(of), b: before.b.map(of), c: before.c.map(of) };
      matmul.reference({ ...p, epilogue: 'none' }, data);
      return data.c;
    };
    const sums = run((value) => value);
    const sizes = run(abs);
    const { epilogue = 'none', cStride = p.N, cOffset = 0, biasOffset = 0 } = p;
    const sumError: Bound = (i) => (p.K + 2) * ULP * sizes[i]!;
    const columnOf = (i: number) => (i < cOffset ? -1 : (i - cOffset) % cStride);
    const isInside = (i: number) => columnOf(i) >= 0 && columnOf(i) < p.N;
    const finish = (i: number): number => {
      const last = ULP * abs(after.c[i]!);
      switch (epilogue) {
        case 'none':
          return sumError(i);
        case 'scale':
          return abs(p.scale ?? 1) * sumError(i) + last;
        case 'softcap': {
          const cap = p.scale ?? 1;
          // tanh is nowhere steeper than 1.
          return sumError(i) + cap * tanhError(sums[i]! / cap) + last;
        }
        case 'bias':
        case 'residual':
          return sumError(i) + last;
        case 'biasResidual':
          return sumError(i) + ULP * abs(sums[i]! + before.bias[biasOffset + columnOf(i)]!) + last;
        case 'biasGeluErf': {
          const u = after.preactivation[i]!;
          return 1.13 * (sumError(i) + ULP * abs(u)) + geluErfError(u, after.c[i]!);
        }
        case 'geluErfGradient': {
          const u = before.preactivation[i]!;
          return 1.13 * sumError(i) + abs(sums[i]!) * geluErfDerivativeError(u);
        }
        case 'biasGelu': {
          // GELU is nowhere steeper than 1.13.
          const u = after.preactivation[i]!;
          return 1.13 * (sumError(i) + ULP * abs(u)) + geluError(u, after.c[i]!);
        }
        case 'geluGradient': {
          const u = before.preactivation[i]!;
          return 1.13 * sumError(i) + abs(sums[i]!) * geluDerivativeError(u);
        }
      }
    };
    return {
      c: (i) => (isInside(i) ? finish(i) : 0),
      preactivation: (i) => (isInside(i) ? sumError(i) + ULP * abs(after.preactivation[i]!) : 0),
    };
  },
  crossEntropyTile(
    { tile, begin, firstRow = 0 },
    before: Arrays<'logits' | 'sum' | 'maximum'>,
    { maximum, sum }: Arrays<'maximum' | 'sum'>,
  ) {
    return {
      maximum: exact,
      picked: exact,
      sum: (r) => {
        if (r < firstRow) return 0;
        // The argument is a difference, rounded once.
        const term = (d: number) => exp(d) * expUlps(d, 1);
        let bound = (tile + 1) * sum[r]!;
        for (let c = 0; c < tile; c++) bound += term(before.logits[(r - firstRow) * tile + c]! - maximum[r]!);
        if (!begin) bound += before.sum[r]! * (term(before.maximum[r]! - maximum[r]!) + 1);
        return bound * ULP + TINY;
      },
    };
  },
  crossEntropyLoss(
    _problem,
    { maximum, sum, picked, targets }: Arrays<'maximum' | 'sum' | 'picked' | 'targets'>,
    _after,
  ) {
    const logError = (r: number) => (sum[r]! <= 2 ? 2 ** -21 : 3 * ULP * log(sum[r]!));
    return {
      loss: (r) => (targets[r]! < 0 ? 0 : logError(r) + ULP * (2 * abs(maximum[r]! - picked[r]!) + log(sum[r]!))),
      lse: (i) => (i % 2 === 0 ? 0 : logError((i - 1) / 2)),
    };
  },
  crossEntropyBackward(
    { tile, first, softcap, firstRow = 0 },
    { lse, logits, scale, targets }: Arrays<'lse' | 'logits' | 'scale' | 'targets'>,
    after: Arrays<'logits'>,
  ) {
    return {
      logits: (i) => {
        const r = firstRow + Math.floor(i / tile);
        if (targets[r]! < 0) return 0;
        const shifted = logits[i]! - lse[2 * r]!;
        const z = shifted - lse[2 * r + 1]!;
        const probabilityError = exp(z) * (expUlps(z, 1) + abs(shifted));
        if (softcap === undefined) return (abs(scale[0]!) * probabilityError + 2 * abs(after.logits[i]!)) * ULP + TINY;
        // The slope is (1 - t) (1 + t), with two roundings in t and three of its own; then one more product.
        const t = abs(logits[i]! / softcap);
        const slope = 1 - t * t;
        const wanted = targets[r] === first + (i % tile) ? 1 : 0;
        const gradient = abs(exp(z) - wanted);
        const error = probabilityError * slope + gradient * (4 * t * t + 3 * slope);
        return (abs(scale[0]!) * error + 3 * abs(after.logits[i]!)) * ULP + TINY;
      },
    };
  },
  sumSquares({ first }, _before, { partials }: Arrays<'partials'>) {
    // The worst case is BLOCK / 8 + 5 ulps = 4.4e-6; errors of either sign leave far less, and a gradient
    // norm needs that: 3e-7 on these fixed inputs.
    return { partials: (i) => (i < first ? 0 : min((BLOCK / 8 + 5) * ULP, 3e-7) * partials[i]!) };
  },
  stepControl(_problem, _before, { state }: Arrays<'state'>) {
    const ulps: Record<number, number> = {
      [STATE.correction1]: 4,
      [STATE.correction2]: 4,
      [STATE.coefficient]: 4.5 + 1 + 2.5,
      [STATE.gradNorm]: 4.5,
      [STATE.loss]: 1,
    };
    return { state: (i) => (ulps[i] ?? 0) * ULP * abs(state[i]!) };
  },
  recordNorm: (_problem, _before, { state }: Arrays<'state'>) => ({
    state: (i) => (i === STATE.gradNorm ? 4.5 * ULP * abs(state[i]!) : 0),
  }),
  adamw(
    _problem,
    { gradient, hyper, state, parameter, m, v }: Arrays<'gradient' | 'hyper' | 'state' | 'parameter' | 'm' | 'v'>,
    after: Arrays<'parameter' | 'm' | 'v'>,
  ) {
    const rest1 = hyper[HYPER.oneMinusBeta1]!;
    const rest2 = hyper[HYPER.oneMinusBeta2]!;
    const lr = hyper[HYPER.learningRate]!;
    const g = (i: number) => abs(gradient[i]! * state[STATE.coefficient]!);
    // The step towards g or g^2 has four roundings, the sum one.
    const mError: Bound = (i) => ULP * (abs(after.m[i]!) + 4 * rest1 * (g(i) + abs(m[i]!)));
    const vError: Bound = (i) => ULP * (abs(after.v[i]!) + 5 * rest2 * (g(i) ** 2 + v[i]!));
    return {
      m: mError,
      v: vError,
      parameter: (i) => {
        const root = sqrt(after.v[i]! / state[STATE.correction2]!);
        const denominator = root + hyper[HYPER.epsilon]!;
        const unit = lr / state[STATE.correction1]! / denominator;
        // v / correction2 and the root, then two divisions, a product and two sums.
        const denominatorError = (0.5 * vError(i)) / max(after.v[i]!, TINY) + (1.25 + 4.5) * ULP;
        const step = unit * abs(after.m[i]!);
        const decay = lr * hyper[HYPER.weightDecay]! * abs(parameter[i]!);
        return (
          unit * mError(i) + step * (denominatorError + 8 * ULP) + decay * 4 * ULP + ULP * abs(after.parameter[i]!)
        );
      },
    };
  },
  cacheAppend: () => ({ cache: exact }),
  crossEntropyHits: () => ({ hits: exact }),
  copyRows: (_problem, _before, { y }: Arrays<'y'>) => ({ y: (i) => ULP * abs(y[i]!) }),
  patches: () => ({ y: exact }),
  // y = sum w v / sum w with w = exp(score - top), whose top cancels. Each time the top rises, on at most every
  // fourth key, what was summed is multiplied by exp(old - new): the exponents of one key add up to its own.
  attention(
    p: AttentionProblem,
    { q, k, v, position, ...masks }: Arrays<'q' | 'k' | 'v' | 'position'> & MaskArrays,
    { lse }: Arrays<'lse'>,
  ) {
    const { heads, headSize: size } = p;
    const group = heads / p.kvHeads;
    const rowErrors = (i: number) => {
      const row = Math.floor(i / heads);
      const column = Math.floor((i % heads) / group) * size;
      const placed = { seq: p.seq, kvRows: p.kvRows, position: position[0]! };
      const seen = keysSeen(p.mask, placed, row, masks);
      const kvRow = Math.floor(row / p.seq) * p.kvRows;
      const keys = seen.length;
      const pairs = seen.map((key) => {
        const at = (kvRow + key) * p.kStride + p.kOffset + column;
        return dotError(size, q, row * p.qStride + p.qOffset + (i % heads) * size, k, at, scaleOf(p));
      });
      const top = max(...pairs.map(({ value }) => value));
      const rises = Math.ceil(keys / 4);
      const relative = pairs.map(({ value, error }) => error + ULP * (2 * expUlps(top - value, 1) + 4 * rises));
      const weight = pairs.map(({ value }) => exp(value - lse[2 * i]! - lse[2 * i + 1]!));
      const mean = weight.reduce((sum, w, j) => sum + w * relative[j]!, 0);
      const topError = max(...pairs.map(({ error }) => error));
      const valuesAt = seen.map((key) => (kvRow + key) * p.vStride + p.vOffset + column);
      return { keys, weight, relative, mean, topError, valuesAt };
    };
    return {
      y: byRow(size, (i) => {
        const { keys, weight, relative, mean, valuesAt } = rowErrors(i);
        return (d) => {
          let bound = TINY;
          for (let j = 0; j < keys; j++) {
            const term = weight[j]! * abs(v[valuesAt[j]! + d]!);
            bound += term * (relative[j]! + mean + (2 * keys + 1 + 2.5) * ULP);
          }
          return bound;
        };
      }),
      // The top is good to its own error; where it errs, the log of the sum makes up for it.
      lse: (i) => {
        const { keys, mean, topError } = rowErrors(i >> 1);
        if (i % 2 === 0) return topError;
        return topError + mean + keys * ULP + max(2 ** -21, 3 * ULP * log(keys));
      },
    };
  },
  attentionDelta({ headSize }: { headSize: number }, { dy, y }: Arrays<'dy' | 'y'>) {
    return { delta: (i) => dotError(headSize, dy, i * headSize, y, i * headSize, 1).error };
  },
  attentionBackwardQ: (p, before: BackwardArrays) => ({ dqkv: (i) => attentionGradientErrors(p, before).q[i]! }),
  attentionBackwardKV: (p, before: BackwardArrays) => ({ dqkv: (i) => attentionGradientErrors(p, before).kv[i]! }),
};

/** scale a . b, and what `size` products, their sum and the scale lose. */
function dotError(size: number, a: Float64Array, aAt: number, b: Float64Array, bAt: number, scale: number) {
  let value = 0;
  let terms = 0;
  for (let d = 0; d < size; d++) {
    value += a[aAt + d]! * b[bAt + d]!;
    terms += abs(a[aAt + d]! * b[bAt + d]!);
  }
  return { value: scale * value, error: (size + 3) * ULP * scale * terms };
}

const gradientErrors = new WeakMap<BackwardArrays, { q: Float64Array; kv: Float64Array }>();

/** Bounds of dqkv: its q columns as one kernel writes them, its k and v columns as the other does. */
function attentionGradientErrors(p: AttentionBackwardProblem, before: BackwardArrays) {
  const known = gradientErrors.get(before);
  if (known) return known;
  const { qkv, dy, lse, delta, ...masks } = before;
  const { heads, kvHeads, headSize: size, seq } = p;
  const group = heads / kvHeads;
  const stride = (heads + 2 * kvHeads) * size;
  const errors = { q: new Float64Array(qkv.length), kv: new Float64Array(qkv.length) };
  for (let row = 0; row < p.batch * seq; row++) {
    const base = row - (row % seq);
    const keys = keysSeen(p.mask, { seq, kvRows: seq, position: 0 }, row, masks);
    for (let head = 0; head < heads; head++) {
      const i = row * heads + head;
      const q = row * stride + head * size;
      for (const seen of keys) {
        const k = (base + seen) * stride + (heads + Math.floor(head / group)) * size;
        const v = k + kvHeads * size;
        const score = dotError(size, qkv, q, qkv, k, scaleOf(p));
        const exponent = score.value - lse[2 * i]! - lse[2 * i + 1]!;
        const w = exp(exponent);
        const relative = score.error + ULP * expUlps(abs(score.value - lse[2 * i]!) + lse[2 * i + 1]!, 2);
        const dw = dotError(size, dy, i * size, qkv, v, 1);
        const ds = w * abs(dw.value - delta[i]!) * scaleOf(p);
        const dsError = ds * (relative + 4 * ULP) + w * dw.error * scaleOf(p);
        // Sums over at most seq keys, or over the queries of every head of the group.
        for (let d = 0; d < size; d++) {
          errors.q[q + d]! += (dsError + (seq + 1) * ULP * ds) * abs(qkv[k + d]!) + TINY;
          errors.kv[k + d]! += (dsError + (group * seq + 1) * ULP * ds) * abs(qkv[q + d]!) + TINY;
          errors.kv[v + d]! += w * (relative + (group * seq + 1) * ULP) * abs(dy[i * size + d]!) + TINY;
        }
      }
    }
  }
  gradientErrors.set(before, errors);
  return errors;
}

/** Relative, of 1 / sqrt(mean of squares): width + 1 roundings and a division, halved by the root; then root and division. */
function rstdError(width: number): number {
  return (0.5 * (width + 1 + 2.5 + 1) + 4.5 + 2.5) * ULP;
}

/** Whether an element of packed rows belongs to one of the heads. */
function headColumns({ heads, width, stride, offset }: HeadRows): (i: number) => boolean {
  return (i) => i >= offset && (i - offset) % stride < heads * width;
}

/** Of tanh(u), where u is a quotient, good to 2.5 ulps. */
function tanhError(u: number): number {
  const t = abs(Math.tanh(u));
  // The polynomial is good to an ulp, its last sum and product round; what it adds to u is at most 0.13 of it, with 6 roundings.
  const near = t * (2.5 + 1 + 2 + 1);
  // e = exp(2|u|); 2 / (e + 1) = 1 - t; then 1 - it, and u / |u|.
  const far = (1 - t * t) * abs(u) * 2.5 + (1 - t) * (expUlps(2 * min(abs(u), 10)) + 3.5) + t * (1 + 2.5 + 1);
  // Close to where the one takes over, it may be either.
  return ULP * (abs(u) < 0.62 ? near : abs(u) > 0.63 ? far : max(near, far));
}

function sigmoid(x: number): number {
  return 1 / (1 + exp(-x));
}

function geluError(x: number, y: number): number {
  const { s, ulps } = geluSigmoid(x);
  return abs(y) * ((1 - s) * ulps + 4.5) * ULP + abs(x) * CANCELLED;
}

/** Of the derivative times a number, relative to that number. */
function geluDerivativeError(x: number): number {
  const { s, ulps, slope } = geluSigmoid(x);
  const terms = s * ((1 - s) * ulps + 6) + slope * s * (1 - s) * (3 * ulps + 20);
  return ULP * terms + (1 + slope) * CANCELLED;
}

/** s = sigmoid(2u), the ulps of exp(-2u) (its argument has five roundings), and |x d(2u)/dx|. */
function geluSigmoid(x: number): { s: number; ulps: number; slope: number } {
  const t = max(-9.5, min(9.5, x));
  const a = 2 * sqrt(2 / Math.PI) * (t + 0.044715 * t ** 3);
  return { s: sigmoid(a), ulps: expUlps(a, 5), slope: abs(2 * sqrt(2 / Math.PI) * (t + 3 * 0.044715 * t ** 3)) };
}

/**
 * In ulps of R(t) the polynomial's error: j + 1 products and as many sums make its term |c_j| s^(j+1), with s good to 4.5;
 * 6.5 (j + 1) |c_j| s^(j+1), summed, is nowhere above 73 R(t). The fit is good to a quarter.
 */
const TAIL_POLYNOMIAL = 73.25;

/** The density at x, and the errors of the tail beyond |x| and of the density. */
function normalErrors(x: number): { density: number; tailError: number; densityError: number } {
  const t = min(abs(x), 13);
  const density = exp((-t * t) / 2) / sqrt(2 * Math.PI);
  const ulps = expUlps((t * t) / 2, 2);
  // Mills: the tail is below density / t, and below a half.
  const tail = min(0.5, density / max(t, TINY));
  return { density, tailError: tail * (ulps + TAIL_POLYNOMIAL + 1) * ULP, densityError: density * (ulps + 1) * ULP };
}

function geluErfError(x: number, y: number): number {
  return abs(x) * normalErrors(x).tailError + 2 * ULP * abs(y) + TINY;
}

/** Of the derivative times a number, relative to that number. */
function geluErfDerivativeError(x: number): number {
  const { density, tailError, densityError } = normalErrors(x);
  const t = min(abs(x), 13);
  // 1 - tail, x * density, their sum, and its product with the number.
  return tailError + t * densityError + ULP * (4 + 3 * t * density) + TINY;
}
