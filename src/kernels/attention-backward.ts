// The backward pass of attention (attention.ts), from the logsumexp that the forward pass kept: the queries' gradients in one
// kernel, those of keys and values in another, each in tiles of its own rows, so that no sum is shared between workgroups.

import backwardKvSpan from '../../shaders/attention/backward_kv_span.wgsl?raw';
import backwardKvTiled from '../../shaders/attention/backward_kv_tiled.wgsl?raw';
import backwardLoad1 from '../../shaders/attention/backward_load_1.wgsl?raw';
import backwardLoad4 from '../../shaders/attention/backward_load_4.wgsl?raw';
import backwardQSpan from '../../shaders/attention/backward_q_span.wgsl?raw';
import backwardQTiled from '../../shaders/attention/backward_q_tiled.wgsl?raw';
import deltaGiven from '../../shaders/attention/delta_given.wgsl?raw';
import deltaMade1 from '../../shaders/attention/delta_made_1.wgsl?raw';
import deltaMade4 from '../../shaders/attention/delta_made_4.wgsl?raw';
import { keysSeen, type MaskArrays, type Masked, maskOperands, pairsSeen } from './attention-mask.ts';
import { type Given, type Scaled, scaleOf, tileVariants } from './attention-tiles.ts';
import { type Arrays, type Kernel, type Operand, type Operands, type RowCut, read, update, write } from './kernel.ts';

/** Training: q, k and v are column blocks of one packed tensor, and every sequence starts at position 0. */
export interface AttentionBackwardProblem extends Masked, Scaled {
  batch: number;
  seq: number;
  heads: number;
  kvHeads: number;
  headSize: number;
}

const packedStride = (p: AttentionBackwardProblem) => (p.heads + 2 * p.kvHeads) * p.headSize;

const backwardGiven = (p: AttentionBackwardProblem): Given => ({
  counts: { seq: p.seq, heads: p.heads, group: p.heads / p.kvHeads, scale: scaleOf(p) },
  strides: {
    stride: packedStride(p),
    k_offset: p.heads * p.headSize,
    v_offset: (p.heads + p.kvHeads) * p.headSize,
  },
});

type BackwardArrays = Arrays<'qkv' | 'dy' | 'lse' | 'delta' | 'dqkv'> & MaskArrays;

/** `delta` (rows, heads): the sum over the head of dy * y, the row term of the softmax gradient. */
const backwardOperands = (p: AttentionBackwardProblem, delta: Operand): Operands => {
  const rows = p.batch * p.seq;
  return {
    qkv: read(rows * packedStride(p)),
    dy: read(rows * p.heads * p.headSize),
    lse: read(2 * rows * p.heads),
    dqkv: update(rows * packedStride(p)),
    delta,
  };
};

const rowsOf = ({ batch, seq, heads, headSize }: AttentionBackwardProblem) => ({
  deltas: batch * seq * heads,
  outputs: batch * seq * heads * headSize,
  rows: batch * seq,
});

function cutBySequences(p: AttentionBackwardProblem, rows: number): RowCut<AttentionBackwardProblem> | undefined {
  const { batch, seq, heads, headSize } = p;
  if (batch * seq !== rows) return undefined;
  const packed = packedStride(p);
  const width = heads * headSize;
  const own = { qkv: packed, dqkv: packed, dy: width, y: width, lse: 2 * heads, delta: heads };
  return {
    unit: seq,
    strides: { ...own, documentStarts: 1, keyMask: 1 },
    part: (_, count) => ({ ...p, batch: count / seq }),
  };
}

