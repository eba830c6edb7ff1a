// How far f32 arithmetic may lead the kernels of attention from their references (rounding.ts).

import type { AttentionProblem } from '../../src/kernels/attention.ts';
import type { AttentionBackwardProblem } from '../../src/kernels/attention-backward.ts';
import { keysSeen } from '../../src/kernels/attention-mask.ts';
import { scaleOf } from '../../src/kernels/attention-tiles.ts';
import type { Arrays } from '../../src/kernels/kernel.ts';
import { type Bounds, byRow, expUlps, TINY, ULP } from './rounding.ts';

const { abs, max, exp, log } = Math;

type MaskArrays = Partial<Arrays<'documentStarts' | 'keyMask'>>;

type BackwardArrays = Arrays<'qkv' | 'dy' | 'lse' | 'delta'> & MaskArrays;

/** Bounds of every written operand, by kernel name. */
// biome-ignore lint/suspicious/noExplicitAny: kernels of different problems
export const attentionBounds: Record<string, Bounds<any>> = {
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
