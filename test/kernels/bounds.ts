// How far f32 arithmetic may lead a kernel from its float64 reference, element by element: the table of all kernels. What
// operations lose is in rounding.ts.

import { geluOf } from '../../src/kernels/gelu.ts';
import type { Arrays } from '../../src/kernels/kernel.ts';
import { type MatmulProblem, matmul } from '../../src/kernels/matmul.ts';
import { HYPER, STATE } from '../../src/kernels/step-control.ts';
import { BLOCK } from '../../src/kernels/sum-squares.ts';
import {
  geluDerivativeError,
  geluErfDerivativeError,
  geluErfError,
  geluError,
  sigmoid,
  tanhError,
} from './activation-errors.ts';
import { attentionBounds } from './attention-bounds.ts';
import { normBounds } from './norm-bounds.ts';
import { type Bound, type Bounds, exact, expUlps, TINY, ULP } from './rounding.ts';

const { abs, max, min, exp, log, sqrt } = Math;

/** Bounds of every written operand, by kernel name. */
// biome-ignore lint/suspicious/noExplicitAny: kernels of different problems
export const bounds: Record<string, Bounds<any>> = {
  ...normBounds,
  ...attentionBounds,
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
  geluBackward: (_problem, { dy, x }: Arrays<'dy' | 'x'>) => ({ dx: (i) => abs(dy[i]!) * geluDerivativeError(x[i]!) }),
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
};
