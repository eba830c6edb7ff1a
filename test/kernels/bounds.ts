// How far f32 arithmetic may lead a kernel from its float64 reference, element by element.
//
// Counted in ULP = 2^-23, relative: WGSL lets +, -, * round in either direction (one ulp), division is good
// to 2.5 ulp, sqrt to 4.5 (it is 1 / inverseSqrt), exp(x) to 3 + 2|x|, log to 3 or, on [0.5, 2], to 2^-21
// absolute (WGSL, "Floating point accuracy"). A sum of n terms in any order errs by at most n ulp of the
// sum of their absolute values. Second-order terms are left out, small change is rounded up.

import type { AttentionBackwardProblem, AttentionProblem } from '../../src/kernels/attention.ts';
import { keysSeen } from '../../src/kernels/attention-mask.ts';
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
type Bounds<P> = (problem: P, before: Arrays, after: Arrays) => Record<string, Bound>;

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
}

/** |g|, mean |g| and mean |g n| |n|: the terms of dx / rstd, with g = dy * weight and n the normalised x. */
const normBackward =
  (centre: boolean): Bounds<Rows> =>
  (p, before) => {
    const { width, accumulate } = p;
    const { dy, x, weight, rstd } = before;
    return {
      dx: byRow(width, (r) => {
        const g = (c: number) => abs(dy[r * width + c] * weight[c]);
        const n = (c: number) => abs((x[r * width + c] - (centre ? before.mean[r] : 0)) * rstd[r]);
        const meanG = centre ? average(width, g) : 0;
        const meanGN = average(width, (c) => g(c) * n(c));
        // Sums of width terms with four roundings each, a division, then the last line's eight operations.
        const ulps = width + 4 + 2.5 + 8;
        return (c) =>
          ulps * ULP * rstd[r] * (g(c) + meanG + n(c) * meanGN) +
          (accumulate ? ULP * (abs(before.dx[r * width + c]) + rstd[r] * (g(c) + meanG + n(c) * meanGN)) : 0);
      }),
    };
  };

