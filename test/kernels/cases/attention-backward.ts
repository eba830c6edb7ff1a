// Attention's gradients in kernel tests: problems, and how far f32 may stray.

import {
  type AttentionBackwardProblem,
  attentionBackwardKV,
  attentionBackwardQ,
} from '../../../src/kernels/attention-backward.ts';
import { keysSeen } from '../../../src/kernels/attention-mask.ts';
import { scaleOf } from '../../../src/kernels/attention-tiles.ts';
import type { Arrays } from '../../../src/kernels/kernel.ts';
import { attentionGradients, attentions, dotError, type MaskArrays } from '../attention-cases.ts';
import { row } from '../inputs.ts';
import { expUlps, TINY, ULP } from '../rounding.ts';

const { abs, exp } = Math;

/** Some of more heads: the last ones, and of the middle, in vec4f and one by one. */
const someHeads: AttentionBackwardProblem[] = [
  { batch: 2, seq: 37, heads: 4, kvHeads: 2, headSize: 8, kvHeadsBefore: 2, allKvHeads: 4 },
  { batch: 1, seq: 65, heads: 1, kvHeads: 1, headSize: 12, kvHeadsBefore: 1, allKvHeads: 3 },
  { batch: 2, seq: 33, heads: 3, kvHeads: 1, headSize: 5, kvHeadsBefore: 1, allKvHeads: 3 },
];

/** The problem of all heads that these are some of. */
function ofAll({ kvHeadsBefore: _, allKvHeads, ...p }: AttentionBackwardProblem): AttentionBackwardProblem {
  const kvHeads = allKvHeads ?? p.kvHeads;
  return { ...p, heads: (p.heads / p.kvHeads) * kvHeads, kvHeads };
}

/** Where an element of a packed row of these heads is in the rows of all. */
function placeInAll(p: AttentionBackwardProblem, i: number): number {
  const { heads, kvHeads, headSize, kvHeadsBefore = 0 } = p;
  const all = ofAll(p);
  const width = (heads + 2 * kvHeads) * headSize;
  const [row, head] = [Math.floor(i / width), Math.floor((i % width) / headSize)];
  const ofQueries = (heads / kvHeads) * kvHeadsBefore + head;
  const ofKeys = all.heads + kvHeadsBefore + head - heads;
  const place = head < heads ? ofQueries : head < heads + kvHeads ? ofKeys : ofKeys + all.kvHeads - kvHeads;
  return (row * (all.heads + 2 * all.kvHeads) + place) * headSize + (i % headSize);
}

export const cases = [
  row({
    kernel: attentionBackwardQ,
    problems: [...attentions, ...someHeads],
    inputs: (p, random) => attentionGradients(ofAll(p), random),
    bound(p, before: Omit<BackwardArrays, 'delta'> & Arrays<'y'>) {
      const all = ofAll(p);
      const { headSize, heads } = all;
      const { dy, y } = before;
      const deltas = Array.from({ length: p.batch * p.seq * heads }, (_, i) =>
        dotError(headSize, dy, i * headSize, y, i * headSize, 1),
      );
      const errors = attentionGradientErrors(all, before, deltas);
      return { dqkv: (i) => errors.q[placeInAll(p, i)]!, delta: (i) => deltas[i]!.error };
    },
  }),
  row({
    kernel: attentionBackwardKV,
    problems: [...attentions, ...someHeads],
    inputs: (p, random) => attentionGradients(ofAll(p), random),
    bound(p, before: BackwardArrays) {
      const errors = attentionGradientErrors(
        ofAll(p),
        before,
        [...before.delta].map((value) => ({ value, error: 0 })),
      );
      return { dqkv: (i) => errors.kv[placeInAll(p, i)]! };
    },
  }),
];

type BackwardArrays = Arrays<'qkv' | 'dy' | 'lse' | 'delta'> & MaskArrays;

/** Bounds of dqkv: its q columns as one kernel writes them, its k and v columns as the other does. */
function attentionGradientErrors(
  p: AttentionBackwardProblem,
  before: Omit<BackwardArrays, 'delta'>,
  deltas: readonly { value: number; error: number }[],
) {
  const { qkv, dy, lse, ...masks } = before;
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
      const delta = deltas[i]!;
      for (const seen of keys) {
        const k = (base + seen) * stride + (heads + Math.floor(head / group)) * size;
        const v = k + kvHeads * size;
        const score = dotError(size, qkv, q, qkv, k, scaleOf(p));
        const exponent = score.value - lse[2 * i]! - lse[2 * i + 1]!;
        const w = exp(exponent);
        const relative = score.error + ULP * expUlps(abs(score.value - lse[2 * i]!) + lse[2 * i + 1]!, 2);
        const dw = dotError(size, dy, i * size, qkv, v, 1);
        const ds = w * abs(dw.value - delta.value) * scaleOf(p);
        const dsError = ds * (relative + 4 * ULP) + w * (dw.error + delta.error) * scaleOf(p);
        // Sums over at most seq keys, or over the queries of every head of the group.
        for (let d = 0; d < size; d++) {
          errors.q[q + d]! += (dsError + (seq + 1) * ULP * ds) * abs(qkv[k + d]!) + TINY;
          errors.kv[k + d]! += (dsError + (group * seq + 1) * ULP * ds) * abs(qkv[q + d]!) + TINY;
          errors.kv[v + d]! += w * (relative + (group * seq + 1) * ULP) * abs(dy[i * size + d]!) + TINY;
        }
      }
    }
  }
  return errors;
}
