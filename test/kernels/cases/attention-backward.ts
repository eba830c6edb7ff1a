// Attention's gradients in kernel tests: problems, and how far f32 may stray.

import {
  type AttentionBackwardProblem,
  attentionBackwardKV,
  attentionBackwardQ,
  attentionDelta,
} from '../../../src/kernels/attention-backward.ts';
import { keysSeen } from '../../../src/kernels/attention-mask.ts';
import { scaleOf } from '../../../src/kernels/attention-tiles.ts';
import type { Arrays } from '../../../src/kernels/kernel.ts';
import { attentionGradients, attentions, dotError, type MaskArrays } from '../attention-cases.ts';
import { row } from '../inputs.ts';
import { expUlps, TINY, ULP } from '../rounding.ts';

const { abs, exp } = Math;

export const cases = [
  row({
    kernel: attentionDelta,
    problems: [
      { rows: 1, heads: 1, headSize: 1 },
      { rows: 37, heads: 3, headSize: 5 },
      { rows: 65, heads: 5, headSize: 16 },
    ],
    bound({ headSize }, { dy, y }: Arrays<'dy' | 'y'>) {
      return { delta: (i) => dotError(headSize, dy, i * headSize, y, i * headSize, 1).error };
    },
  }),
  row({
    kernel: attentionBackwardQ,
    problems: attentions,
    inputs: attentionGradients,
    bound: (p, before: BackwardArrays) => ({ dqkv: (i) => attentionGradientErrors(p, before).q[i]! }),
  }),
  row({
    kernel: attentionBackwardKV,
    problems: attentions,
    inputs: attentionGradients,
    bound: (p, before: BackwardArrays) => ({ dqkv: (i) => attentionGradientErrors(p, before).kv[i]! }),
  }),
];

type BackwardArrays = Arrays<'qkv' | 'dy' | 'lse' | 'delta'> & MaskArrays;

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