/** Bounds of every written operand, by kernel name. */
// biome-ignore lint/suspicious/noExplicitAny: kernels of different problems
export const bounds: Record<string, Bounds<any>> = {
  layernorm({ width, eps }: { width: number; eps: number }, { x, weight, bias }, { mean, rstd }) {
    // Errors of a row: of the mean (absolute), of rstd (relative).
    const rowErrors = (r: number) => {
      const at = r * width;
      const size = average(width, (c) => abs(x[at + c]));
      const spread = average(width, (c) => abs(x[at + c] - mean[r]));
      const variance = average(width, (c) => (x[at + c] - mean[r]) ** 2);
      const meanError = (width + 2.5) * ULP * size;
      const varianceError = (width + 5.5) * ULP * variance + 2 * spread * meanError + meanError ** 2;
      return { meanError, rstdError: (0.5 * varianceError) / (variance + eps) + (4.5 + 2.5 + 1) * ULP };
    };
    return {
      y: byRow(width, (r) => {
        const { meanError, rstdError } = rowErrors(r);
        return (c) => {
          const centred = abs(x[r * width + c] - mean[r]);
          const product = centred * rstd[r] * abs(weight[c]);
          return abs(weight[c]) * rstd[r] * meanError + product * (rstdError + 4 * ULP) + ULP * abs(bias[c]);
        };
      }),
      mean: (r) => rowErrors(r).meanError,
      rstd: (r) => rstd[r] * rowErrors(r).rstdError,
    };
  },
  layernormBackward: normBackward(true),
  rmsnormBackward: normBackward(false),
  rmsnorm({ width }: Rows, _before, { y, rstd }) {
    // The mean of squares: width + 1 roundings and a division, halved by the root; then root and division.
    const relative = (0.5 * (width + 1 + 2.5 + 1) + 4.5 + 2.5) * ULP;
    return { y: (i) => abs(y[i]) * (relative + 2 * ULP), rstd: (r) => rstd[r] * relative };
  },
  layernormParameterGrad({ rows, width }: Rows, { dy, x, mean, rstd }) {
    return {
      partials: (i) => {
        const block = Math.floor(i / (2 * width));
        const c = i % width;
        const isBias = i % (2 * width) >= width;
        let sum = 0;
        for (let r = block * ROW_BLOCK; r < min(rows, (block + 1) * ROW_BLOCK); r++) {
          const term = isBias ? 1 : (x[r * width + c] - mean[r]) * rstd[r];
          sum += abs(dy[r * width + c] * term);
        }
        return (min(rows, ROW_BLOCK) + 3) * ULP * sum;
      },
    };
  },
  rmsnormParameterGrad({ rows, width }: Rows, { dy, x, rstd }) {
    return {
      partials: (i) => {
        const block = Math.floor(i / width);
        const c = i % width;
        let sum = 0;
        for (let r = block * ROW_BLOCK; r < min(rows, (block + 1) * ROW_BLOCK); r++) {
          sum += abs(dy[r * width + c] * x[r * width + c] * rstd[r]);
        }
        return (min(rows, ROW_BLOCK) + 2) * ULP * sum;
      },
    };
  },
  columnSum({ rows, width, stride, offset, rowsPerBlock, accumulate }, { x, y }) {
    return {
      y: (i) => {
        const block = Math.floor(i / width);
        let sum = accumulate ? abs(y[i]) : 0;
        for (let r = block * rowsPerBlock; r < min(rows, (block + 1) * rowsPerBlock); r++) {
          sum += abs(x[offset + r * stride + (i % width)]);
        }
        // Four running sums, two more levels, the old value.
        return (Math.ceil(min(rows, rowsPerBlock) / 4) + 3 + 2 + 1) * ULP * sum;
      },
    };
  },
  // Two roundings of a product whose factor is rounded, and a sum. What goes is the same, or all of it would be off.
  dropout: (_problem, { x, y: old }, { y }) => ({
    y: (i) => 4 * ULP * (abs(x[i]) + abs(y[i]) + abs(old?.[i] ?? 0)),
  }),
  // The reference's own 1 + tanh(u) cancels to CANCELLED in the left tail.
  // s = 1 / (1 + e) with e good to E: s is good to (1 - s) E + 1 + 2.5 ulps, 1 - s = e s to twice that.
  gelu: (_problem, { x }, { y }) => ({ y: (i) => geluError(x[i], y[i]) }),
  geluBackward: (_problem, { dy, x }) => ({ dx: (i) => abs(dy[i]) * geluDerivativeError(x[i]) }),
  swiglu(_problem, { gate }, { y }) {
    return { y: (i) => abs(y[i]) * ((1 - sigmoid(gate[i])) * expUlps(gate[i]) + 5.5) * ULP + TINY };
  },
  swigluBackward(_problem, { dy, gate, up }, { dup }) {
    return {
      dgate: (i) => {
        const s = sigmoid(gate[i]);
        const ulps = expUlps(gate[i]);
        const terms = s * ((1 - s) * ulps + 7) + abs(gate[i]) * s * (1 - s) * (3 * ulps + 14);
        return abs(dy[i] * up[i]) * terms * ULP + TINY;
      },
      dup: (i) => abs(dup[i]) * ((1 - sigmoid(gate[i])) * expUlps(gate[i]) + 5.5) * ULP + TINY,
    };
  },
  add: (_problem, _before, { y }) => ({ y: (i) => ULP * abs(y[i]) }),
  fill: () => ({ y: exact }),
  rope({ heads, headSize, stride, offset }, before) {
    return {
      x: (i) => {
        const c = (i % stride) - offset;
        if (c < 0 || c >= heads * headSize) return 0;
        const half = headSize / 2;
        const partner = c % headSize < half ? i + half : i - half;
        return 2 * ULP * (abs(before.x[i]) + abs(before.x[partner]));
      },
    };
  },
  embedding: () => ({ y: exact }),
  positionEmbedding: (_, _before, { y }) => ({ y: (i) => ULP * abs(y[i]) }),
  embeddingBackward({ rows, width, firstRow = 0 }, { tokens, starts, order, dy, dweight }) {
    const slotOf = new Map<number, number>();
    for (let s = 0; s < rows; s++) slotOf.set(tokens[s], s);
    return {
      dweight: (i) => {
        const slot = slotOf.get(firstRow + Math.floor(i / width));
        if (slot === undefined) return 0;
        let sum = abs(dweight[i]);
        for (let j = starts[slot]; j < starts[slot + 1]; j++) sum += abs(dy[order[j] * width + (i % width)]);
        return (starts[slot + 1] - starts[slot] + 1) * ULP * sum;
      },
    };
  },
  positionBackward({ batch, seq, width, accumulate, firstRow = 0 }, { dy, dweight }) {
    return {
      dweight: (i) => {
        const from = firstRow * width + i;
        if (from >= seq * width) return 0;
        let sum = accumulate ? abs(dweight[i]) : 0;
        for (let b = 0; b < batch; b++) sum += abs(dy[b * seq * width + from]);
        return (batch + 1) * ULP * sum;
      },
    };
  },
  matmul(p: MatmulProblem, before, after) {
    // The sums, and the sums of absolute values: K products with one rounding each, then K + 1 terms added up.
    const run = (of: (value: number) => number) => {
      const data = { a: before.a.map(of), b: before.b.map(of), c: before.c.map(of) };
      matmul.reference({ ...p, epilogue: 'none' }, data);
      return data.c;
    };
    const sums = run((value) => value);
    const sizes = run(abs);
    const { epilogue = 'none', cStride = p.N, cOffset = 0, biasOffset = 0 } = p;
    const sumError: Bound = (i) => (p.K + 2) * ULP * sizes[i];
    const columnOf = (i: number) => (i < cOffset ? -1 : (i - cOffset) % cStride);
    const isInside = (i: number) => columnOf(i) >= 0 && columnOf(i) < p.N;
    const finish = (i: number): number => {
      const last = ULP * abs(after.c[i]);
      switch (epilogue) {
        case 'none':
          return sumError(i);
        case 'scale':
          return abs(p.scale ?? 1) * sumError(i) + last;
        case 'bias':
        case 'residual':
          return sumError(i) + last;
        case 'biasResidual':
          return sumError(i) + ULP * abs(sums[i] + before.bias[biasOffset + columnOf(i)]) + last;
        case 'biasGelu': {
          // GELU is nowhere steeper than 1.13.
          const u = after.preactivation[i];
          return 1.13 * (sumError(i) + ULP * abs(u)) + geluError(u, after.c[i]);
        }
        case 'geluGradient': {
          const u = before.preactivation[i];
          return 1.13 * sumError(i) + abs(sums[i]) * geluDerivativeError(u);
        }
      }
    };
    return {
      c: (i) => (isInside(i) ? finish(i) : 0),
      preactivation: (i) => (isInside(i) ? sumError(i) + ULP * abs(after.preactivation[i]) : 0),
    };
  },
  crossEntropyTile({ tile, begin }, before, { maximum, sum }) {
    return {
      maximum: exact,
      picked: exact,
      sum: (r) => {
        // The argument is a difference, rounded once.
        const term = (d: number) => exp(d) * expUlps(d, 1);
        let bound = (tile + 1) * sum[r];
        for (let c = 0; c < tile; c++) bound += term(before.logits[r * tile + c] - maximum[r]);
        if (!begin) bound += before.sum[r] * (term(before.maximum[r] - maximum[r]) + 1);
        return bound * ULP + TINY;
      },
    };
  },
  crossEntropyLoss(_problem, { maximum, sum, picked, targets }, _after) {
    const logError = (r: number) => (sum[r] <= 2 ? 2 ** -21 : 3 * ULP * log(sum[r]));
    return {
      loss: (r) => (targets[r] < 0 ? 0 : logError(r) + ULP * (2 * abs(maximum[r] - picked[r]) + log(sum[r]))),
      lse: (i) => (i % 2 === 0 ? 0 : logError((i - 1) / 2)),
    };
  },
  crossEntropyBackward({ tile }, { lse, logits, scale, targets }, after) {
    return {
      logits: (i) => {
        const r = Math.floor(i / tile);
        if (targets[r] < 0) return 0;
        const shifted = logits[i] - lse[2 * r];
        const z = shifted - lse[2 * r + 1];
        const probabilityError = exp(z) * (expUlps(z, 1) + abs(shifted));
        return (abs(scale[0]) * probabilityError + 2 * abs(after.logits[i])) * ULP + TINY;
      },
    };
  },
  sumSquares({ first }, _before, { partials }) {
    // The worst case is BLOCK / 8 + 5 ulps = 4.4e-6; errors of either sign leave far less, and a gradient
    // norm needs that: 3e-7 on these fixed inputs.
    return { partials: (i) => (i < first ? 0 : min((BLOCK / 8 + 5) * ULP, 3e-7) * partials[i]) };
  },
  stepControl(_problem, _before, { state }) {
    const ulps: Record<number, number> = {
      [STATE.correction1]: 4,
      [STATE.correction2]: 4,
      [STATE.coefficient]: 4.5 + 1 + 2.5,
      [STATE.gradNorm]: 4.5,
      [STATE.loss]: 1,
    };
    return { state: (i) => (ulps[i] ?? 0) * ULP * abs(state[i]) };
  },
  adamw(_problem, { gradient, hyper, state, parameter, m, v }, after) {
    const rest1 = hyper[HYPER.oneMinusBeta1];
    const rest2 = hyper[HYPER.oneMinusBeta2];
    const lr = hyper[HYPER.learningRate];
    const g = (i: number) => abs(gradient[i] * state[STATE.coefficient]);
    // The step towards g or g^2 has four roundings, the sum one.
    const mError: Bound = (i) => ULP * (abs(after.m[i]) + 4 * rest1 * (g(i) + abs(m[i])));
    const vError: Bound = (i) => ULP * (abs(after.v[i]) + 5 * rest2 * (g(i) ** 2 + v[i]));
    return {
      m: mError,
      v: vError,
      parameter: (i) => {
        const root = sqrt(after.v[i] / state[STATE.correction2]);
        const denominator = root + hyper[HYPER.epsilon];
        const unit = lr / state[STATE.correction1] / denominator;
        // v / correction2 and the root, then two divisions, a product and two sums.
        const denominatorError = (0.5 * vError(i)) / max(after.v[i], TINY) + (1.25 + 4.5) * ULP;
        const step = unit * abs(after.m[i]);
        const decay = lr * hyper[HYPER.weightDecay] * abs(parameter[i]);
        return unit * mError(i) + step * (denominatorError + 8 * ULP) + decay * 4 * ULP + ULP * abs(after.parameter[i]);
      },
    };
  },
  cacheAppend: () => ({ cache: exact }),
  // y = sum w v / sum w with w = exp(score - top), whose top cancels. Each time the top rises, on at most every
  // fourth key, what was summed is multiplied by exp(old - new): the exponents of one key add up to its own.
  attention(p: AttentionProblem, { q, k, v, position, documentStarts }, { lse }) {
    const { heads, headSize: size } = p;
    const group = heads / p.kvHeads;
    const rowErrors = (i: number) => {
      const row = Math.floor(i / heads);
      const column = Math.floor((i % heads) / group) * size;
      const placed = { seq: p.seq, kvRows: p.kvRows, position: position[0] };
      const [first, last] = keysSeen(p.mask, placed, row % p.seq, documentStarts?.[row]);
      const kvRow = Math.floor(row / p.seq) * p.kvRows + first;
      const keys = last + 1 - first;
      const pairs = Array.from({ length: keys }, (_, j) => {
        const at = (kvRow + j) * p.kStride + p.kOffset + column;
        return dotError(size, q, row * p.qStride + p.qOffset + (i % heads) * size, k, at);
      });
      const top = max(...pairs.map(({ value }) => value));
      const rises = Math.ceil(keys / 4);
      const relative = pairs.map(({ value, error }) => error + ULP * (2 * expUlps(top - value, 1) + 4 * rises));
      const weight = pairs.map(({ value }) => exp(value - lse[2 * i] - lse[2 * i + 1]));
      const mean = weight.reduce((sum, w, j) => sum + w * relative[j], 0);
      const topError = max(...pairs.map(({ error }) => error));
      return { keys, weight, relative, mean, topError, valuesAt: kvRow * p.vStride + p.vOffset + column };
    };
    return {
      y: byRow(size, (i) => {
        const { keys, weight, relative, mean, valuesAt } = rowErrors(i);
        return (d) => {
          let bound = TINY;
          for (let j = 0; j < keys; j++) {
            const term = weight[j] * abs(v[valuesAt + j * p.vStride + d]);
            bound += term * (relative[j] + mean + (2 * keys + 1 + 2.5) * ULP);
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
  attentionDelta({ headSize }: { headSize: number }, { dy, y }) {
    return { delta: (i) => dotError(headSize, dy, i * headSize, y, i * headSize, 1).error };
  },
  attentionBackwardQ: (p, before) => ({ dqkv: (i) => attentionGradientErrors(p, before).q[i] }),
  attentionBackwardKV: (p, before) => ({ dqkv: (i) => attentionGradientErrors(p, before).kv[i] }),
};

/** scale a . b, and what `size` products, their sum and the scale lose. */
function dotError(size: number, a: Float64Array, aAt: number, b: Float64Array, bAt: number, scale = 1 / sqrt(size)) {
  let value = 0;
  let terms = 0;
  for (let d = 0; d < size; d++) {
    value += a[aAt + d] * b[bAt + d];
    terms += abs(a[aAt + d] * b[bAt + d]);
  }
  return { value: scale * value, error: (size + 3) * ULP * scale * terms };
}

const gradientErrors = new WeakMap<Arrays, { q: Float64Array; kv: Float64Array }>();

/** Bounds of dqkv: its q columns as one kernel writes them, its k and v columns as the other does. */
function attentionGradientErrors(p: AttentionBackwardProblem, before: Arrays) {
  const known = gradientErrors.get(before);
  if (known) return known;
  const { qkv, dy, lse, delta, documentStarts } = before;
  const { heads, kvHeads, headSize: size, seq } = p;
  const group = heads / kvHeads;
  const stride = (heads + 2 * kvHeads) * size;
  const errors = { q: new Float64Array(qkv.length), kv: new Float64Array(qkv.length) };
  for (let row = 0; row < p.batch * seq; row++) {
    const base = row - (row % seq);
    const [first, last] = keysSeen(p.mask, { seq, kvRows: seq, position: 0 }, row - base, documentStarts?.[row]);
    for (let head = 0; head < heads; head++) {
      const i = row * heads + head;
      const q = row * stride + head * size;
      for (let key = base + first; key <= base + last; key++) {
        const k = key * stride + (heads + Math.floor(head / group)) * size;
        const v = k + kvHeads * size;
        const score = dotError(size, qkv, q, qkv, k);
        const exponent = score.value - lse[2 * i] - lse[2 * i + 1];
        const w = exp(exponent);
        const relative = score.error + ULP * expUlps(abs(score.value - lse[2 * i]) + lse[2 * i + 1], 2);
        const dw = dotError(size, dy, i * size, qkv, v, 1);
        const ds = (w * abs(dw.value - delta[i])) / sqrt(size);
        const dsError = ds * (relative + 4 * ULP) + (w * dw.error) / sqrt(size);
        // Sums over at most seq keys, or over the queries of every head of the group.
        for (let d = 0; d < size; d++) {
          errors.q[q + d] += (dsError + (seq + 1) * ULP * ds) * abs(qkv[k + d]) + TINY;
          errors.kv[k + d] += (dsError + (group * seq + 1) * ULP * ds) * abs(qkv[q + d]) + TINY;
          errors.kv[v + d] += w * (relative + (group * seq + 1) * ULP) * abs(dy[i * size + d]) + TINY;
        }
      }
    }
  }
  gradientErrors.set(before, errors);
  return errors;
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