/** Calls back with each pair of a query and a key that it sees in a head, its weight w and its score gradient ds. */
function eachPair(
  p: AttentionBackwardProblem,
  { qkv, dy, lse, delta, ...masks }: BackwardArrays,
  visit: (q: number, k: number, v: number, dyBase: number, w: number, ds: number) => void,
): void {
  const size = p.headSize;
  const stride = packedStride(p);
  for (let row = 0; row < p.batch * p.seq; row++) {
    const base = row - (row % p.seq);
    const placed = { seq: p.seq, kvRows: p.seq, position: 0 };
    const keys = keysSeen(p.mask, placed, row, masks);
    for (let h = 0; h < p.heads; h++) {
      const kvHead = Math.floor(h / (p.heads / p.kvHeads));
      const q = row * stride + h * size;
      const i = row * p.heads + h;
      for (const seen of keys) {
        const k = (base + seen) * stride + (p.heads + kvHead) * size;
        const v = k + p.kvHeads * size;
        let score = 0;
        let dw = 0;
        for (let d = 0; d < size; d++) {
          score += qkv[q + d]! * qkv[k + d]!;
          dw += dy[i * size + d]! * qkv[v + d]!;
        }
        const w = Math.exp(score * scaleOf(p) - lse[2 * i]! - lse[2 * i + 1]!);
        visit(q, k, v, i * size, w, w * (dw - delta[i]!) * scaleOf(p));
      }
    }
  }
}

/** qkv, dy, lse, y (rows, heads * headSize), documentStarts or keyMask if the mask is so -> the q columns of dqkv, and delta. */
export const attentionBackwardQ: Kernel<AttentionBackwardProblem> = {
  name: 'attentionBackwardQ',
  operands(p) {
    const { rows, deltas, outputs } = rowsOf(p);
    return { ...backwardOperands(p, write(deltas)), y: read(outputs), ...maskOperands(p, rows) };
  },
  affectsSpeed: { batch: true, seq: true, heads: true, kvHeads: true, headSize: true, mask: true, scale: false },
  variants: tileVariants(
    {
      load1: backwardLoad1 + deltaMade1,
      load4: backwardLoad4 + deltaMade4,
      span: backwardQSpan,
      tiled: backwardQTiled,
    },
    (p) => p.heads,
    backwardGiven,
  ),
  rows: cutBySequences,
  flops: (p) => p.batch * p.heads * (pairsSeen(p.mask, p.seq) * 6 + p.seq * 2) * p.headSize,
  reference(p, data: BackwardArrays & Arrays<'y'>) {
    const { qkv, dy, y, delta, dqkv } = data;
    for (let i = 0; i < delta.length; i++) {
      delta[i] = 0;
      for (let d = i * p.headSize; d < (i + 1) * p.headSize; d++) delta[i]! += dy[d]! * y[d]!;
    }
    const stride = packedStride(p);
    for (let row = 0; row < p.batch * p.seq; row++) dqkv.fill(0, row * stride, row * stride + p.heads * p.headSize);
    eachPair(p, data, (q, k, _v, _dy, _w, ds) => {
      for (let d = 0; d < p.headSize; d++) dqkv[q + d]! += ds * qkv[k + d]!;
    });
  },
};

/** qkv, dy, lse, delta, documentStarts or keyMask if the mask is so -> the k and v columns of dqkv. */
export const attentionBackwardKV: Kernel<AttentionBackwardProblem> = {
  name: 'attentionBackwardKV',
  operands(p) {
    const { rows, deltas } = rowsOf(p);
    return { ...backwardOperands(p, read(deltas)), ...maskOperands(p, rows) };
  },
  affectsSpeed: { batch: true, seq: true, heads: true, kvHeads: true, headSize: true, mask: true, scale: false },
  variants: tileVariants(
    {
      load1: backwardLoad1 + deltaGiven,
      load4: backwardLoad4 + deltaGiven,
      span: backwardKvSpan,
      tiled: backwardKvTiled,
    },
    (p) => p.kvHeads,
    backwardGiven,
    128, // see backward_kv_tiled.wgsl
  ),
  rows: cutBySequences,
  flops: (p) => p.batch * p.heads * pairsSeen(p.mask, p.seq) * p.headSize * 8,
  reference(p, data: BackwardArrays) {
    const { qkv, dy, dqkv } = data;
    const stride = packedStride(p);
    for (let row = 0; row < p.batch * p.seq; row++)
      dqkv.fill(0, row * stride + p.heads * p.headSize, (row + 1) * stride);
    eachPair(p, data, (q, k, v, dyBase, w, ds) => {
      for (let d = 0; d < p.headSize; d++) {
        dqkv[k + d]! += ds * qkv[q + d]!;
        dqkv[v + d]! += w * dy[dyBase + d]!;
      }
    });
  },
};
